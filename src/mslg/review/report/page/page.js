// Parts, theme, keys and files of the page.

function effectiveTheme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ?? (window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function setUpTheme() {
  const button = byId("theme");
  const tell = () => button.setAttribute("aria-pressed", String(effectiveTheme() === "dark"));
  const kept = storage.read("mslg-report-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = effectiveTheme() === "dark" ? "light" : "dark";
    storage.write("mslg-report-theme", document.documentElement.dataset.theme);
    tell();
  });
  tell();
}

const LISTS = { "#check": "check", "#review": "review", "#worth": "next" };
const listed = () => LISTS[window.location.hash];

let review = null;

function setUpParts() {
  const show = () => {
    const here = listed() ?? "summary";
    byId("summary").hidden = here !== "summary";
    byId("review").hidden = here === "summary";
    for (const part of ["summary", "check", "review", "next"]) {
      if (part === here) byId(`to-${part}`)?.setAttribute("aria-current", "page");
      else byId(`to-${part}`)?.removeAttribute("aria-current");
    }
    if (here !== "summary") review?.show(here);
    window.scrollTo(0, 0);
  };
  window.addEventListener("hashchange", show);
  show();
}

// Where decisions are, and what is lost if the page is closed now.
function showSaved() {
  const waiting = remote.waiting.length;
  byId("kept").textContent = remote.token ? (waiting ? `${count(waiting)} not saved yet` : `saved to ${short(remote.file, 60)}`) : storage.problem ? "" : "kept in this browser";
  if (byId("stopped").hidden === remote.problem) {
    byId("stopped").hidden = !remote.problem;
    review.draw();
  }
  const lost = waiting ? `${count(waiting)} ${waiting === 1 ? "decision is" : "decisions are"} in this page only.` : "What you decide now is in this page only.";
  byId("stopped").textContent = `The server does not answer: was it stopped? ${lost} Download the decisions, start mslg review again, and load them on its page.`;
}

function save(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  element("a", { href: address, download: name }).click();
  window.setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function setUpReview() {
  review = new Review();
  const chooser = new Chooser(review);
  const actions = {
    a: () => review.decide("accept"),
    k: () => review.decide("keep"),
    r: () => chooser.open(),
    x: () => review.decide("remove"),
    s: () => review.decide("skip"),
    m: () => review.card && review.pick(review.card),
    u: () => review.undo(),
    j: () => review.move(1),
    ArrowRight: () => review.move(1),
    p: () => review.move(-1),
    ArrowLeft: () => review.move(-1),
    w: () => review.onlyKind("wrong label"),
    b: () => review.onlyKind("ambiguous"),
    d: () => review.onlyKind("near duplicate"),
    n: () => review.onlyKind("no class"),
    "?": () => {
      byId("help").showModal();
      byId("help").querySelector(".close").focus();
    },
  };
  const buttons = { accept: "a", keep: "k", relabel: "r", remove: "x", skip: "s", undo: "u", next: "j", before: "p", "open-help": "?" };
  for (const [id, key] of Object.entries(buttons)) byId(id).addEventListener("click", actions[key]);
  byId("pick-all").addEventListener("click", () => review.pickAll());
  byId("bulk-accept").addEventListener("click", () => review.decideSelected("accept"));
  byId("bulk-keep").addEventListener("click", () => review.decideSelected("keep"));
  byId("bulk-undo").addEventListener("click", () => review.undo());
  byId("save-audit").addEventListener("click", () => save("audit.csv", "text/csv", review.decisions.csv(data.audit)));
  byId("page-before").addEventListener("click", () => review.turn(-1));
  byId("page-after").addEventListener("click", () => review.turn(1));
  for (const field of FIELDS) byId(field).addEventListener(field === "search" ? "input" : "change", () => review.refresh());
  byId("clear").addEventListener("click", () => {
    review.clear();
    review.refresh();
  });
  byId("save-csv").addEventListener("click", () => save("decisions.csv", "text/csv", review.decisions.csv()));
  byId("save-json").addEventListener("click", () => save("decisions.json", "application/json", review.decisions.json()));
  byId("load").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", async () => {
    if (byId("file").files.length) await review.load(byId("file").files[0]);
    byId("file").value = "";
  });
  const shortcuts = byId("shortcuts");
  shortcuts.checked = storage.read("mslg-report-shortcuts") !== false;
  shortcuts.addEventListener("change", () => storage.write("mslg-report-shortcuts", shortcuts.checked));
  document.addEventListener("keydown", (event) => {
    const busy = event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]");
    if (busy || !listed() || !shortcuts.checked || event.target.closest("input:not(.pick), select, textarea, .text, .row")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key in actions) actions[key]();
    else if (/^[0-9]$/.test(key) && review.card) {
      if (!digitsChoose) chooser.open(key);
      else if (key !== "0" && review.card.probs[key - 1]) review.decide("relabel", review.card.probs[key - 1][0]);
      else if (key !== "0" && !byId("choices").hidden && key <= data.classes.length) review.decide("relabel", key - 1);
    } else return;
    event.preventDefault();
  });
  for (const button of document.querySelectorAll("[data-pair]")) {
    button.addEventListener("click", () => {
      const [given, suggested] = button.dataset.pair.split(",");
      review.show("review");
      byId("clear").click();
      for (const [field, value] of [["given", given], ["suggested", suggested]]) byId(field).value = value;
      review.refresh();
      window.location.hash = "#review";
    });
  }
  window.addEventListener("storage", (event) => {
    if (event.key !== review.key) return;
    review.decisions.restore();
    review.refresh();
  });
  window.addEventListener("beforeunload", (event) => {
    if (remote.token ? remote.waiting.length : storage.problem && review.decisions.decided.size) event.preventDefault();
  });
  showSaved();
  if (remote.token) {
    const update = async () => {
      const rows = await remote.fetched();
      if (rows && review.decisions.merge(rows)) review.refresh();
      showSaved();
    };
    update();
    window.setInterval(update, 3000);
  }
  byId("filters").open = window.innerWidth > 720;
}

setUpTheme();
setUpParts();
if (data.cards.length || data.audit.length) setUpReview();
for (const button of document.querySelectorAll("dialog .close")) button.addEventListener("click", () => button.closest("dialog").close());
