// One photo, enlarged: its labels and heat maps; under Advanced all scores and those of plain CLIP.
import { tag } from "./api.js";
import { $, make } from "./elements.js";
import { neighbour } from "./gallery.js";

const LINES = 10, SURE_OF_CLIP = 3;
const plain = new WeakMap();
let photo = null, label = null, address = "", asked = null;

export function open(next) {
  if (!next.result) return;
  photo = next;
  URL.revokeObjectURL(address);
  address = URL.createObjectURL(photo.file);
  $("frame").hidden = false;
  $("unseen").hidden = true;
  $("large").onerror = () => {
    $("frame").hidden = true;
    point(null);
    $("unseen").hidden = false;
    $("unseen").textContent = "Your browser cannot display this file format. The labels are not affected.";
  };
  $("large").onload = () => {
    $("frame").style.setProperty("--ratio", $("large").naturalWidth / $("large").naturalHeight);
    $("frame").style.setProperty("--wide", $("large").naturalWidth);
  };
  $("large").src = address;
  $("large").alt = photo.name;
  $("name").textContent = photo.name;
  const { method, model, settings } = photo.asked, set = settings === "{}" ? "" : ` (${settings.replace(/[{}"]/g, "").replaceAll(":", " ").replaceAll(",", ", ")})`;
  $("took").textContent = `${method}${set} with ${model}: ${(photo.result.ms / 1000).toFixed(2)} s`;
  $("legend").firstChild.textContent = method;
  $("before").disabled = !neighbour(photo, -1);
  $("after").disabled = !neighbour(photo, 1);
  if (!$("photo").open) $("photo").showModal();
  draw();
  point(photo.result.where.has(label) ? label : null);
  compare();
}

async function compare() {  // tag the same photo with plain CLIP
  asked?.abort();
  $("photo").classList.toggle("advanced", $("more").open);
  $("failed").textContent = "";
  if (!$("more").open) return;
  asked = new AbortController();
  const own = photo, { method, labels, model } = photo.asked, key = `${labels}\n${model}`;
  $("legend").hidden = method === "clip";
  if (method === "clip" || plain.get(own)?.key === key) return;
  try {
    const answer = (await tag([own], { labels, model, method: "clip", settings: "{}" }, { signal: asked.signal })).images[0];
    if (answer.error) throw new Error(answer.error);
    plain.set(own, { key, scores: new Map(answer.labels.map((one) => [one.label, one.score])) });
    if (photo === own && $("photo").open) draw();
  } catch (error) {
    if (photo === own && error.name !== "AbortError") $("failed").textContent = `Plain CLIP failed: ${error.message}`;
  }
}

// The labels present; under Advanced also the next highest scores, and the highest of plain CLIP.
function rows() {
  const { present, labels } = photo.result, { method, model } = photo.asked;
  const held = plain.get(photo), clip = method !== "clip" && held?.key === `${photo.asked.labels}\n${model}` ? held.scores : null;
  const others = labels.filter((one) => !present.has(one.label)), here = labels.filter((one) => present.has(one.label));
  if (!$("more").open) return here.map((one) => ({ ...one, present: true }));
  const shown = [...here, ...others.slice(0, Math.max(2, LINES - here.length))];
  const names = new Set(shown.map((one) => one.label)), known = new Map(labels.map((one) => [one.label, one.score]));
  const surest = clip ? [...clip.keys()].slice(0, SURE_OF_CLIP).filter((name) => !names.has(name)) : [];
  const least = labels.at(-1)?.score ?? 0;
  return [...shown, ...surest.map((name) => ({ label: name, score: known.get(name) ?? least, below: !known.has(name) }))]
    .map((one) => ({ ...one, present: present.has(one.label), clip: clip?.get(one.label) }));
}

function draw() {
  const focused = document.activeElement?.closest("#bars button")?.dataset.label;
  $("bars").replaceChildren(...rows().map(line));
  point(label);
  if (focused !== undefined) [...$("bars").querySelectorAll("button")].find((one) => one.dataset.label === focused)?.focus();
}

