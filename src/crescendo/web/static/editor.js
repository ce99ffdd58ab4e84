"use strict";
// One experiment as a form or as YAML. The server turns one into the other and checks both.

const editor = document.getElementById("editor");
const form = document.getElementById("as-form");
const yaml = document.getElementById("yaml");
const tabs = { form: document.getElementById("tab-form"), yaml: document.getElementById("tab-yaml") };
const panels = { form, yaml: document.getElementById("as-yaml") };
const trouble = document.getElementById("trouble");
const said = document.getElementById("said");
let shown = form ? "form" : "yaml";

// Groups of senders and receivers beside the first one: as many as a person adds.
const groups = () => [...form.querySelectorAll("[data-group]")];
const fieldsOf = (group) => [...group.querySelectorAll("[data-field]")];
const groupValues = (group) => Object.fromEntries(fieldsOf(group).map((field) => [field.dataset.field, field.value]));

function addGroup(values) {
  const group = document.getElementById("group").content.firstElementChild.cloneNode(true);
  for (const field of fieldsOf(group)) if (values) field.value = values[field.dataset.field];
  document.getElementById("groups").append(group);
  follow();
  return group;
}

const body = () => (shown === "form" ? { form: { ...valuesOf(form), groups: groups().map(groupValues) } } : { text: yaml.value });

function report(problem, message = "") {
  if (trouble) {
    trouble.textContent = problem;
    trouble.hidden = !problem;
    if (problem) trouble.scrollIntoView({ block: "nearest" });
  }
  if (said) said.textContent = message;
}

async function attempt(work) {
  report("");
  try {
    return await work();
  } catch (error) {
    report(error.message);
    return null;
  }
}

const check = () => attempt(async () => {
  const answer = await callApi("POST", "/api/experiments/check", body());
  report("", `Valid. ${answer.about}`);
  return answer;
});

const save = () => attempt(() => {
  const name = editor.dataset.name;
  return callApi(name ? "PUT" : "POST", name ? `/api/experiments/${name}` : "/api/experiments", body());
});

function fill(values) {
  for (const field of form.elements) {
    if (!field.name) continue;
    if (field.type === "checkbox") field.checked = values[field.name].includes(field.value);
    else field.value = values[field.name];
  }
  document.getElementById("groups").replaceChildren();
  values.groups.forEach(addGroup);
  follow();
}

async function show(wanted) {
  if (wanted === shown) return;
  // The other view shows what this one means; without a valid experiment there is nothing to turn into it.
  const answer = await check();
  if (!answer) return;
  if (wanted === "yaml") yaml.value = answer.text;
  else if (answer.form) fill(answer.form);
  else return report("This experiment says more than the form can show; edit it here.");
  shown = wanted;
  for (const [name, tab] of Object.entries(tabs)) {
    tab.setAttribute("aria-selected", String(name === shown));
    tab.tabIndex = name === shown ? 0 : -1; // one stop for Tab; the arrows change between the two
    panels[name].hidden = name !== shown;
  }
}

// Which fields and protocols make sense depends on the system.
function follow() {
  const system = form.elements.system;
  for (const field of form.querySelectorAll("[data-only]")) field.hidden = !field.dataset.only.split(" ").includes(system.value);
  for (const field of form.querySelectorAll("[data-not]")) field.hidden = field.dataset.not.split(" ").includes(system.value);
  // One group needs no name.
  document.getElementById("first-group").hidden = !groups().length && !form.elements.group.value;
  const spoken = system.selectedOptions[0].dataset.protocols.split(" ");
  for (const protocol of [form.elements.protocol, ...form.querySelectorAll('[data-field="protocol"]')]) {
    for (const option of protocol.options) option.disabled = !spoken.includes(option.value);
    if (!spoken.includes(protocol.value)) protocol.value = spoken[0];
  }
}

function followSystem() {
  const kind = form.elements.system.value;
  for (const box of form.querySelectorAll('[name="inspect"]')) box.checked = box.value === kind || (box.value === "process" && !["url", "topology"].includes(kind));
  follow();
}

// -- completion ------------------------------------------------------------------------------------------------

const list = document.getElementById("completion");
let schema = null;
let chosen = 0;

const resolve = (node) => (node?.$ref ? schema.$defs[node.$ref.split("/").pop()] : node);

function propertiesAt(path) {
  let nodes = [resolve(schema)];
  for (const key of path) {
    nodes = nodes.flatMap((node) => expand(resolve(node?.properties?.[key])));
  }
  return Object.assign({}, ...nodes.flatMap(expand).map((node) => node.properties ?? {}));
}

