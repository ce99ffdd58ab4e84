"use strict";
// The run as it happens: one sample per second from the server, which the browser asks again by itself if it is lost.

const live = document.getElementById("live");
const job = live.dataset.job;
const at = (id) => document.getElementById(id);
const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const samples = [];
const MAX_SAMPLES = 7200;

function duration(ns) {
  if (ns === null || ns === undefined) return "–";
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  if (ns < 1e9) return `${Number((ns / 1e6).toPrecision(3))} ms`;
  return `${Number((ns / 1e9).toPrecision(3))} s`;
}

const time = (ns) => new Date(ns / 1e6).toLocaleTimeString();

// What happened during the run, at its time in the charts.
const marks = [];
const MARKED = { fault: "fail", cure: "pass", "rate change": "muted", lost: "fail", failed: "fail" };

function mark(entry) {
  const before = samples.at(-1);
  if (!before || before.elapsed_s === null) return;
  marks.push({ x: before.elapsed_s + (entry.at_ns - before.at_ns) / 1e9, tone: MARKED[entry.event] });
}

function addEvent(entry, text, trouble = false) {
  const item = document.createElement("li");
  const when = Object.assign(document.createElement("time"), { textContent: time(entry.at_ns) });
  item.append(when, ` ${text}`);
  if (trouble) item.className = "trouble";
  at("events").querySelector(".nothing")?.remove();
  at("events").prepend(item);
  while (at("events").children.length > 200) at("events").lastChild.remove();
}

function cells(...texts) {
  const row = document.createElement("tr");
  texts.forEach((text, number) => {
    const cell = document.createElement(number === 0 ? "th" : "td");
    cell.textContent = text ?? "–";
    if (number > 3) cell.className = "number";
    row.append(cell);
  });
  return row;
}

function showSample(sample) {
  samples.push(sample);
  if (samples.length > MAX_SAMPLES) samples.shift();
  const { sender, receiver } = sample;
  at("sent-rate").textContent = numbers.format(sender.rate);
  at("received-rate").textContent = numbers.format(receiver.rate);
  at("sent-count").textContent = `msg/s · ${numbers.format(sender.messages)} in all`;
  at("received-count").textContent = `msg/s · ${numbers.format(receiver.messages)} in all`;
  at("p99").textContent = duration(receiver.p99_ns);
  at("cpu").textContent = (sender.cpu + receiver.cpu).toFixed(2);
  const passed = sample.elapsed_s === null ? "" : ` · ${Math.max(0, sample.elapsed_s).toFixed(0)} s`;
  const planned = sample.planned_s === null || !passed ? "" : ` of ${sample.planned_s.toFixed(0)} s`;
  at("phase").textContent = `${sample.phase}${passed}${planned}`;
  if (sample.planned_s) at("progress").value = Math.min(1, Math.max(0, sample.elapsed_s ?? 0) / sample.planned_s);
  at("peers").replaceChildren(...sample.peers.map((peer) => {
    const row = cells(peer.id, peer.role, peer.host, peer.reason ? `${peer.state}: ${peer.reason}` : peer.state,
      peer.rate === null ? null : numbers.format(peer.rate), peer.messages === null ? null : numbers.format(peer.messages),
      duration(peer.p99_ns), peer.cpu === null ? null : `${(peer.cpu * 100).toFixed(0)} %`,
      peer.seen_s === null ? null : `${peer.seen_s.toFixed(1)} of ${sample.lease_s} s`);
    if (peer.state === "lost" || peer.state === "failed") row.className = "trouble";
    return row;
  }));
  showReadings(sample.peers);
}

// What the inspectors read, which is in the recording with every entity and metric.
function reading({ title, unit, value }) {
  const units = { bytes: () => `${numbers.format(value / 2 ** 20)} MiB`, cores: () => `${value.toFixed(2)} cores`, count: () => numbers.format(value) };
  return `${title} ${(units[unit] ?? units.count)()}`;
}

function showReadings(peers) {
  const inspectors = peers.filter((peer) => peer.looks !== null);
  at("inside").hidden = !inspectors.length;
  at("readings").replaceChildren(...inspectors.map((peer) => {
    const row = document.createElement("tr");
    const failed = peer.failed_looks ? `, ${numbers.format(peer.failed_looks)} failed` : "";
    const texts = [peer.id, `${numbers.format(peer.looks)}${failed}`, (peer.gauges ?? []).map(reading).join(" · ") || "–"];
    row.append(...texts.map((textContent, number) => Object.assign(document.createElement(number ? "td" : "th"), { textContent, className: number === 1 ? "number" : "" })));
    return row;
  }));
}

function draw() {
  if (!window.Plotly) return;
  const { colour, layout, config } = chartLook();
  const shown = samples.filter((sample) => sample.elapsed_s !== null && sample.elapsed_s >= 0);
  const x = shown.map((sample) => sample.elapsed_s);
  const line = (name, tone, y) => ({ type: "scatter", mode: "lines", name, x, y, line: { color: colour(tone), width: 2 } });
  // The whole time from the beginning, so that nothing moves while the run fills it.
  const planned = Math.max(shown.at(-1)?.planned_s ?? 0, x.at(-1) ?? 0, 10);
  const shapes = marks.map(({ x: when, tone }) => ({ type: "line", xref: "x", yref: "paper", x0: when, x1: when, y0: 0, y1: 1, line: { color: colour(tone), width: 1.5, dash: "dot" } }));
  const axes = { shapes, xaxis: { ...layout.xaxis, range: [0, planned], title: { text: "seconds", standoff: 4 } } };
  Plotly.react("rate-chart", [line("sent", "blue", shown.map((one) => one.sender.rate)), line("received", "orange", shown.map((one) => one.receiver.rate))], { ...layout, ...axes }, config);
  Plotly.react("delay-chart", [line("response p99, ms", "purple", shown.map((one) => (one.receiver.p99_ns === null ? null : one.receiver.p99_ns / 1e6)))], { ...layout, ...axes }, config);
}

