// The reviewer's decisions: stored in this browser, undone, written to files and read from them.

const KINDS = {
  accept: "accepted",
  keep: "kept",
  relabel: "relabelled",
  remove: "removed",
  skip: "skipped",
};
const COLUMNS = ["id", "decision", "label", "given_label", "suggested_label"];

const storage = {
  problem: null,
  read(key) {
    try {
      return JSON.parse(window.localStorage.getItem(key));
    } catch (error) {
      this.problem = this.problem ?? error;
      return null;
    }
  },
  write(key, value) {
    try {
      window.localStorage.setItem(key, JSON.stringify(value));
    } catch (error) {
      this.problem = this.problem ?? error;
    }
  },
};

// Where the page comes from `mslg review`, every change goes to its server at once, and is sent again until it arrived.
const remote = {
  token: document.querySelector('meta[name="mslg-token"]')?.content,
  file: document.querySelector('meta[name="mslg-file"]')?.content ?? "",
  waiting: [],
  changes: 0,
  problem: false,
  saves() {
    return Boolean(this.token) && !this.problem;
  },
  push(rows) {
    if (!this.token || !rows.length) return;
    this.changes += 1;
    this.waiting.push(...rows);
    this.send();
  },
  async send() {
    if (!this.waiting.length || this.busy) return;
    this.busy = true;
    const rows = this.waiting.splice(0);
    try {
      const answer = await fetch("/decisions", { method: "POST", headers: { "X-Token": this.token, "Content-Type": "application/json" }, body: JSON.stringify(rows) });
      if (!answer.ok) throw new Error(await answer.text());
      this.problem = false;
    } catch {
      this.waiting.unshift(...rows);
      this.problem = true;
      window.setTimeout(() => this.send(), 2000);
    }
    this.busy = false;
    if (!this.problem) this.send();
  },
  async fetched() {
    if (!this.token || this.waiting.length || this.busy) return null;
    const before = this.changes;
    try {
      const answer = await fetch("/decisions", { headers: { "X-Token": this.token } });
      const rows = answer.ok ? await answer.json() : null;
      this.problem = !answer.ok;
      return this.changes === before ? rows : null; // what was decided meanwhile may not be in the answer
    } catch {
      this.problem = true;
      return null;
    }
  },
};

class Decisions {
  constructor(cards, key) {
    this.cards = new Map(cards.map((card) => [card.id, card]));
    this.key = key;
    this.past = []; // of changes: each a list of [id, what was decided before, what then]
    this.restore();
  }

  // Another window of the same report may have changed what is kept.
  restore() {
    const known = (storage.read(this.key) ?? []).filter(([id, kind]) => this.cards.has(id) && kind in KINDS);
    this.decided = new Map(known.map(([id, kind, label]) => [id, { kind, label }]));
  }

  save(ids) {
    remote.push(ids.map((id) => ({ id, ...this.decided.get(id) })));
    storage.write(this.key, [...this.decided].map(([id, { kind, label }]) => [id, kind, label]));
  }

  of(card) {
    return this.decided.get(card.id);
  }

  // Changes are [card, kind, label]; together they are undone at once.
  decide(changes) {
    this.past.push(changes.map(([card, kind, label]) => [card.id, this.decided.get(card.id), { kind, label }]));
    for (const [card, kind, label] of changes) this.decided.set(card.id, { kind, label });
    this.save(changes.map(([card]) => card.id));
  }

  // The card that was changed first, or null if there is nothing to undo. What another browser has decided since stays.
  undo() {
    const change = this.past.pop();
    if (!change) return null;
    const own = change.filter(([id, , then]) => this.decided.get(id)?.kind === then.kind && this.decided.get(id)?.label === then.label);
    for (const [id, before] of own) {
      if (before) this.decided.set(id, before);
      else this.decided.delete(id);
    }
    this.save(own.map(([id]) => id));
    return this.cards.get((own[0] ?? change[0])[0]);
  }

  // What other browsers have decided, by way of the server.
  merge(rows) {
    const known = rows.filter(({ id, kind }) => this.cards.has(id) && kind in KINDS);
    const same = known.length === this.decided.size && known.every(({ id, kind, label }) => this.decided.get(id)?.kind === kind && this.decided.get(id)?.label === label);
    if (same) return false;
    this.decided = new Map(known.map(({ id, kind, label }) => [id, { kind, label }]));
    return true;
  }

  rows(cards = [...this.cards.values()]) {
    return cards
      .filter((card) => this.decided.has(card.id))
      .map((card) => {
        const { kind, label } = this.decided.get(card.id);
        return [card.id, kind, label, className(card.given), className(card.suggested)];
      });
  }

  csv(cards) {
    const cell = (text) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    return [COLUMNS, ...this.rows(cards)].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
  }

  json() {
    const named = this.rows().map((row) => Object.fromEntries(COLUMNS.map((name, place) => [name, row[place]])));
    return `${JSON.stringify({ format_version: 1, decisions: named }, null, 1)}\n`;
  }

  // Loads the decisions of a file about the cards on this page; returns how many rows it has and how many were used.
  load(text) {
    const rows = text.trimStart().startsWith("{") ? jsonRows(text) : csvRows(text);
    const labels = new Set(data.classes);
    const changes = [];
    for (const row of rows) {
      const card = this.cards.get(row.id);
      if (!card || !(row.decision in KINDS)) continue;
      if (row.given_label && row.given_label !== className(card.given)) continue;
      const implied = { accept: className(card.suggested), keep: className(card.given), remove: "", skip: "" };
      const label = implied[row.decision] ?? row.label;
      if (row.decision === "relabel" && !labels.has(label)) continue;
      if (row.decision === "accept" && row.label && row.label !== label) continue; // another label was suggested then
      changes.push([card, row.decision, label]);
    }
    if (changes.length) this.decide(changes);
    return { all: rows.length, used: changes.length };
  }
}

function jsonRows(text) {
  const found = JSON.parse(text).decisions;
  if (!Array.isArray(found)) throw new Error("it has no list of decisions");
  return found.filter((row) => row && typeof row === "object");
}

function csvRows(text) {
  const [header, ...rows] = csvCells(text.replace(/^\ufeff/, ""));
  if (!header || !header.includes("id") || !header.includes("decision")) throw new Error("it has no columns id and decision");
  return rows.map((row) => Object.fromEntries(header.map((name, place) => [name, row[place] ?? ""])));
}

// RFC 4180: commas, quotes around what has any, doubled quotes inside.
function csvCells(text) {
  const rows = [];
  let row = [];
  let cell = "";
  let quoted = false;
  const endRow = () => {
    row.push(cell);
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
    cell = "";
  };
  for (let place = 0; place < text.length; place += 1) {
    const character = text[place];
    if (quoted) {
      if (character !== '"') cell += character;
      else if (text[place + 1] === '"') cell += text[(place += 1)];
      else quoted = false;
    } else if (character === '"') quoted = true;
    else if (character === ",") {
      row.push(cell);
      cell = "";
    } else if (character === "\n") endRow();
    else if (character !== "\r") cell += character;
  }
  endRow();
  return rows;
}
