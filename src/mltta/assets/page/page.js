// The page: photos are added, sent to the server, and shown with their labels.
import { save } from "./api.js";
import * as detail from "./detail.js";
import { $, count, trouble } from "./elements.js";
import { chosen, dropped, pasted } from "./files.js";
import * as gallery from "./gallery.js";
import { tagAll } from "./run.js";
import { chosenMethod, current, listen, offer, wrong } from "./settings.js";
import { forget } from "./thumbs.js";
import { learnTyped } from "./words.js";

const photos = [], seen = new Set();
let running = null, order = 0, ready = false;
const failed = (error) => trouble(error.message || String(error));

function add({ photos: some, leftOut }) {
  let twice = 0;
  for (const { file, name } of some) {
    const key = `${name}\n${file.size}\n${file.lastModified}`;
    if (seen.has(key)) { twice++; continue; }
    seen.add(key);
    photos.push({ file, name, order: order++, result: null, asked: null });
  }
  const notes = [];
  if (leftOut) notes.push(`Skipped ${count(leftOut, "file")} that ${leftOut === 1 ? "is not an image" : "are not images"}.`);
  if (twice) notes.push(`${count(twice, "photo was", "photos were")} already added.`);
  if (some.length === 0 && !leftOut) notes.push("No photos found.");
  $("left-out").textContent = notes.join(" ");
  show();
}

function show() {
  $("empty").hidden = photos.length > 0;
  $("results").hidden = photos.length === 0;
  gallery.filter();
  button();
}

const same = (photo, settings) => photo.asked && JSON.stringify(photo.asked) === JSON.stringify(settings);

// New photos, and those tagged with other settings; if there are none, all photos.
function due(settings) {
  const some = photos.filter((photo) => !same(photo, settings));
  return some.length ? some : [...photos];
}

function button() {
  const some = due(current()), again = photos.length > 0 && some.every((photo) => photo.result);
  $("run").disabled = !ready || !photos.length;
  $("run").setAttribute("aria-disabled", running !== null);  // not disabled, so that it keeps the focus
  $("run").textContent = !photos.length ? "Tag photos" : `Tag ${count(some.length, "photo")}${again ? " again" : ""}`;
  $("download").disabled = running !== null || !photos.some((photo) => photo.result);
  $("clear").hidden = !photos.length || running !== null;
  $("stop").hidden = running === null;
}

async function run() {
  const hindrance = wrong();
  trouble(hindrance);
  if (hindrance || running || !photos.length || !ready) return;
  const settings = current(), method = chosenMethod(), some = due(settings), began = performance.now();
  learnTyped(settings.labels);
  running = new AbortController();
  $("bar").hidden = false;
  $("bar").max = some.length;
  $("bar").value = 0;
  $("progress").textContent = `Tagging ${count(some.length, "photo")}…`;
  button();
  if ($("results").getBoundingClientRect().top > innerHeight / 2) $("results").scrollIntoView();  // on a phone the photos are below
  let done = 0, said = 0, timer = null;
  const arrived = (photo, result) => {
    Object.assign(photo, { result, asked: settings });
    $("bar").value = ++done;
    detail.again(photo);
    timer ??= setTimeout(() => { timer = null; gallery.filter(); }, 200);
    const now = performance.now();
    if (now - said < 1000) return;
    said = now;
    $("progress").textContent = `${done.toLocaleString("en")} of ${count(some.length, "photo")}, ${left((some.length - done) * (now - began) / done)} left`;
  };
  const waiting = () => { $("progress").textContent = "The server is busy. Trying again…"; };
  const told = (notes) => { $("notes").textContent = notes.map((note) => `${note.replace(/^./, (first) => first.toUpperCase())}.`).join(" "); };
  try {
    await tagAll(some, settings, method, { signal: running.signal, arrived, waiting, told });
    const bad = some.filter((photo) => photo.result?.error).length, seconds = (performance.now() - began) / 1000;
    $("progress").textContent = `${running.signal.aborted ? "Stopped. " : ""}Tagged ${count(done, "photo")} in ${seconds.toFixed(1)} s.`
      + (bad ? ` ${count(bad, "file")} could not be read.` : "");
  } catch (error) {
    $("progress").textContent = "";
    failed(error);
  }
  clearTimeout(timer);
  running = null;
  if (document.activeElement === $("stop")) $("run").focus();
  $("bar").hidden = true;
  gallery.filter();
  button();
}

const left = (ms) => ms < 90_000 ? `about ${Math.ceil(ms / 1000)} s` : `about ${Math.ceil(ms / 60_000)} min`;

// An entry of a downloaded file: the labels present, as mltta tag writes them.
const entry = ({ name, result }) => result.error ? { image: name, error: result.error }
  : { image: name, present: [...result.present], keywords: result.keywords, labels: result.labels.filter((one) => result.present.has(one.label)) };

function download() {
  const asked = $("format").value, wide = asked === "wide", answered = gallery.shown.filter((photo) => photo.result);
  trouble(answered.length ? "" : "None of the photos shown is tagged. Clear the search or the filter.");
  if (answered.length) save(wide ? "csv" : asked, wide, answered.map(entry)).catch(failed);
}

function clear() {
  photos.length = 0;
  seen.clear();
  forget();
  $("search").value = $("progress").textContent = $("notes").textContent = $("left-out").textContent = "";
  show();
  $("files").focus();
}

for (const id of ["files", "folder"]) $(id).onchange = () => add(chosen($(id)));
addEventListener("paste", (event) => { const found = pasted(event.clipboardData); if (found.photos.length) { event.preventDefault(); add(found); } });
const carries = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
let over;
addEventListener("dragover", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  document.body.classList.add("over");
  clearTimeout(over);
  over = setTimeout(() => document.body.classList.remove("over"), 300);
});
addEventListener("drop", (event) => { if (carries(event)) { event.preventDefault(); dropped(event.dataTransfer).then(add).catch(failed); } });
$("settings").onsubmit = (event) => { event.preventDefault(); run(); };
$("settings").addEventListener("input", button);
$("settings").addEventListener("change", button);
$("stop").onclick = () => running?.abort();
$("download").onclick = download;
$("clear").onclick = clear;
$("dismiss").onclick = () => trouble("");
addEventListener("keydown", (event) => {
  if (event.key === "/" && !$("results").hidden && !event.target.closest("input, textarea, select, dialog")) { event.preventDefault(); $("search").focus(); }
});
listen(failed);
detail.start(gallery.focusPhoto);
gallery.start(photos, detail.open);
offer().then(() => { ready = true; button(); }, failed);
