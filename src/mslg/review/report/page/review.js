// The review: the filtered list, the current sample, and its decision.

const PAGE = 24;
const STATES = {
  any: () => true,
  undecided: (decision) => !decision,
  decided: (decision) => Boolean(decision),
};
const ORDERS = {
  rank: (left, right) => left.rank - right.rank,
  quality: (left, right) => right.quality - left.quality || left.rank - right.rank,
  pair: (left, right) => left.given - right.given || proposed(left) - proposed(right) || left.rank - right.rank,
};
const FIELDS = ["given", "suggested", "depth", "sure", "state", "which", "kind", "search", "order"];
const DEFAULTS = { state: "any", which: "all", order: "rank" };
// A digit chooses one of the likeliest classes, unless classes are named by digits: then it is typed.
const digitsChoose = !data.classes.some((name) => /\d/.test(name.charAt(0)));
// A sample without what the run thinks of it: an opinion would sway the reviewer, and with it the rate.
const blinded = (card) => ({ ...card, suggested: card.given, quality: null, flagged: false, kind: "", probs: [], history: [], guesses: [], nearest: [] });

// A label that is not flagged has no suggestion to accept: its likeliest class is chosen by the reviewer.
const accepting = (card) => (card.suggested === card.given ? "relabel" : "accept");

class Review {
  constructor() {
    this.lists = { review: data.cards, check: data.audit.map(blinded), next: data.next };
    this.part = this.lists[listed()]?.length ? listed() : data.cards.length ? "review" : "check";
    this.cards = this.lists[this.part];
    this.key = `mslg-report-${data.fingerprint}`;
    this.decisions = new Decisions([...data.next, ...data.audit, ...data.cards], this.key);
    this.picked = new Set();
    this.open();
  }

  // The suspects, the samples drawn at random, or those whose review would help most.
  show(part) {
    if (part === this.part || !this.lists[part].length) return;
    this.part = part;
    this.cards = this.lists[part];
    this.picked.clear();
    this.open();
  }

  open() {
    this.list = null;
    this.fillFilters();
    this.recall();
    this.refresh();
  }

  fillFilters() {
    for (const [field, of] of [["given", (card) => card.given], ["suggested", proposed]]) {
      const times = new Map();
      for (const card of this.cards) times.set(of(card), (times.get(of(card)) ?? 0) + 1);
      const classes = [...times.keys()].sort((left, right) => left - right);
      byId(field).replaceChildren(
        element("option", { value: "" }, "any class"),
        ...classes.map((number) => element("option", { value: number }, `${short(className(number), 40)} (${times.get(number)})`)),
      );
    }
    const depths = [10, 25, 50, 100, 200, 500, 1000].filter((depth) => depth < this.cards.length);
    byId("depth").replaceChildren(
      element("option", { value: "" }, "all"),
      ...depths.map((depth) => element("option", { value: depth }, `first ${count(depth)}`)),
    );
    if (byId("state").options.length < 4) byId("state").append(...Object.entries(KINDS).map(([kind, word]) => element("option", { value: kind }, word)));
    byId("kinds").hidden = this.cards.every((card) => !card.kind);
  }

  // Filters and place as they were when this list was last left.
  recall() {
    const before = storage.read(this.placeKey()) ?? {};
    this.clear();
    for (const field of FIELDS) {
      const place = byId(field);
      const value = this.part === "check" ? null : before[field]; // what was drawn at random is checked as a whole
      if (typeof value !== "string") continue;
      if (place.tagName !== "SELECT" || [...place.options].some((option) => option.value === value)) place.value = value;
    }
    this.card = this.cards.find((card) => card.id === before.card) ?? null;
  }

  clear() {
    const start = { ...DEFAULTS, which: this.part === "review" && this.cards.some(flagged) ? "flagged" : "all" };
    for (const field of FIELDS) byId(field).value = start[field] ?? "";
  }

  placeKey() {
    return `${this.key}-place-${this.part}`;
  }

  remember() {
    const fields = Object.fromEntries(FIELDS.map((field) => [field, byId(field).value]));
    storage.write(this.placeKey(), { ...fields, card: this.card?.id });
  }

  // The samples that the filters let through, apart from what was decided about them.
  selected() {
    const { given, suggested, depth, sure, which, kind, search } = Object.fromEntries(FIELDS.map((field) => [field, byId(field).value]));
    const wanted = search.trim().toLowerCase();
    return this.cards.filter(
      (card) =>
        (given === "" || card.given === Number(given)) &&
        (suggested === "" || proposed(card) === Number(suggested)) &&
        (depth === "" || this.part !== "review" || card.rank < Number(depth)) &&
        (sure === "" || card.quality < Number(sure)) &&
        (which === "all" || flagged(card) || kind !== "") &&
        (kind === "" || card.kind === kind) &&
        (wanted === "" || card.id.toLowerCase().includes(wanted)),
    );
  }

