// The current sample in full.

// The class to change the label to: the suggested one, or for a label that is not flagged the likeliest class.
const proposed = (card) => (card.suggested !== card.given ? card.suggested : (card.probs[0]?.[0] ?? card.given));
const role = (card, number) => (number === card.given ? "given" : number === proposed(card) ? "suggested" : "other");
const flagged = (card) => card.flagged;
const corrected = (card) => card.given !== proposed(card);

function words(card) {
  const given = `given ${short(className(card.given))}`;
  if (card.quality === null) return given;
  if (!flagged(card)) return `${given}, not flagged`;
  return corrected(card) ? `${given}, suggested ${short(className(proposed(card)))}` : `${given}, no other class is likelier`;
}

function showCard(card, decision) {
  byId("card-title").replaceChildren("Sample ", named(card.id));
  byId("card-rank").textContent = card.quality === null ? "" : `rank ${count(card.rank + 1)}`;
  byId("card-path").replaceChildren(...(card.path && !card.path.endsWith(card.id) ? [named(card.path, 120)] : []));
  byId("view").replaceChildren(fullView(card));
  byId("labels").replaceChildren(
    ...label("Given", "given", card.given),
    ...(card.quality === null ? [] : corrected(card) ? label(flagged(card) ? "Suggested" : "Likeliest", "suggested", proposed(card)) : [element("dt", {}, "Suggested"), element("dd", { class: "other" }, "no other class")]),
    ...(card.kind ? [element("dt", {}, "Kind"), element("dd", {}, card.kind, ...(card.duplicate_of ? [" of ", named(card.duplicate_of, 40)] : []))] : []),
    ...(card.quality === null ? [] : quality(card)),
  );
  for (const place of ["probs", "history", "nearest"]) byId(place).previousElementSibling.hidden = byId(place).hidden = !card[place].length;
  byId("probs").replaceChildren(...card.probs.map((entry, place) => probBar(card, entry, place)));
  byId("history").replaceChildren(...history(card));
  byId("nearest").replaceChildren(...card.nearest.map((place) => cleanSample(card, data.clean[place])));
  showDecision(card, decision);
}

function quality(card) {
  const number = element("span", { class: "number" }, card.quality.toFixed(card.quality < 0.01 ? 4 : 2));
  return [
    element("dt", { title: "The probability that the given label is right" }, "Quality"),
    element("dd", { class: "quality-row" }, bar(card.quality, "quality"), number),
  ];
}

function showDecision(card, decision) {
  const place = byId("card-decision");
  place.className = `decision ${decision ? decision.kind : "none"}`;
  place.replaceChildren(decision ? KINDS[decision.kind] : "undecided");
  if (decision?.kind === "relabel") place.append(" as ", named(decision.label, 40));
  for (const button of document.querySelectorAll("[data-decision]")) {
    button.setAttribute("aria-pressed", String(decision?.kind === button.dataset.decision));
  }
}

function label(title, kind, number) {
  return [element("dt", {}, title), element("dd", { class: kind }, classNamed(number))];
}

function fullView(card) {
  const { view } = card;
  if (view.kind === "image") return element("div", { class: "frame" }, picture(view, `Picture of the sample, ${words(card)}`));
  if (view.kind === "text") {
    const text = element("div", { class: "text", dir: "auto", tabindex: "0", role: "region", "aria-label": "Text of the sample" });
    text.textContent = visibleText(view.text);
    return text;
  }
  const drawing = element("figure", { class: "values" }, strip(view, 320, 120));
  if (view.names || view.length <= 12) {
    const scaled = view.names && columns ? standardised(view) : [];
    const unusual = (place) => Math.abs(scaled[place] ?? 0) > UNUSUAL;
    const rows = view.values.map((value, place) => {
      const more = unusual(place) ? element("small", {}, ` ${scaled[place] > 0 ? "+" : "−"}${Math.abs(scaled[place]).toFixed(1)} sd`) : null;
      const name = element("th", { scope: "row" }, named(view.names?.[place] ?? `value ${place + 1}`, 40));
      return element("tr", { class: unusual(place) ? "unusual" : null }, name, element("td", {}, String(value), more));
    });
    if (scaled.length) drawing.append(element("figcaption", {}, `Bars: standard deviations (sd) from the mean; more than ${UNUSUAL} are marked.`));
    const table = element("table", {}, element("caption", { class: "unseen" }, "Values of the sample"), element("tbody", {}, ...rows));
    return element("div", { class: "row", tabindex: "0", role: "region", "aria-label": "Values of the sample" }, drawing, table);
  }
  const low = Math.min(...(view.low ?? view.values));
  const high = Math.max(...(view.high ?? view.values));
  drawing.append(element("figcaption", {}, `${count(view.length)} values from ${low} to ${high}`));
  return drawing;
}

