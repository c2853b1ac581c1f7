// Photo tiles with a label filter. Only tiles in view are in the document, so thousands of photos stay fast.
import { $, count, make } from "./elements.js";
import { thumb } from "./thumbs.js";
import { means } from "./words.js";

const GAP = 10, BEYOND = 300;
const fewChips = () => innerWidth < 832 ? 10 : 24;
const chosen = new Set(), tiles = new Map();
let photos = [], opened = () => {}, at = 0, across = 1, side = 160, everyChip = false;
export let shown = [];

const score = (photo) => {
  const own = (photo.result?.labels || []).filter((one) => chosen.size ? chosen.has(one.label) : photo.result.present.has(one.label));
  return Math.max(0, ...own.map((one) => one.score));
};
const BY = {
  order: (a, b) => a.order - b.order,
  name: (a, b) => a.name.localeCompare(b.name) || a.order - b.order,
  high: (a, b) => b.score - a.score || a.photo.order - b.photo.order,
  low: (a, b) => a.score - b.score || a.photo.order - b.photo.order,
};

export function filter() {
  const held = shown[at], asked = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const totals = labelCounts(photos);
  for (const label of chosen) if (!totals.has(label)) chosen.delete(label);
  shown = photos.filter((photo) => [...chosen].every((label) => photo.result?.present?.has(label)));
  for (const word of asked) {
    const hits = new Set([...totals.keys()].filter((label) => means(label, word)));
    shown = shown.filter((photo) => photo.name.toLowerCase().includes(word) || [...(photo.result?.present || [])].some((label) => hits.has(label)));
  }
  const how = $("sort").value;
  if (how === "high" || how === "low")
    shown = shown.map((photo) => ({ photo, score: score(photo) })).sort(BY[how]).map((one) => one.photo);
  else shown.sort(BY[how]);
  at = Math.max(0, shown.indexOf(held));
  $("count").textContent = shown.length === photos.length ? count(photos.length, "photo")
    : `${shown.length.toLocaleString("en")} of ${count(photos.length, "photo")}`;
  chips(totals, labelCounts(shown));
  draw(true);
}

function labelCounts(some) {
  const counts = new Map();
  for (const photo of some) for (const label of photo.result?.present || []) counts.set(label, (counts.get(label) || 0) + 1);
  return counts;
}

function chips(totals, left) {  // a count is the number of photos left if the label is selected too; labels without any are left out
  const known = [...totals.keys()].filter((label) => chosen.has(label) || left.has(label)).sort((a, b) => chosen.has(b) - chosen.has(a) || totals.get(b) - totals.get(a) || a.localeCompare(b));
  const some = everyChip ? known : known.slice(0, Math.max(fewChips(), chosen.size));
  const focused = document.activeElement?.closest("#chips button")?.dataset.label;
  $("chips").replaceChildren(...some.map((label) => {
    const number = left.get(label) || 0;
    const chip = make("button", { type: "button", "aria-pressed": chosen.has(label) }, label, make("span", { textContent: number }));
    chip.dataset.label = label;
    chip.onclick = () => { chosen.has(label) ? chosen.delete(label) : chosen.add(label); filter(); };
    return chip;
  }));
  if (known.length > fewChips()) $("chips").append(make("button", {
    type: "button", className: "quiet", textContent: everyChip ? "Fewer labels" : `All ${known.length} labels`,
    onclick: () => { everyChip = !everyChip; filter(); $("chips").lastChild.focus(); },
  }));
  if (focused !== undefined) [...$("chips").children].find((chip) => chip.dataset.label === focused)?.focus();
}

function measure() {
  const width = $("room").clientWidth;
  across = Math.max(2, Math.floor((width + GAP) / 200));
  side = Math.floor((width + GAP) / across) - GAP;
}

