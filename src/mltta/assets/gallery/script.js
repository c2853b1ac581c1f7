"use strict";
// Only tiles in view are in the document, so a gallery of thousands of photos opens quickly.
const $ = (id) => document.getElementById(id);
const read = (kind) => [...document.querySelectorAll(`script.${kind}`)];
const LABELS = JSON.parse($("names").textContent);
const CHUNK = +$("names").dataset.chunk;
const SYNONYMS = JSON.parse($("synonyms").textContent);
const rows = read("rows").flatMap((part) => JSON.parse(part.textContent));
const thumbParts = read("thumbs"), thumbCache = new Map();
rows.forEach((row, place) => {
  row.place = place;
  row.has = new Set(row.labels.map((own) => own[0]));
  row.file = row.name.toLowerCase();
});

function folder() {  // the one that holds all photos, seen from where this page is
  const paths = rows.filter((row) => !row.error).map((row) => new URL(row.url, location).pathname.split("/").slice(0, -1));
  const first = paths[0] || [];
  while (paths.some((path) => first.some((part, place) => part !== path[place]))) first.pop();
  return decodeURIComponent(first.at(-1) || "");
}
try { document.title = document.querySelector("h1").textContent = folder() || document.title; } catch { /* a name that is not UTF-8 */ }

function thumb(row) {  // the thumbnails of a chunk are split when the first one comes into view
  if (row.thumb) return row.thumb;
  const part = Math.floor(row.place / CHUNK);
  if (!thumbCache.has(part)) {
    if (thumbCache.size > 20) thumbCache.delete(thumbCache.keys().next().value);
    thumbCache.set(part, thumbParts[part].textContent.trim().split("\n"));
  }
  const own = thumbCache.get(part)[row.place % CHUNK];
  return own && own !== "-" ? "data:image/webp;base64," + own : "";
}

const chosen = new Set();
let shown = rows, at = 0;
const scoreOf = (row) => Math.max(0, ...row.labels.filter((own) => !chosen.size || chosen.has(own[0])).map((own) => own[1]));

const singular = (word) => word.length > 3 && word.endsWith("s") ? word.slice(0, -1) : word;
const means = (label, word) => wordsOf.get(label).some((own) => own.startsWith(word) || singular(own) === singular(word));

function filter() {
  const asked = $("search").value.toLowerCase().split(/\s+/).filter(Boolean).map((word) => [word, new Set(known.filter((label) => means(label, word)))]);
  shown = rows.filter((row) => [...chosen].every((label) => row.has.has(label))
    && asked.every(([word, labels]) => row.file.includes(word) || row.labels.some((own) => labels.has(own[0]))));
  const how = $("sort").value;
  if (how === "name") shown.sort((a, b) => a.name.localeCompare(b.name));
  if (how === "high") shown.sort((a, b) => scoreOf(b) - scoreOf(a) || a.place - b.place);
  if (how === "low") shown.sort((a, b) => scoreOf(a) - scoreOf(b) || a.place - b.place);
  at = 0;
  $("count").textContent = `${shown.length < rows.length ? `${shown.length.toLocaleString("en")} of ` : ""}${rows.length.toLocaleString("en")} ${rows.length === 1 ? "photo" : "photos"}`;
  $("all").hidden = shown.length === rows.length && !chosen.size;
  listLabels();
  $("grid").scrollTop = 0;
  draw(true);
}

const totals = new Map();
for (const row of rows) for (const label of row.has) totals.set(label, (totals.get(label) || 0) + 1);
const known = [...totals.keys()].sort((a, b) => totals.get(b) - totals.get(a) || LABELS[a].localeCompare(LABELS[b]));
// Of a label and its synonyms: a search for "kitten" finds cats.
const wordsOf = new Map(known.map((label) => [label, `${LABELS[label]} ${SYNONYMS[label] || ""}`.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean)]));
const chips = new Map();

function listLabels() {  // a count is the number of photos left if the label is selected too; labels without any are hidden
  const left = new Map();
  for (const row of shown) for (const label of row.has) left.set(label, (left.get(label) || 0) + 1);
  for (const [label, chip] of chips) {
    const count = left.get(label) || 0;
    chip.lastChild.textContent = count.toLocaleString("en");
    chip.hidden = !count && !chosen.has(label);
    chip.setAttribute("aria-pressed", chosen.has(label));
  }
}

for (const label of known) {
  const chip = document.createElement("button");
  chip.append(LABELS[label], document.createElement("span"));
  chip.onclick = () => { chosen.has(label) ? chosen.delete(label) : chosen.add(label); filter(); };
  chips.set(label, chip);
  $("labels").append(chip);
}

const GAP = 8, tiles = new Map();
let across = 1, side = 160;

function measure() {
  const width = $("grid").clientWidth - GAP;
  across = Math.max(2, Math.floor(width / 190));
  side = Math.floor(width / across) - GAP;
}

function draw(anew) {
  if (anew) { for (const tile of tiles.values()) tile.remove(); tiles.clear(); measure(); }
  const grid = $("grid"), step = side + GAP, lines = Math.ceil(shown.length / across);
  $("room").style.height = `${Math.max(lines * step + GAP, grid.clientHeight - 1)}px`;
  const first = Math.max(0, Math.floor(grid.scrollTop / step) - 2) * across;
  const last = Math.min(shown.length, (Math.ceil((grid.scrollTop + grid.clientHeight) / step) + 2) * across);
  for (const [place, tile] of tiles) if (place < first || place >= last) { tile.remove(); tiles.delete(place); }
  for (let place = first; place < last; place++) if (!tiles.has(place)) tiles.set(place, add(place, step));
  let empty = $("room").querySelector(".none");
  if (!shown.length && !empty) { empty = document.createElement("p"); empty.className = "none"; empty.textContent = "No photos match."; $("room").append(empty); }
  if (shown.length && empty) empty.remove();
}