  // Lists the samples of one kind of problem; asked for again, those of all kinds.
  onlyKind(kind) {
    if (byId("kinds").hidden) return announce("This run does not tell kinds of problem apart.");
    byId("kind").value = byId("kind").value === kind ? "" : kind;
    this.refresh();
    announce(`${byId("kind").value || "any kind"}: ${byId("found").textContent}.`);
  }

  refresh() {
    const state = byId("state").value;
    const chosen = STATES[state] ?? ((decision) => decision?.kind === state);
    const selected = this.selected();
    const at = this.list ? Math.max(0, this.list.indexOf(this.card)) : 0;
    this.list = selected.filter((card) => chosen(this.decisions.of(card)));
    // What was drawn or chosen stays in its order unless another one is asked for.
    if (this.part === "review" || byId("order").value !== "rank") this.list.sort(ORDERS[byId("order").value]);
    // A sample that has left the list is followed by the one that took its place.
    if (!this.list.includes(this.card)) this.card = this.list[Math.min(at, this.list.length - 1)] ?? null;
    this.selection = selected;
    this.draw();
  }

  draw() {
    const reviewed = this.selection.filter((card) => this.decisions.of(card)).length;
    byId("progress").max = Math.max(1, this.selection.length);
    byId("progress").value = reviewed;
    byId("reviewed").textContent = `${count(reviewed)} of ${count(this.selection.length)} reviewed`;
    byId("found").textContent = `${count(this.list.length)} ${this.list.length === 1 ? "sample" : "samples"} listed`;
    byId("review-title").textContent = { check: "Random check", next: "Review next", review: "Review" }[this.part];
    byId("precision").textContent = this.part === "review" ? this.precision() : "";
    drawAudit(this);
    const random = this.part === "check"; // nothing is suggested
    for (const id of ["bulk-accept", "filters"]) byId(id).hidden = random;
    byId("card").classList.toggle("random", random);
    byId("depths").hidden = this.part !== "review";
    byId("order").options[0].textContent = this.part === "next" ? "most useful first" : "worst first";
    byId("card").hidden = !this.card;
    byId("nothing").hidden = Boolean(this.card);
    for (const id of ["save-csv", "save-json"]) {
      byId(id).disabled = this.decisions.decided.size === 0;
      byId(id).hidden = random || (id === "save-json" && remote.saves()); // a check is audit.csv
    }
    for (const id of ["undo", "bulk-undo"]) byId(id).disabled = this.decisions.past.length === 0;
    const several = [...this.picked].filter((card) => this.list.includes(card));
    byId("bulk-accept").disabled = !several.some(corrected);
    byId("bulk-accept").textContent = `Accept ${several.length ? count(several.filter(corrected).length) : ""} suggested`;
    byId("bulk-keep").disabled = !several.length;
    byId("bulk-keep").textContent = `Keep ${several.length ? count(several.length) : ""} given`;
    byId("pick-all").textContent = several.length ? `Clear selection (${count(several.length)})` : `Select all ${count(this.list.length)} listed`;
    byId("pick-all").setAttribute("aria-pressed", String(several.length > 0));
    if (this.card) {
      if (this.drawnCard !== this.card) {
        showCard(this.card, this.decisions.of(this.card));
        drawChoices(this.card, (number) => this.decide("relabel", number));
      }
      showDecision(this.card, this.decisions.of(this.card));
      byId("accept").hidden = !corrected(this.card);
      byId("keep").classList.toggle("primary", !corrected(this.card));
      const key = (letter) => element("kbd", { "aria-hidden": "true" }, letter);
      byId("accept").replaceChildren("Accept ", classNamed(proposed(this.card), 20), " ", key("a"));
      byId("keep").replaceChildren("Keep ", classNamed(this.card.given, 20), " ", key("k"));
      byId("place").textContent = `${count(this.list.indexOf(this.card) + 1)} of ${count(this.list.length)}`;
    }
    this.drawnCard = this.card;
    this.drawTiles();
    this.remember();
    byId("storage").hidden = !storage.problem || Boolean(remote.token);
    const after = remote.token ? data.commands.reviewed : data.commands.reviewed_offline;
    byId("after").replaceChildren(...(random || !after ? [] : [`To write the cleaned data${remote.token ? "" : ", download your decisions, then"}: `, element("code", {}, after)]));
  }

