// The form: which labels, method, settings and model, as the server offers them.
import { get } from "./api.js";
import { $, count, make } from "./elements.js";

const OWN = "\n";  // no list of the server has this name
let methods = [];
export let limits = { labels: 2000, label_length: 200, images: 32, image_bytes: 2 ** 25, body_bytes: 2 ** 27 };

const option = (value, text, selected = false) => make("option", { value, textContent: text, selected });

export async function offer() {
  const [models, offered, labels] = await Promise.all(["models", "methods", "labels"].map((name) => get(`/v1/${name}`)));
  methods = offered.methods;
  limits = { ...limits, ...labels.limits };
  $("model").replaceChildren(...models.models.map((one) => option(one.name, one.name, one.default)));
  $("method").replaceChildren(...methods.map((one) => option(one.name, one.name, one.default)));
  const lists = labels.sets.map((one) => option(one.name, `${one.name} (${count(one.count, "label")})`, one.name === labels.default));
  $("list").replaceChildren(...lists, option(OWN, "my own labels"));
  showMethod();
  showLabels();
}

export const chosenMethod = () => methods.find((one) => one.name === $("method").value) || { settings: {} };

function showMethod() {
  const method = chosenMethod();
  const notes = [`${(method.summary || "").replace(/^./, (first) => first.toUpperCase())}.`];
  if (method.online) notes.push("It learns from the photos before, in their order.");
  if (method.where === false) notes.push("It cannot tell where a label is.");
  $("summary").textContent = notes.join(" ");
  $("options").replaceChildren(...Object.entries(method.settings || {}).flatMap(([name, allowed]) => setting(name, allowed)));
}

function setting(name, allowed) {
  const id = `setting-${name}`, said = make("label", { htmlFor: id, textContent: name.replaceAll("_", " ") });
  if (Array.isArray(allowed)) {
    const options = allowed.map((value) => option(JSON.stringify(value), String(value)));
    return [said, make("select", { id, name }, option("", "as usual"), ...options)];
  }
  const usual = `${allowed.default ?? "as usual"} (${allowed.least} to ${allowed.most})`;
  return [said, make("input", { id, name, type: "number", min: allowed.least, max: allowed.most, step: 1, placeholder: usual })];
}

function showLabels() {
  const own = $("list").value === OWN;
  $("own").hidden = !own;
  $("edit").hidden = own;
}

// Fields of a call; two calls with equal fields give equal answers.
export function current() {
  const settings = {};
  for (const input of $("options").querySelectorAll("[name]")) if (input.value) settings[input.name] = JSON.parse(input.value);
  const labels = $("list").value === OWN ? $("labels").value.trim() : $("list").value;
  return { labels, method: $("method").value, model: $("model").value, settings: JSON.stringify(settings) };
}

export function wrong() {  // what hinders a call, as a sentence
  if ($("list").value !== OWN) return "";
  const typed = $("labels").value.split(/[\n,]/).map((label) => label.trim()).filter(Boolean);
  if (!typed.length) return "There is no label yet. Type at least one.";
  if (typed.length > limits.labels) return `These are ${count(typed.length, "label")}. The server takes ${count(limits.labels, "label")} at most.`;
  const long = typed.find((label) => label.length > limits.label_length);
  return long ? `The label “${long.slice(0, 40)}…” is too long. Labels have ${limits.label_length} characters at most.` : "";
}

async function edit() {
  const { labels } = await get(`/v1/labels/${encodeURIComponent($("list").value)}`);
  $("labels").value = labels.join("\n");
  $("list").value = OWN;
  $("list").dispatchEvent(new Event("change", { bubbles: true }));
  $("labels").focus();
}

export function listen(failed) {
  $("method").addEventListener("change", showMethod);
  $("list").addEventListener("change", showLabels);
  $("edit").onclick = () => edit().catch(failed);
}
