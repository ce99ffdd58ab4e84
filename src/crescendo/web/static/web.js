"use strict";
// Sends forms as JSON to the API, shows what came of it beside the form, and switches the theme.

const csrf = () => document.querySelector('meta[name="csrf"]').content;

async function callApi(method, path, body) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf() };
  let response;
  try {
    response = await fetch(path, { method, headers, body: JSON.stringify(body ?? {}) });
  } catch {
    throw new Error("The server does not answer. Is crescendo web still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "/api/login") {
    location.assign("/login");
  }
  if (!response.ok) throw new Error(answer.error ?? `The server answered with ${response.status}.`);
  return answer;
}

function valuesOf(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled) continue;
    if (field.type === "checkbox") {
      values[field.name] ??= [];
      if (field.checked) values[field.name].push(field.value);
    } else if (field.dataset.type === "bool") values[field.name] = field.value === "true";
    else if (field.dataset.type === "number") values[field.name] = Number(field.value);
    else values[field.name] = field.value;
  }
  return values;
}

function showProblem(place, text) {
  const found = place.querySelector(".problem") ?? place.closest("article, section, .head")?.parentElement.querySelector(".problem");
  const box = found ?? document.querySelector(".problem") ?? addProblem(place);
  box.textContent = text;
  box.hidden = !text;
  if (text) box.scrollIntoView({ block: "nearest" });
}

function addProblem(place) {
  const box = Object.assign(document.createElement("p"), { className: "problem", hidden: true });
  box.setAttribute("role", "alert");
  place.append(box);
  return box;
}

async function submit(event) {
  const form = event.target.closest("form[data-api]");
  if (!form) return;
  event.preventDefault();
  const [method, path] = form.dataset.api.split(" ");
  const buttons = [...form.querySelectorAll("button")];
  for (const button of buttons) button.disabled = true;
  showProblem(form, "");
  try {
    const answer = await callApi(method, path, valuesOf(form));
    form.dispatchEvent(new CustomEvent("answered", { detail: answer, bubbles: true }));
    if (answer.location) location.assign(answer.location);
    else if ("reload" in form.dataset) location.reload();
    const said = form.querySelector(".said") ?? document.querySelector("#said");
    if (said && answer.message) said.textContent = answer.message;
  } catch (error) {
    showProblem(form, error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

// On a narrow screen the pages are a line that scrolls; this one is in sight.
const pages = document.querySelector(".top nav");
const present = pages?.querySelector("[aria-current]");
if (present) pages.scrollLeft = present.offsetLeft - pages.offsetLeft - (pages.clientWidth - present.clientWidth) / 2;

// A person may look at what they type.
for (const field of document.querySelectorAll('input[type="password"]')) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet reveal", textContent: "Show" });
  button.setAttribute("aria-label", `Show ${field.labels[0]?.firstElementChild?.textContent ?? "what was typed"}`);
  button.addEventListener("click", () => {
    field.type = field.type === "password" ? "text" : "password";
    button.textContent = field.type === "password" ? "Show" : "Hide";
  });
  field.after(button);
}

document.addEventListener("submit", submit);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  document.dispatchEvent(new Event("themed"));
});

// The colours of the page for a chart, and what all charts have in common.
function chartLook() {
  const style = getComputedStyle(document.documentElement);
  const colour = (tone) => style.getPropertyValue(`--${tone}`).trim();
  const axis = { gridcolor: colour("line"), linecolor: colour("line"), zerolinecolor: colour("line"), tickfont: { color: colour("soft") }, automargin: true };
  return {
    colour,
    layout: {
      font: { color: colour("text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 56, r: 12, t: 6, b: 38 },
      showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, dragmode: false,
      xaxis: { ...axis, rangemode: "tozero" }, yaxis: { ...axis, rangemode: "tozero" }, uirevision: "kept",
    },
    config: { displayModeBar: false, responsive: true },
  };
}
