// The form: labels, and under Advanced the method, its settings and the model.
import { get } from "./api.js";
import { $, count, make } from "./elements.js";
import { learn } from "./words.js";

const OWN = "\n";  // never the name of a list on the server
const TITLES = { everyday: "Everyday things", coco: "COCO", voc: "PASCAL VOC", nuswide: "NUS-WIDE" };
let methods = [];
export let limits = { labels: 2000, label_length: 200, images: 32, image_bytes: 2 ** 25, body_bytes: 2 ** 27 };

const option = (value, text, selected = false) => make("option", { value, textContent: text, selected });

export async function offer() {
  const [models, offered, labels] = await Promise.all(["models", "methods", "labels"].map((name) => get(`/v1/${name}`)));
  methods = offered.methods;
  limits = { ...limits, ...labels.limits };
  $("model").replaceChildren(...models.models.map((one) => option(one.name, one.name, one.default)));
  $("method").replaceChildren(...methods.map((one) => option(one.name, one.name, one.default)));
  const lists = labels.sets.map((one) => option(one.name, `${TITLES[one.name] || one.name} (${count(one.count, "label")})`, one.name === labels.default));
  $("list").replaceChildren(...lists, option(OWN, "My own labels"));
  $("language").replaceChildren(...Object.entries(labels.languages).map(([code, name]) => option(code, name, code === "en")));
  showMethod();
  showLabels();
  learn("everyday", "en");
}

export const chosenMethod = () => methods.find((one) => one.name === $("method").value) || { settings: {} };

function showMethod() {
  const method = chosenMethod();
  const notes = [`${(method.summary || "").replace(/^./, (first) => first.toUpperCase())}.`];
  if (method.online) notes.push("Results depend on the order of the photos.");
  if (method.where === false) notes.push("It has no heat maps.");
  $("summary").textContent = notes.join(" ");
  $("options").replaceChildren(...Object.entries(method.settings || {}).flatMap(([name, allowed]) => setting(name, allowed)));
}

function setting(name, allowed) {
  const id = `setting-${name}`, said = make("label", { htmlFor: id, textContent: name.replaceAll("_", " ") });
  if (Array.isArray(allowed)) {
    const options = allowed.map((value) => option(JSON.stringify(value), String(value)));
    return [said, make("select", { id, name }, option("", "default"), ...options)];
  }
  const usual = `${allowed.default ?? "default"} (${allowed.least} to ${allowed.most})`;
  return [said, make("input", { id, name, type: "number", min: allowed.least, max: allowed.most, step: 1, placeholder: usual })];
}

function showLabels() {
  const own = $("list").value === OWN;
  if (!own) learn($("list").value, $("language").value);
  $("own").hidden = !own;
  $("edit").hidden = own;
}

// The fields of a request; equal fields give equal results.
export function current() {
  const settings = {};
  for (const input of $("options").querySelectorAll("[name]")) if (input.value) settings[input.name] = JSON.parse(input.value);
  const labels = $("list").value === OWN ? $("labels").value.trim() : $("list").value;
  const language = $("language").value === "en" ? {} : { language: $("language").value };
  return { ...language, labels, method: $("method").value, model: $("model").value, settings: JSON.stringify(settings) };
}

export function wrong() {  // why a request cannot be sent, as a sentence
  if ($("list").value !== OWN) return "";
  const typed = $("labels").value.split(/[\n,，、]/).map((label) => label.trim()).filter(Boolean);
  if (!typed.length) return "Type at least one label.";
  if (typed.length > limits.labels) return `The list has ${count(typed.length, "label")}. The limit is ${limits.labels.toLocaleString("en")}.`;
  const long = typed.find((label) => label.length > limits.label_length);
  return long ? `The label “${long.slice(0, 40)}…” is too long. The limit is ${limits.label_length} characters.` : "";
}

async function edit() {
  const { labels } = await get(`/v1/labels/${encodeURIComponent($("list").value)}?language=${$("language").value}`);
  $("labels").value = labels.join("\n");
  $("list").value = OWN;
  $("list").dispatchEvent(new Event("change", { bubbles: true }));
  $("labels").focus();
}

export function listen(failed) {
  $("method").addEventListener("change", showMethod);
  $("list").addEventListener("change", showLabels);
  $("language").addEventListener("change", showLabels);
  $("edit").onclick = () => edit().catch(failed);
}
