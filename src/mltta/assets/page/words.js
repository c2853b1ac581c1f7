// The words that a search finds a label by: its own and its synonyms, so that "kitten" finds cats.
import { get } from "./api.js";

const synonyms = new Map(), words = new Map(), lists = new Set();
const singular = (word) => word.length > 3 && word.endsWith("s") ? word.slice(0, -1) : word;

function add(label, others) {
  const key = singular(label.trim().toLowerCase());
  synonyms.set(key, new Set([...(synonyms.get(key) || []), ...others]));
  words.clear();
}

export async function learn(list, language) {  // without it, a search finds labels by their names only
  const place = `${encodeURIComponent(list)}?language=${language}`;
  if (lists.has(place)) return;
  lists.add(place);
  try {
    for (const [label, others] of Object.entries((await get(`/v1/labels/${place}`)).synonyms)) add(label, others);
  } catch { lists.delete(place); }
}

export function learnTyped(text) {
  for (const [label, ...others] of text.split(/[\n,]/).map((line) => line.split("|"))) if (others.length) add(label, others);
}

export function means(label, word) {
  if (!words.has(label)) {
    const all = [label, ...(synonyms.get(singular(label.toLowerCase())) || [])].join(" ").toLowerCase();
    words.set(label, all.split(/[^\p{L}\p{N}]+/u).filter(Boolean));
  }
  return words.get(label).some((own) => own.startsWith(word) || singular(own) === singular(word));
}
