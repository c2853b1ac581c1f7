// The figure of docs/idea.md: what entropy and bound entropy do to logits. The formulas are those of src/mltta/objectives.py,
// and tests/docs/test_figure.py holds them to it.
"use strict";

/** Probabilities of one row of logits. */
function softmax(logits) {
  const most = Math.max(...logits);
  const powers = logits.map((z) => Math.exp(z - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((p) => p / sum);
}

/** Entropy in nats of a row's softmax. */
function entropy(logits) {
  return -softmax(logits).reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0);
}

/** Which labels are bound: fewer than k score strictly higher. k = 0 binds none. */
function boundLabels(logits, k) {
  return logits.map((z) => k > 0 && logits.filter((other) => other > z).length < k);
}

/** The k highest logits tied to the maximum. */
function bindLabels(logits, k) {
  const most = Math.max(...logits);
  const bound = boundLabels(logits, k);
  return logits.map((z, i) => (bound[i] ? most : z));
}

/** Gradient of the entropy by each logit: -p (log p + H). */
function entropyGradient(logits) {
  const h = entropy(logits);
  return softmax(logits).map((p) => (p > 0 ? -p * (Math.log(p) + h) : 0));
}

/** Gradient of the bound entropy by each logit: binding lets the gradient through unchanged. */
function boundGradient(logits, k) {
  return entropyGradient(bindLabels(logits, k));
}

/** Logits after one step of gradient descent. */
function step(logits, gradient, rate) {
  return logits.map((z, i) => z - rate * gradient[i]);
}

if (typeof module !== "undefined") {
  module.exports = { softmax, entropy, boundLabels, bindLabels, entropyGradient, boundGradient, step };
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => {
    const place = document.getElementById("bound-entropy");
    if (place) draw(place);
  });
}

/** Build the figure: sliders on the left, bars on the right. */
function draw(place) {
  const labels = ["dog", "sofa", "person", "boat"];
  const start = { logits: [3.0, 2.2, 0.6, 0.2], k: 2, rate: 3 };
  const state = { logits: [...start.logits], k: start.k, rate: start.rate };

  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const slider = (name, id, low, high, by, value, changed) => {
    const row = element("label", { class: "be-slider", for: id });
    const input = element("input", { type: "range", id, min: low, max: high, step: by, value });
    const said = element("output", { for: id }, String(value));
    input.addEventListener("input", () => {
      said.textContent = input.value;
      changed(Number(input.value));
      show();
    });
    row.append(element("span", {}, name), input, said);
    return row;
  };

  place.replaceChildren();
  const controls = element("div", { class: "be-controls" });
  labels.forEach((label, i) => {
    controls.append(
      slider(`logit of ${label}`, `be-logit-${i}`, -2, 5, 0.1, state.logits[i], (value) => (state.logits[i] = value)),
    );
  });
  controls.append(
    slider("k, labels bound", "be-k", 0, labels.length, 1, state.k, (value) => (state.k = value)),
    slider("size of the step", "be-rate", 0, 10, 0.5, state.rate, (value) => (state.rate = value)),
  );
  const again = element("button", { type: "button", class: "md-button" }, "Start again");
  again.addEventListener("click", () => {
    Object.assign(state, { logits: [...start.logits], k: start.k, rate: start.rate });
    draw(place);
  });
  controls.append(again);
  const table = element("table", { class: "be-table" });
  const said = element("p", { class: "be-said", "aria-live": "polite" });
  place.append(controls, table, said);

  const bar = (value, most) => {
    const cell = element("td");
    const track = element("span", { class: "be-track" });
    const fill = element("span", { class: value < 0 ? "be-fill be-down" : "be-fill be-up" });
    const share = Math.min(Math.abs(value) / most, 1) * 50;
    fill.style.width = `${share}%`;
    fill.style.left = value < 0 ? `${50 - share}%` : "50%";
    track.append(fill);
    cell.append(track, element("span", { class: "be-number" }, (value > 0 ? "+" : "") + value.toFixed(3)));
    return cell;
  };
  const row = (cells, kind = "td") => {
    const made = element("tr");
    made.append(...cells.map((cell) => (typeof cell === "string" ? element(kind, {}, cell) : cell)));
    return made;
  };

  function show() {
    const { logits, k, rate } = state;
    const gradients = { plain: entropyGradient(logits), bound: boundGradient(logits, k) };
    const before = softmax(logits);
    const after = {
      plain: softmax(step(logits, gradients.plain, rate)),
      bound: softmax(step(logits, gradients.bound, rate)),
    };
    const most = Math.max(0.05, ...[...gradients.plain, ...gradients.bound].map((g) => Math.abs(g)));
    const tied = boundLabels(logits, k);
    const heads = ["", "before", "entropy: push", "after", "bound entropy: push", "after"];
    table.replaceChildren(row(heads, "th"));
    labels.forEach((label, i) => {
      table.append(
        row([
          tied[i] ? `${label} (bound)` : label,
          before[i].toFixed(3),
          bar(-gradients.plain[i], most),
          after.plain[i].toFixed(3),
          bar(-gradients.bound[i], most),
          after.bound[i].toFixed(3),
        ]),
      );
    });
    const raised = (push) => labels.filter((_, i) => push[i] < -1e-9).join(" and ") || "no label";
    said.textContent =
      `Entropy ${entropy(logits).toFixed(3)} nats: its step raises ${raised(gradients.plain)}. ` +
      `Bound entropy ${entropy(bindLabels(logits, k)).toFixed(3)} nats: its step raises ${raised(gradients.bound)}.`;
  }
  show();
}
