// Pieces of the page. Whatever comes from the data goes in as text or as an attribute's value, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const LONGEST = 80;
// Controls, soft hyphen, zero-width and bidirectional marks, separators: as in safe_text.py.
const UNSEEN = /[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const code = (character) => `⟪U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟫`;
const visible = (text) => text.replace(UNSEEN, code);
// A text keeps its lines; marks that change its direction become visible.
const visibleText = (text) => text.replace(UNSEEN, (character) => ("\n\t\r".includes(character) ? character : code(character)));

function short(text, longest = LONGEST) {
  const cut = text.length <= 2 * longest ? text : `${text.slice(0, longest)}…${text.slice(-longest)}`;
  const seen = visible(cut);
  if (seen.length <= longest) return seen;
  const tail = Math.floor(longest / 4);
  return `${seen.slice(0, longest - tail - 1)}…${seen.slice(-tail)}`;
}

function named(text, longest = LONGEST, attributes = {}) {
  const shown = short(text, longest);
  return element("bdi", { ...attributes, title: shown === text ? null : short(text, 1000) }, shown);
}

const className = (number) => data.classes[number];
const classNamed = (number, longest = LONGEST, attributes = {}) => named(className(number), longest, attributes);
const count = (value) => value.toLocaleString("en");
const percent = (share) => `${(100 * share).toFixed(0)} %`;

// Columns of a table have different units: their values are shown in standard deviations from the column's mean, by the
// samples that were drawn at random.
const UNUSUAL = 2.5;
const columns = (() => {
  const rows = (data.audit.length ? data.audit : data.cards).filter((card) => card.view.names).map((card) => card.view.values);
  if (rows.length < 10) return null;
  return rows[0].map((_, place) => {
    const mean = rows.reduce((sum, row) => sum + row[place], 0) / rows.length;
    const variance = rows.reduce((sum, row) => sum + (row[place] - mean) ** 2, 0) / rows.length;
    return { mean, deviation: Math.sqrt(variance) || 1 };
  });
})();
const standardised = (view) => view.values.map((value, place) => (value - columns[place].mean) / columns[place].deviation);

// Values as a strip: bars from zero, or the outline of a long row.
function strip(view, width, height) {
  const scaled = Boolean(view.names && columns);
  const low = view.low ?? (scaled ? standardised(view) : view.values);
  const high = view.high ?? low;
  const bottom = Math.min(0, ...low);
  const top = Math.max(0, ...high);
  const y = (value) => height - ((value - bottom) / (top - bottom || 1)) * height;
  const step = width / low.length;
  const bars = low.map((value, place) => {
    const from = view.low ? y(high[place]) : Math.min(y(value), y(0));
    const to = view.low ? y(value) : Math.max(y(value), y(0));
    return drawn("rect", {
      class: scaled && Math.abs(value) > UNUSUAL ? "unusual" : null,
      x: (place * step).toFixed(2),
      y: from.toFixed(2),
      width: Math.max(step * 0.86, 0.5).toFixed(2),
      height: Math.max(to - from, 0.7).toFixed(2),
    });
  });
  return drawn("svg", { class: "strip", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars);
}

function picture(view, words) {
  if (!view.data.startsWith("data:image/")) return element("p", {}, "no picture");
  const small = Math.max(view.width, view.height) <= 64;
  return element("img", { src: view.data, alt: words, class: small ? "pixels" : null, width: view.width, height: view.height });
}

// A small preview, in a tile or of a clean sample.
function thumbnail(view) {
  if (view.kind === "image") return picture(view, "");
  if (view.kind === "values") return strip(view, 64, 48);
  return element("span", { class: "excerpt", dir: "auto" }, short(view.text.slice(0, 400).replace(/\s+/g, " "), 90));
}
