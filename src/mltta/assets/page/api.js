// Calls to the server: they send the token, retry if the server is busy, and turn errors into sentences.
import { $ } from "./elements.js";

const TRIES = 40, LONGEST_WAIT = 30;

export class Refused extends Error {  // with the server's message
  constructor(sentence, status) { super(sentence); this.status = status; }
}

const wait = (seconds, signal) => new Promise((done, stop) => {
  const timer = setTimeout(done, 1000 * seconds);
  signal?.addEventListener("abort", () => { clearTimeout(timer); stop(signal.reason); }, { once: true });
});

let asking = null;
function askToken() {  // several calls may be refused at once: ask only once
  asking ??= new Promise((done) => {
    $("token").value = "";
    $("ask").oncancel = (event) => event.preventDefault();
    $("token-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem("token", $("token").value.trim());
      $("token").value = "";
      $("ask").close();
      asking = null;
      done();
    };
    $("ask").showModal();
  });
  return asking;
}

async function sentenceOf(answer) {
  try {
    const { error } = await answer.json();
    if (typeof error === "string" && error) return error;
  } catch { /* not JSON */ }
  return `The server responded with status ${answer.status}.`;
}

async function ask(path, options, waiting) {
  for (let tried = 1; ; tried++) {
    const token = sessionStorage.getItem("token");
    const headers = { ...options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    let answer;
    try {
      answer = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      if (tried >= 6) throw new Refused("The server does not respond. Is mltta serve still running?", 0);
      await wait(Math.min(2 ** (tried - 1) / 2, 8), options.signal);
      continue;
    }
    if (answer.ok) return answer;
    if (answer.status === 401) {
      if (token === sessionStorage.getItem("token")) await askToken();
    } else if ((answer.status === 429 || answer.status === 503) && tried < TRIES) {
      waiting?.();
      const seconds = Number(answer.headers.get("Retry-After")) || 1;
      await wait(Math.min(seconds, LONGEST_WAIT) * (1 + Math.random() / 4), options.signal);
    } else throw new Refused(await sentenceOf(answer), answer.status);
  }
}

export const get = async (path) => (await ask(path, {})).json();

export async function tag(photos, settings, { where = false, captions = false, signal, waiting } = {}) {
  const form = new FormData();
  for (const photo of photos) form.append("images", photo.file, photo.name);
  const fields = { ...settings, where: String(where), captions: String(captions), all: "true" };
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  const answer = await (await ask("/v1/tag", { method: "POST", body: form, signal }, waiting)).json();
  if (answer.images?.length !== photos.length) throw new Refused("The server's response does not match the photos sent.", 0);
  return answer;
}

export async function save(format, wide, images) {
  const body = JSON.stringify({ format, wide, images });
  const answer = await ask("/v1/export", { method: "POST", body, headers: { "Content-Type": "application/json" } });
  const named = /filename="?([^";]+)/.exec(answer.headers.get("Content-Disposition") || "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = named ? named[1] : `tags.${format === "xmp" ? "zip" : format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
