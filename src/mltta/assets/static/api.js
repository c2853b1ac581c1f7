// Calls to mltta in a worker of this page. It takes the place of the server's api.js; nothing is sent anywhere.
import { $ } from "./elements.js";

export class Refused extends Error {
  constructor(sentence, status) { super(sentence); this.status = status; }
}

const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
const open = new Map();
let calls = 0;
worker.onmessage = ({ data: { id, answer, failed, status } }) => {
  if (status) { $("run").textContent = status; return; }
  const { done, stop } = open.get(id);
  open.delete(id);
  if (failed || answer.error) stop(new Refused(failed || answer.error, failed ? 0 : 422));
  else done(answer);
};
worker.onerror = (event) => { for (const { stop } of open.values()) stop(new Refused(`The model cannot be loaded: ${event.message}`, 0)); };

const ask = (path, fields = {}, names = [], files = []) => new Promise((done, stop) => {
  open.set(++calls, { done, stop });
  worker.postMessage({ id: calls, path, fields, names, files }, files.map((file) => file.buffer));
});

export const get = (path) => {
  const { pathname, searchParams } = new URL(path, "http://page");
  return ask(decodeURIComponent(pathname.replace("/v1/", "")), Object.fromEntries(searchParams));
};

export async function tag(photos, settings, { where = false, captions = false, signal } = {}) {
  const files = await Promise.all(photos.map(async ({ file }) => new Uint8Array(await file.arrayBuffer())));
  signal?.throwIfAborted();
  const fields = { ...settings, settings: JSON.parse(settings.settings), where, captions, all: true };
  return ask("tag", fields, photos.map((photo) => photo.name), files);
}

export async function save(format, wide, images) {
  const { content, kind, name } = await ask("export", { format, wide, images });
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

$("privacy").textContent = "Photos stay on this device: the model runs in your browser.";