  drawTiles() {
    const pages = Math.max(1, Math.ceil(this.list.length / PAGE));
    const page = Math.floor(Math.max(0, this.list.indexOf(this.card)) / PAGE);
    const held = byId("tiles").contains(document.activeElement);
    byId("tiles").replaceChildren(...this.list.slice(page * PAGE, (page + 1) * PAGE).map((card) => this.tile(card)));
    if (held) byId("tiles").querySelector("[aria-current]")?.focus();
    byId("page").textContent = `page ${count(page + 1)} of ${count(pages)}`;
    byId("page-before").disabled = page === 0;
    byId("page-after").disabled = page >= pages - 1;
  }

  tile(card) {
    const decision = this.decisions.of(card);
    const told = `Sample ${short(card.id, 40)}, ${words(card)}, ${decision ? KINDS[decision.kind] : "undecided"}`;
    const relabelled = decision?.kind === "relabel" ? named(decision.label, 24, { class: "relabelled" }) : null;
    const other = relabelled ?? (corrected(card) ? classNamed(proposed(card), 24, { class: "suggested" }) : null);
    const arrow = other ? [element("span", {}, element("span", { class: "arrow" }, "→"), other)] : [];
    const long = className(card.given).length + (other?.textContent.length ?? 0) > 6;
    const caption = element("span", { class: long ? "caption long" : "caption" }, classNamed(card.given, 24, { class: "given" }), ...arrow);
    const mark = decision ? element("span", { class: `mark ${decision.kind}` }) : null;
    const attributes = { type: "button", class: "tile", "aria-label": told, "aria-current": card === this.card ? "true" : null };
    const button = element("button", attributes, element("span", { class: "face" }, thumbnail(card.view)), caption, mark);
    button.addEventListener("click", (event) => (event.ctrlKey || event.metaKey || event.shiftKey ? this.pick(card, event.shiftKey) : this.goTo(card)));
    const box = element("input", { type: "checkbox", class: "pick", "aria-label": `Select ${short(card.id, 40)}`, tabindex: "-1" });
    box.checked = this.picked.has(card);
    box.addEventListener("click", (event) => this.pick(card, event.shiftKey));
    return element("li", { class: this.picked.has(card) ? "picked" : null }, button, box);
  }

  // Of the first samples that are all reviewed: how many were wrong, next to the run's estimate.
  precision() {
    let [depth, judged, wrong] = [0, 0, 0];
    for (const card of this.cards.filter(flagged)) {
      const decision = this.decisions.of(card);
      if (!decision) break;
      depth += 1;
      if (decision.kind === "skip") continue;
      judged += 1;
      if (decision.kind !== "keep") wrong += 1;
    }
    if (judged < 5) return "";
    const [low, high] = interval(wrong, judged);
    const found = `Of the first ${count(depth)}, ${count(wrong)} of ${count(judged)} reviewed were wrong: ${percent(wrong / judged)} (${percent(low)} to ${percent(high)}).`;
    const stated = data.precision.reduce((best, row) => (best && Math.abs(best.depth - depth) <= Math.abs(row.depth - depth) ? best : row), null);
    if (!stated) return found;
    const range = stated.low === undefined ? "" : ` (${percent(stated.low)} to ${percent(stated.high)})`;
    return `${found} The run's estimate was ${percent(stated.estimate)}${range} for the first ${count(stated.depth)}.`;
  }

  // Selects a sample or takes it out; with shift, all between the last one and this.
  pick(card, through = false) {
    const [from, to] = [this.list.indexOf(this.lastPicked), this.list.indexOf(card)].sort((left, right) => left - right);
    if (through && from >= 0) for (const each of this.list.slice(from, to + 1)) this.picked.add(each);
    else if (this.picked.has(card)) this.picked.delete(card);
    else this.picked.add(card);
    this.lastPicked = card;
    this.draw();
  }

  pickAll() {
    const any = this.list.some((card) => this.picked.has(card));
    this.picked = new Set(any ? [] : this.list);
    this.draw();
  }

  // One decision about all selected samples, undone at once.
  decideSelected(kind) {
    const chosen = this.list.filter((card) => this.picked.has(card) && (kind === "keep" || corrected(card)));
    if (!chosen.length) return announce("No sample is selected.");
    this.decisions.decide(chosen.map((card) => (kind === "keep" ? [card, kind, className(card.given)] : [card, accepting(card), className(proposed(card))])));
    this.picked.clear();
    this.refresh();
    announce(`${count(chosen.length)} samples ${KINDS[kind]}. Undo takes all of them back.`);
  }

  goTo(card) {
    this.card = card;
    this.draw();
  }

  move(by) {
    const at = this.list.indexOf(this.card) + by;
    if (at < 0 || at >= this.list.length) return announce(by > 0 ? "This is the last sample." : "This is the first sample.");
    this.goTo(this.list[at]);
    announce(`Sample ${short(this.card.id, 40)}, ${words(this.card)}.`);
  }

  turn(by) {
    const page = Math.floor(Math.max(0, this.list.indexOf(this.card)) / PAGE) + by;
    if (this.list[page * PAGE]) this.goTo(this.list[page * PAGE]);
  }