function add(place, step) {
  const row = shown[place], tile = document.createElement("button"), words = document.createElement("span");
  tile.className = row.error ? "tile bad" : row.note ? "tile none-shown" : "tile";
  tile.tabIndex = place === at ? 0 : -1;
  tile.style.cssText = `left:${GAP + (place % across) * step}px;top:${GAP + Math.floor(place / across) * step}px;width:${side}px;height:${side}px`;
  words.textContent = row.error || row.labels.map((own) => LABELS[own[0]]).join(", ") || row.note;
  tile.title = row.name;
  if (!row.error) { const image = document.createElement("img"); image.alt = row.name; image.src = thumb(row); tile.append(image); }
  tile.append(words);
  tile.onclick = () => { at = place; if (!row.error) open(); };
  tile.dataset.place = place;
  $("room").append(tile);
  return tile;
}

function focus(place) {
  at = Math.max(0, Math.min(shown.length - 1, place));
  const grid = $("grid"), step = side + GAP, top = Math.floor(at / across) * step;
  if (top < grid.scrollTop) grid.scrollTop = top;
  if (top + step > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + step + GAP - grid.clientHeight;
  draw(false);
  for (const [own, tile] of tiles) tile.tabIndex = own === at ? 0 : -1;
  tiles.get(at)?.focus();
}

let heatOf = null, missing = "";
function hint() {
  const row = shown[at];
  const about = row.note || (heatOf !== null ? `Red: where “${LABELS[heatOf]}” was found. Dark: the rest of the photo.` : row.heat ? "Select a label to see where it was found." : "");
  $("hint").textContent = [about, missing].filter(Boolean).join(" ");
}

function open() {
  const row = shown[at];
  if (!$("photo").open) $("photo").showModal();
  $("name").textContent = row.name;
  missing = "";
  $("large").onload = () => { for (const [name, size] of [["--wide", "naturalWidth"], ["--high", "naturalHeight"]]) $("frame").style.setProperty(name, $("large")[size]); };
  $("large").onerror = () => {
    $("large").onerror = null;
    $("large").src = thumb(row);
    missing = "This is the thumbnail. The original was moved, or the browser cannot show its format.";
    hint();
  };
  $("large").src = row.url || thumb(row);
  $("large").alt = row.name;
  $("open").href = row.url || "#";
  $("bars").replaceChildren(...row.labels.map((own) => bar(row, own)));
  showHeat(null);
}

function bar(row, [label, score]) {
  const line = document.createElement("li"), button = document.createElement("button"), number = document.createElement("small"), length = document.createElement("i");
  number.textContent = score.toFixed(2);
  length.style.width = `${Math.max(1, 100 * score)}%`;
  button.append(LABELS[label], number, length);
  if (row.heat && row.heat[label]) {
    button.dataset.heat = label;
    button.setAttribute("aria-pressed", "false");
    button.onclick = () => showHeat(heatOf === label ? null : label);
  }
  line.append(button);
  return line;
}

function showHeat(label) {
  heatOf = label;
  for (const button of $("bars").querySelectorAll("[data-heat]")) button.setAttribute("aria-pressed", +button.dataset.heat === label);
  const canvas = $("heat");
  canvas.style.display = label === null ? "none" : "block";
  hint();
  if (label === null) return;
  const levels = Uint8Array.from(atob(shown[at].heat[label]), (one) => one.charCodeAt(0)), side = Math.sqrt(levels.length);
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d"), pixels = context.createImageData(side, side);
  levels.forEach((level, place) => pixels.data.set(level > 127 ? [230, 70, 40, (level - 127) * 1.3] : [0, 0, 0, (127 - level) * 1.4], 4 * place));
  context.putImageData(pixels, 0, 0);
}

function step(by) { const next = at + by; if (next >= 0 && next < shown.length) { focus(next); if (shown[at].error) step(by); else open(); } }
$("before").onclick = () => step(-1);
$("after").onclick = () => step(1);
$("close").onclick = () => $("photo").close();
$("photo").onclick = (event) => { if (event.target === $("photo")) $("photo").close(); };
$("photo").onclose = () => tiles.get(at)?.focus();
$("panel").onclick = () => $("panel").setAttribute("aria-expanded", $("labels").classList.toggle("shown"));
$("grid").onclick = () => { if ($("labels").classList.contains("shown")) $("panel").click(); };
$("search").oninput = filter;
$("all").onclick = () => { chosen.clear(); $("search").value = ""; filter(); $("search").focus(); };
$("sort").onchange = filter;
$("grid").onscroll = () => requestAnimationFrame(() => draw(false));
let timer;
addEventListener("resize", () => { clearTimeout(timer); timer = setTimeout(() => draw(true), 100); });
addEventListener("keydown", (event) => {
  const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if ($("photo").open) { if (move) { event.preventDefault(); step(move); } return; }
  if (event.target.matches("input, select")) { if (event.key === "Escape") event.target.blur(); return; }
  if (event.key === "/") { event.preventDefault(); $("search").focus(); return; }
  const by = move || { ArrowUp: -across, ArrowDown: across, PageUp: -across * 4, PageDown: across * 4, Home: -shown.length, End: shown.length }[event.key];
  if (by && !event.target.closest("nav")) { event.preventDefault(); focus(at + by); }
});
filter();
