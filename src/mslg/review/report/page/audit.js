// The random check: what it says so far, and what to do next.

const CHOICES = 12; // classes up to which each has a button
const headline = byId("headline").textContent;

// Wilson's interval, 90 %.
function interval(wrong, judged) {
  const z = 1.645;
  const share = wrong / judged;
  const centre = share + (z * z) / (2 * judged);
  const spread = z * Math.sqrt((share * (1 - share)) / judged + (z * z) / (4 * judged * judged));
  const scale = 1 + (z * z) / judged;
  return [Math.max(0, (centre - spread) / scale), Math.min(1, (centre + spread) / scale)];
}

// The share of wrong labels with its interval, and the number in all; the summary follows.
function drawAudit(review) {
  const judged = data.audit.map((card) => review.decisions.of(card)).filter((decision) => decision && decision.kind !== "skip");
  const wrong = judged.filter((decision) => decision.kind !== "keep").length;
  const known = judged.length >= 20;
  const [low, high] = known ? interval(wrong, judged.length) : [];
  const all = data.samples;
  const about = known ? Math.round((wrong / judged.length) * all) : 0;
  const found = known
    ? `${count(wrong)} of ${count(judged.length)} random labels are wrong: ${percent(wrong / judged.length)} (${percent(low)} to ${percent(high)}), so about ${count(about)} of all ${count(all)} (${count(Math.round(low * all))} to ${count(Math.round(high * all))}, 90 % interval).`
    : `Is the given label right? Decide about all ${count(data.audit.length)} of these random samples, in any order; an estimate appears after 20.${data.cards.length ? " What the run thinks of them is hidden, so that it does not sway you." : ""}`;
  byId("save-audit").hidden = review.part !== "check" || remote.saves();
  byId("save-audit").disabled = !judged.length;
  byId("task").hidden = review.part === "review";
  if (review.part === "next") byId("task").textContent = `Verified labels for these ${count(data.next.length)} samples are expected to improve the model most; the most useful come first.`;
  else byId("task").replaceChildren(found, ...(judged.length === data.audit.length ? nextStep() : []));
  byId("audit-summary").hidden = !known;
  byId("audit-summary").replaceChildren(...(known ? [`By your random check, ${found}`, ...(judged.length === data.audit.length ? nextStep() : [])] : []));
  byId("unknown")?.toggleAttribute("hidden", known);
  if (!data.cards.length) byId("headline").textContent = known ? `About ${count(about)} of ${count(all)} labels are wrong` : headline;
  document.querySelector('.go [href="#check"]')?.toggleAttribute("hidden", judged.length === data.audit.length);
}

function nextStep() {
  const command = remote.token ? data.commands.checked : data.commands.checked_offline;
  if (!command) return [" The check is complete."];
  return [` The check is complete. ${remote.token ? "" : "Download audit.csv. "}Next: `, element("code", {}, command)];
}

// Classes to choose from at once: the number of a class is its key.
function drawChoices(card, choose) {
  const few = card.quality === null && data.classes.length <= CHOICES;
  byId("choices").hidden = !few;
  if (!few) return;
  byId("choice-list").replaceChildren(
    ...data.classes.map((_, number) => {
      const key = digitsChoose && number < 9 ? element("kbd", { "aria-hidden": "true" }, String(number + 1)) : null;
      const button = element("button", { type: "button", disabled: number === card.given }, classNamed(number, 24), key);
      button.addEventListener("click", () => choose(number));
      return button;
    }),
  );
}
