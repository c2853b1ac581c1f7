// Sends photos in small groups, two requests at a time, and passes each result on as it arrives.
import { Refused, tag } from "./api.js";
import { count } from "./elements.js";
import { limits } from "./settings.js";

const GROUP = 4, CALLS = 2, KEPT = 40;
//: statuses that do not depend on the photo, so that the others would fail too
const HOPELESS = new Set([0, 400, 401, 403, 404, 422]);

// An online method learns from the photos of one request, so it gets as many as the server accepts.
export function groups(photos, online) {
  const most = online ? limits.images : Math.min(GROUP, limits.images), room = 0.9 * limits.body_bytes;
  const made = [];
  let bytes = Infinity;
  for (const photo of photos) {
    if (bytes + photo.file.size > room || made.at(-1).length >= most) { made.push([]); bytes = 0; }
    made.at(-1).push(photo);
    bytes += photo.file.size;
  }
  return made;
}

export async function tagAll(photos, settings, method, { signal, arrived, waiting, told }) {
  const left = groups(photos, method.online), stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  const call = async (group) => {
    const sent = [];
    for (const photo of group) {
      const error = await unfit(photo);
      if (error) arrived(photo, { error });
      else sent.push(photo);
    }
    if (!sent.length) return;
    try {
      const answer = await tag(sent, settings, { where: method.where !== false, captions: true, signal: both, waiting });
      told(answer.notes);
      sent.forEach((photo, place) => arrived(photo, kept(answer.images[place])));
    } catch (error) {
      if (!(error instanceof Refused) || HOPELESS.has(error.status)) throw error;
      if (sent.length > 1) left.unshift(...sent.map((photo) => [photo]));  // find out which one failed
      else arrived(sent[0], { error: `${sent[0].name}: ${error.message}` });
    }
  };
  const lane = async () => { while (left.length) await call(left.shift()); };
  try {
    await Promise.all(Array.from({ length: CALLS }, lane));
  } catch (error) {
    stop.abort();
    if (!signal.aborted) throw error;
  }
}

async function unfit({ file, name }) {
  if (file.size > limits.image_bytes)
    return `${name}: the file has ${count(Math.ceil(file.size / 2 ** 20), "MB", "MB")}. The limit is ${Math.floor(limits.image_bytes / 2 ** 20)} MB.`;
  try {
    await file.slice(0, 1).arrayBuffer();
    return "";
  } catch {
    return `${name}: the file was changed or removed after you added it. Add it again.`;
  }
}

// Thousands of results stay in memory, so heat maps become bytes and only the highest scores are kept.
function kept(answer) {
  if (answer.error) return { error: answer.error };
  const present = new Set(answer.present), labels = answer.labels.filter((one, place) => place < KEPT || present.has(one.label));
  const where = new Map(Object.entries(answer.where || {}).map(([label, heat]) => [label, { ...heat, heat: Uint8Array.from(heat.heat) }]));
  return { present, keywords: answer.keywords, labels, note: answer.note, where, captions: new Map(Object.entries(answer.captions || {})), ms: answer.ms, all: answer.labels.length };
}