function expand(node) {
  const found = resolve(node);
  if (!found) return [];
  const inner = [...(found.anyOf ?? []), ...(found.oneOf ?? []), ...(found.items ? [found.items] : [])].flatMap(expand);
  return found.properties ? [found, ...inner] : inner;
}

function placeOfCaret() {
  const before = yaml.value.slice(0, yaml.selectionStart).split("\n");
  const line = before.pop();
  const match = /^(\s*(?:- )?)([A-Za-z0-9_.]*)$/.exec(line);
  if (!match) return null;
  let depth = match[1].length;
  const path = [];
  for (const above of before.reverse()) {
    const parent = /^(\s*(?:- )?)([A-Za-z0-9_.-]+):\s*(#.*)?$/.exec(above);
    if (parent && parent[1].length < depth) {
      path.unshift(parent[2]);
      depth = parent[1].length;
    }
  }
  return { path, typed: match[2] };
}

async function complete() {
  schema ??= await fetch("/api/schema").then((response) => response.json());
  const place = placeOfCaret();
  const known = place ? Object.entries(propertiesAt(place.path)).filter(([key]) => key.startsWith(place.typed)) : [];
  list.replaceChildren(...known.map(([key, about], number) => {
    const item = document.createElement("li");
    item.setAttribute("role", "option");
    item.dataset.key = key;
    const name = Object.assign(document.createElement("strong"), { textContent: key });
    const text = Object.assign(document.createElement("small"), { textContent: about.description ?? "" });
    item.append(name, text);
    item.addEventListener("mousedown", (event) => { event.preventDefault(); chosen = number; accept(); });
    return item;
  }));
  list.hidden = !known.length;
  choose(0);
}

function choose(number) {
  const items = [...list.children];
  chosen = items.length ? (number + items.length) % items.length : 0;
  items.forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
  items[chosen]?.scrollIntoView({ block: "nearest" });
}

function accept() {
  const key = list.children[chosen]?.dataset.key;
  const place = placeOfCaret();
  list.hidden = true;
  if (!key || !place) return;
  const at = yaml.selectionStart;
  yaml.setRangeText(`${key}: `, at - place.typed.length, at, "end");
}

yaml.addEventListener("keydown", (event) => {
  if (event.key === " " && event.ctrlKey) {
    event.preventDefault();
    complete();
  } else if (!list.hidden && ["ArrowDown", "ArrowUp", "Enter", "Tab", "Escape"].includes(event.key)) {
    event.preventDefault();
    if (event.key === "Escape") list.hidden = true;
    else if (event.key.startsWith("Arrow")) choose(chosen + (event.key === "ArrowDown" ? 1 : -1));
    else accept();
  }
});
yaml.addEventListener("input", () => { if (!list.hidden) complete(); });
yaml.addEventListener("blur", () => { list.hidden = true; });

// -- buttons -----------------------------------------------------------------------------------------------------

tabs.form.addEventListener("click", () => show("form"));
tabs.yaml.addEventListener("click", () => show("yaml"));
for (const tab of Object.values(tabs)) {
  tab.addEventListener("keydown", ({ key }) => {
    const other = tab === tabs.form ? tabs.yaml : tabs.form;
    if ((key === "ArrowLeft" || key === "ArrowRight") && !other.disabled) other.focus();
  });
}
form?.addEventListener("submit", (event) => { event.preventDefault(); check(); }); // Enter in a field
form?.elements.system.addEventListener("change", followSystem);
document.getElementById("add-group")?.addEventListener("click", () => {
  const group = addGroup();
  group.querySelector('[data-field="protocol"]').value = form.elements.protocol.value;
  group.querySelector("[data-field]").focus();
});
form?.addEventListener("click", (event) => {
  if (!event.target.closest("[data-remove]")) return;
  event.target.closest("[data-group]").remove();
  follow();
});
if (form) follow();
document.getElementById("check")?.addEventListener("click", check);
document.getElementById("save")?.addEventListener("click", async () => {
  const saved = await save();
  if (saved && saved.name !== editor.dataset.name) location.assign(saved.location);
  else if (saved) report("", "Saved.");
});
document.getElementById("save-run")?.addEventListener("click", async () => {
  const saved = await save();
  if (!saved) return;
  editor.dataset.name = saved.name;
  const started = await attempt(() => callApi("POST", "/api/jobs", { experiment: saved.name, cluster: document.getElementById("where")?.value ?? "" }));
  if (started) location.assign(started.location);
});