function line({ label: name, score, present, clip, below }) {
  const number = make("small", { textContent: `${below ? "<" : ""}${score.toFixed(2)}` });
  const button = make("button", { type: "button" }, make("b", { textContent: name }), number, length("own", score));
  if (clip !== undefined) button.append(make("small", { className: "beside", textContent: clip.toFixed(2) }), length("plain", clip));
  button.setAttribute("aria-label", `${name}: ${number.textContent}, ${present ? "present" : "not present"}`
    + (clip === undefined ? "" : `; plain CLIP ${clip.toFixed(2)}`));
  button.dataset.label = name;
  if (photo.result.where.has(name)) {
    button.setAttribute("aria-pressed", "false");
    button.onclick = () => point(label === name ? null : name);
  } else button.setAttribute("aria-disabled", "true");
  return make("li", { className: present ? "" : "absent" }, button);
}

function length(kind, score) {
  const bar = make("i", { className: kind });
  bar.style.width = `${Math.max(0.5, 100 * Math.min(1, score))}%`;
  return bar;
}

// Shows the heat map of a label: red where it was found, dark elsewhere.
function point(name) {
  label = photo.result.where.has(name) ? name : null;
  for (const button of $("bars").querySelectorAll("[aria-pressed]")) button.setAttribute("aria-pressed", button.dataset.label === label);
  const canvas = $("heat");
  $("bars").querySelector(".captions")?.remove();
  $("bars").querySelector("[aria-pressed=true]")?.after(...similar(photo.result.captions.get(label) || []));
  canvas.hidden = label === null;
  $("hint").textContent = !photo.result.present.size ? photo.result.note : $("frame").hidden ? ""
    : label !== null ? `Red: where “${label}” was found. Dark: the rest of the photo.`
      : photo.result.where.size ? "Select a label to see where it was found." : "This method has no heat maps.";
  if (label === null) return;
  const { rows: height, columns: width, heat } = photo.result.where.get(label);
  canvas.width = width;
  canvas.height = height;
  canvas.setAttribute("aria-label", `Heat map: where ${label} was found`);
  const context = canvas.getContext("2d"), pixels = context.createImageData(width, height);
  const most = Math.max(1, ...heat);  // scaled so that the highest value of each label is equally red
  heat.forEach((own, place) => {
    const level = 255 * (own / most) ** 0.7;
    pixels.data.set(level > 127 ? [230, 70, 40, (level - 127) * 1.3] : [0, 0, 0, (127 - level) * 1.4], 4 * place);
  });
  context.putImageData(pixels, 0, 0);
}

function similar(captions) {  // they describe other pictures, and must not be taken for a description of this one
  const lines = captions.map((one) => make("li", {}, `“${one.text}” `, make("small", { textContent: one.similarity.toFixed(2), title: "similarity to the photo" })));
  return lines.length ? [make("div", { className: "captions" }, make("p", { textContent: "Captions of similar pictures" }), make("ul", {}, ...lines))] : [];
}

function move(by) {
  const next = neighbour(photo, by);
  if (next) open(next);
}

function choose(by) {  // up and down select the labels with a heat map
  const buttons = [...$("bars").querySelectorAll("[aria-pressed]")];
  if (!buttons.length) return;
  const held = buttons.findIndex((one) => one.dataset.label === label);
  const next = held < 0 ? (by > 0 ? 0 : buttons.length - 1) : (held + by + buttons.length) % buttons.length;
  point(buttons[next].dataset.label);
  buttons[next].focus();
}

export const again = (own) => { if ($("photo").open && photo === own && own.result && !own.result.error) open(own); };

export function start(closed) {
  $("before").onclick = () => move(-1);
  $("after").onclick = () => move(1);
  $("close").onclick = () => $("photo").close();
  $("photo").onclick = (event) => { if (event.target === $("photo")) $("photo").close(); };
  $("photo").onclose = () => { asked?.abort(); URL.revokeObjectURL(address); $("large").onerror = null; $("large").removeAttribute("src"); closed(photo); };
  $("more").ontoggle = () => { if (photo) { draw(); compare(); } };
  $("photo").addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key], pick = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (turn || pick) event.preventDefault();
    if (turn) move(turn);
    if (pick) choose(pick);
  });
}