function bar(share, kind) {
  const inner = element("span", { class: kind });
  inner.style.width = `${(100 * Math.max(0, Math.min(1, share))).toFixed(1)}%`;
  return element("span", { class: "track", "aria-hidden": "true" }, inner);
}

function probBar(card, [number, share], place) {
  const key = digitsChoose ? element("kbd", { "aria-hidden": "true" }, String(place + 1)) : null;
  const name = element("span", { class: `name ${role(card, number)}` }, key, classNamed(number, 40));
  return element("li", {}, name, bar(share, role(card, number)), element("span", { class: "number" }, share.toFixed(2)));
}

function cleanSample(card, sample) {
  const face = element("span", { class: "face" }, thumbnail(sample.view));
  const name = classNamed(sample.label, 24, { class: role(card, sample.label) });
  return element("li", { title: short(sample.id) }, face, element("span", { class: "unseen" }, "verified as "), name);
}

// The probability of the given label by epoch, and below it the predicted classes.
function history(card) {
  const [width, height, foot] = [320, 64, 10];
  const { epochs } = data;
  if (!card.history.length) return [];
  const step = width / card.history.length;
  const points = card.history.map((share, place) => `${((place + 0.5) * step).toFixed(1)},${(2 + (1 - share) * (height - 4)).toFixed(1)}`);
  const squares = card.guesses.map((guess, place) =>
    drawn(
      "rect",
      { class: role(card, guess), x: (place * step + 1).toFixed(1), y: height + 4, width: Math.max(step - 2, 1).toFixed(1), height: foot },
      drawn("title", {}, `epoch ${epochs[place]}: predicted ${short(className(guess))}, given label at ${card.history[place].toFixed(2)}`),
    ),
  );
  const last = card.history.length - 1;
  const times = card.guesses.filter((guess) => guess === card.given).length;
  const told = `The given label's probability went from ${card.history[0].toFixed(2)} in epoch ${epochs[0]} to ${card.history[last].toFixed(2)} in epoch ${epochs[last]}; it was predicted in ${times} of ${card.guesses.length} epochs.`;
  const image = drawn(
    "svg",
    { viewBox: `0 0 ${width} ${height + 4 + foot}`, role: "img", "aria-label": told },
    drawn("line", { class: "grid", x1: 0, x2: width, y1: 2, y2: 2 }),
    drawn("line", { class: "grid", x1: 0, x2: width, y1: height - 2, y2: height - 2 }),
    drawn("text", { x: 0, y: 11 }, "1"),
    drawn("text", { x: 0, y: height - 5 }, "0"),
    drawn("polyline", { points: points.join(" ") }),
    ...card.history.map((_, place) => drawn("circle", { cx: points[place].split(",")[0], cy: points[place].split(",")[1], r: 1.8 })),
    ...squares,
  );
  const ends = element("p", { class: "ends", "aria-hidden": "true" }, element("span", {}, `epoch ${epochs[0]}`), element("span", {}, "squares: predicted class"), element("span", {}, `epoch ${epochs[last]}`));
  return [image, ends];
}