export function draw(anew = false) {
  if (!$("results").checkVisibility()) return;
  const focused = document.activeElement?.closest(".tile")?.photo;
  if (anew) measure();
  const step = side + GAP, top = $("room").getBoundingClientRect().top;
  $("room").style.height = `${Math.ceil(shown.length / across) * step}px`;
  const first = Math.max(0, Math.floor((-top - BEYOND) / step)) * across;
  const last = Math.min(shown.length, Math.ceil((innerHeight - top + BEYOND) / step) * across);
  const due = new Map();
  for (let place = first; place < last; place++) due.set(shown[place], place);
  if (shown.includes(focused)) due.set(focused, shown.indexOf(focused));  // keep the focused tile, or Tab would start from the top
  for (const [photo, tile] of tiles)
    if (!due.has(photo) || tile.result !== photo.result) { tile.remove(); tiles.delete(photo); }
  const entry = due.has(shown[at]) ? at : first;  // the first tile reached with Tab
  let before = null;
  for (const [photo, place] of due) {
    const tile = tiles.get(photo) || add(photo);
    if (tile.previousElementSibling !== before) before ? before.after(tile) : $("room").prepend(tile);  // screen readers follow this order
    before = tile;
    tile.tabIndex = place === entry ? 0 : -1;
    tile.style.cssText = `left:${(place % across) * step}px;top:${Math.floor(place / across) * step}px;width:${side}px;height:${side}px`;
  }
  $("room").querySelector(".none")?.remove();
  if (!shown.length) $("room").append(make("p", { className: "none", textContent: "No photos match." }));
  if (focused && document.activeElement === document.body) tiles.get(focused)?.focus({ preventScroll: true });
}

function add(photo) {
  const { result, name } = photo, short = name.split("/").pop();
  const tile = make("button", { type: "button", className: result?.error ? "tile bad" : result ? "tile" : "tile waits", title: name });
  const image = make("img", { alt: "" });
  const said = result?.error?.replace(`${name}: `, "") || [...(result?.present || [])].join(", ") || (result?.note || "");
  tile.append(image, make("span", { className: "file", textContent: short }), make("span", { className: "said", textContent: said }));
  tile.photo = photo;
  tile.result = result;
  tile.onfocus = () => { at = shown.indexOf(photo); };
  tile.onclick = () => { at = shown.indexOf(photo); draw(); if (!result?.error) opened(photo); };
  tiles.set(photo, tile);
  $("room").append(tile);
  if (!result?.error) thumb(photo, image, () => { image.remove(); tile.classList.add("unseen"); });
  return tile;
}

export function focusOn(place) {
  at = Math.max(0, Math.min(shown.length - 1, place));
  const step = side + GAP, y = $("room").getBoundingClientRect().top + Math.floor(at / across) * step;
  if (y < GAP || y + step > innerHeight) scroller().scrollBy(0, y < GAP ? y - GAP : y + step - innerHeight);
  draw();
  tiles.get(shown[at])?.focus({ preventScroll: true });
}

const scroller = () => getComputedStyle(document.querySelector("main")).overflowY === "auto" ? document.querySelector("main") : window;

export function neighbour(photo, by) {  // the next photo with a result
  for (let place = shown.indexOf(photo) + by; shown[place]; place += by)
    if (shown[place].result && !shown[place].result.error) return shown[place];
  return null;
}

export const focusPhoto = (photo) => focusOn(shown.indexOf(photo));

export function start(every, open) {
  photos = every;
  opened = open;
  $("search").oninput = filter;
  $("sort").onchange = filter;
  let due = false;
  const soon = () => { if (!due) { due = true; requestAnimationFrame(() => { due = false; draw(); }); } };
  addEventListener("scroll", soon, { capture: true, passive: true });
  new ResizeObserver(() => draw(true)).observe(document.querySelector("main"));
  $("room").addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, PageUp: -4 * across, PageDown: 4 * across,
      Home: -shown.length, End: shown.length }[event.key];
    if (by) { event.preventDefault(); focusOn(at + by); }
  });
}