function showSteps(steps) {
  for (const step of steps) {
    const button = at("steps").querySelector(`[data-step="${step.name}"]`);
    if (!button) continue;
    button.className = `step ${step.state}`;
    const passed = step.ended_ns ? ` ${((step.ended_ns - step.began_ns) / 1e9).toFixed(1)} s` : "";
    button.querySelector("small").textContent = `${step.state}${passed}`;
  }
}

// Another run of a campaign: its figures are its own.
function beginRun({ number, count, levels, left_s }) {
  samples.length = 0;
  marks.length = 0;
  at("progress").value = 0;
  const left = left_s >= 90 ? ` About ${Math.round(left_s / 60)} min left.` : "";
  if (at("run-of")) at("run-of").textContent = `Run ${number} of ${count}${levels ? `: ${levels}` : ""}.${left}`;
}

function take(entry) {
  if (entry.kind === "next") {
    beginRun(entry);
    return addEvent(entry, `run ${entry.number} of ${entry.count}${entry.levels ? `: ${entry.levels}` : ""}`);
  }
  if (entry.kind === "steps") return showSteps(entry.steps);
  if (entry.kind === "sample") showSample(entry);
  else if (entry.kind === "step") addEvent(entry, entry.text);
  else if (entry.kind === "warning") addEvent(entry, entry.text, true);
  else if (entry.kind === "event") {
    const detail = Object.entries(entry.detail).filter(([key]) => !key.endsWith("_ns")).map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
    if (MARKED[entry.event]) mark(entry);
    addEvent(entry, `${entry.event}${detail ? `: ${detail}` : ""}`.slice(0, 300), ["lost", "failed", "fault"].includes(entry.event));
  }
}

function showState(state) {
  const looks = { running: "live", done: "pass", failed: "fail", lost: "fail", cancelled: "invalid" };
  const badge = Object.assign(document.createElement("span"), { className: `badge ${looks[state] ?? "same"}`, textContent: state });
  at("state").replaceChildren(badge);
  live.dataset.state = state;
  if (at("rate-form")) at("rate-form").hidden = state !== "running";
  if (at("controls")) at("controls").hidden = !["running", "queued"].includes(state);
}

function showEnd(summary) {
  showState(summary.state);
  at("phase").textContent = "";
  if (summary.campaign && summary.state === "done") location.assign(`/campaigns/${summary.campaign}`);
  else if (summary.run && summary.state === "done") location.assign(`/runs/${summary.run}`);
  else {
    const kept = summary.campaign ? "Its runs are kept; continue it on its page under Campaigns." : "What it recorded is under Runs.";
    const reasons = { lost: `Its process ended without a result. ${kept}`, cancelled: "It was stopped." };
    at("trouble").textContent = summary.problem || reasons[summary.state] || "";
    at("trouble").hidden = !at("trouble").textContent;
  }
}

async function showLog() {
  const chosen = at("log-file").value;
  const query = chosen.startsWith("step ") ? `step=${encodeURIComponent(chosen.slice(5))}` : `file=${encodeURIComponent(chosen)}`;
  const answer = await fetch(`/api/jobs/${job}/log?${query}`).then((response) => response.json()).catch(() => null);
  if (!answer?.files) return;
  const known = [...at("log-file").options].map((option) => option.value);
  for (const name of answer.files.filter((one) => !known.includes(one))) at("log-file").append(new Option(name, name));
  const pre = at("log"), follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 8;
  pre.textContent = answer.text || "Nothing was printed yet.";
  if (follows) pre.scrollTop = pre.scrollHeight;
}

let drawing = 0;

function connect() {
  const source = new EventSource(`/api/jobs/${job}/live`);
  source.addEventListener("live", ({ data }) => {
    take(JSON.parse(data));
    cancelAnimationFrame(drawing);
    drawing = requestAnimationFrame(draw);
  });
  source.addEventListener("state", ({ data }) => showState(JSON.parse(data).state));
  source.addEventListener("end", ({ data }) => { source.close(); clearInterval(logging); showLog(); showEnd(JSON.parse(data)); });
  source.addEventListener("open", () => { at("said").textContent = ""; });
  source.addEventListener("error", () => {
    at("said").textContent = "The server does not answer; the run goes on. Trying again …";
    if (source.readyState !== EventSource.CLOSED) return; // the browser tries again by itself, and continues where it was
    setTimeout(() => {
      samples.length = 0;
      marks.length = 0;
      at("events").replaceChildren();
      connect();
    }, 2000);
  });
}

at("steps").addEventListener("click", (event) => {
  const step = event.target.closest("[data-step]")?.dataset.step;
  if (!step) return;
  at("log-file").value = `step ${step}`;
  showLog();
  at("log").scrollIntoView({ block: "nearest" });
});
at("log-file").addEventListener("change", showLog);

const logging = setInterval(showLog, 2000);
document.addEventListener("themed", draw);
connect();
showState(live.dataset.state);
showLog();
draw();