  decide(kind, number = null) {
    const { card } = this;
    if (!card) return;
    if (kind === "relabel" && number === card.given) return this.decide("keep");
    if (kind === "relabel" && number === proposed(card)) return this.decide("accept");
    if (kind === "accept" && !corrected(card)) return this.decide("keep");
    const label = { accept: className(proposed(card)), keep: className(card.given), relabel: className(number ?? 0) }[kind] ?? "";
    this.decisions.decide([[card, kind === "accept" ? accepting(card) : kind, label]]);
    const at = this.list.indexOf(card);
    this.refresh();
    if (this.card === card && at + 1 < this.list.length) this.goTo(this.list[at + 1]);
    const as = kind === "relabel" ? ` as ${short(label, 40)}` : "";
    const next = this.card && this.card !== card ? ` Now ${short(this.card.id, 40)}: ${words(this.card)}.` : " That was the last one.";
    announce(`${short(card.id, 40)} ${KINDS[kind]}${as}.${next}`);
  }

  undo() {
    const card = this.decisions.undo();
    if (!card) return announce("There is nothing to undo.");
    this.refresh();
    const here = this.list.find((each) => each.id === card.id); // a sample may be on several lists
    if (here) this.goTo(here);
    announce(`Undone: ${short(card.id, 40)} is ${KINDS[this.decisions.of(card)?.kind] ?? "undecided"} again.`);
  }

  async load(file) {
    try {
      const { all, used } = this.decisions.load(await file.text());
      this.refresh();
      announce(`${count(used)} of ${count(all)} decisions loaded${used < all ? "; the others are about other samples, labels or suggestions" : ""}.`);
    } catch (error) {
      announce(`${file.name} cannot be read as decisions: ${error.message}.`);
    }
  }
}

let fading = null;

function announce(text) {
  const place = byId("status");
  place.textContent = text;
  place.classList.add("fresh");
  window.clearTimeout(fading);
  fading = window.setTimeout(() => place.classList.remove("fresh"), 6000);
}

// A class by name: type to narrow the list, arrows and Enter to choose.
class Chooser {
  constructor(review) {
    this.review = review;
    this.dialog = byId("chooser");
    this.input = byId("chooser-search");
    this.input.addEventListener("input", () => this.list());
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  open(typed = "") {
    if (!this.review.card) return;
    this.input.value = typed;
    this.dialog.showModal();
    this.list();
  }

  list() {
    const { card } = this.review;
    const first = card.probs.map(([number]) => number);
    const rest = data.classes.map((_, number) => number).filter((number) => !first.includes(number));
    const wanted = this.input.value.trim().toLowerCase();
    const starts = (number) => className(number).toLowerCase().startsWith(wanted);
    const found = [...first, ...rest].filter((number) => className(number).toLowerCase().includes(wanted));
    if (wanted) found.sort((left, right) => Number(starts(right)) - Number(starts(left)));
    this.found = found.slice(0, 200);
    this.at = 0;
    const shares = new Map(card.probs);
    byId("chooser-list").replaceChildren(
      ...this.found.map((number, place) => {
        const key = digitsChoose && !wanted && place < Math.min(9, first.length) ? element("kbd", {}, String(place + 1)) : null;
        const which = number === card.given ? "given" : number === card.suggested ? "suggested" : "";
        const share = shares.has(number) ? element("span", { class: "number" }, shares.get(number).toFixed(2)) : null;
        const option = element("li", { role: "option", id: `option-${place}`, class: which }, key, classNamed(number, 60), which ? element("small", {}, which) : null, share);
        option.addEventListener("click", () => this.choose(place));
        return option;
      }),
    );
    byId("chooser-none").hidden = this.found.length > 0;
    this.mark();
  }

  mark() {
    for (const option of byId("chooser-list").children) option.setAttribute("aria-selected", String(option.id === `option-${this.at}`));
    const current = byId(`option-${this.at}`);
    if (current) this.input.setAttribute("aria-activedescendant", current.id);
    else this.input.removeAttribute("aria-activedescendant");
    current?.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves) {
      this.at = (this.at + moves[event.key] + this.found.length) % Math.max(1, this.found.length);
      this.mark();
    } else if (event.key === "Enter") this.choose(this.at);
    else if (digitsChoose && this.input.value === "" && /^[1-9]$/.test(event.key) && event.key <= this.review.card.probs.length) this.choose(Number(event.key) - 1);
    else return;
    event.preventDefault();
  }

  choose(place) {
    if (this.found[place] === undefined) return;
    this.dialog.close();
    this.input.blur(); // it keeps the focus until the next frame, and would swallow the next key
    this.review.decide("relabel", this.found[place]);
  }
}
