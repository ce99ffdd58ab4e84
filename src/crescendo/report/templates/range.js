// Re-scopes the page of a run to a range of time: tables and distributions are computed again from the counts of the
// page, charts over time zoom, rows outside the range disappear, and what cannot follow says so.

const withheldBelow = 10; // samples beyond a percentile
const percentiles = [["p50", 0.5], ["p90", 0.9], ["p95", 0.95], ["p99", 0.99], ["p99.9", 0.999], ["p99.99", 0.9999]];
const rangeForm = document.getElementById("range");
const untouched = new Map(); // tbody -> its rows for the whole run
let counts = null;
let selected = null; // [from, to] in seconds, or null for the whole run

const whole = () => figures.rate?.layout.xaxis.range ?? figures.latency?.layout.xaxis.range;
const short = (value) => String(Number(value.toPrecision(3)));
const grouped = (value) => Math.round(value).toLocaleString("en-US");
function formatNs(ns) {
  if (ns === null) return "too few";
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (Math.abs(ns) >= 0.9995 * scale) return Math.abs(ns) < 1e3 * scale ? `${short(ns / scale)} ${unit}` : `${grouped(ns / scale)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}
const formatRate = (value) => value >= 100 ? grouped(value) : (Math.round(value * 10) / 10).toLocaleString("en-US");
function formatReading(bytes, value) {
  const sign = value < 0 ? "−" : "", size = Math.abs(value);
  if (bytes) {
    const [unit, scale] = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]].find(([, each]) => size >= each) ?? ["B", 1];
    return sign + (scale === 1 ? `${Math.round(size)} B` : `${short(size / scale)} ${unit}`);
  }
  return sign + (size >= 1000 || Number.isInteger(size) ? grouped(size) : short(size));
}

// The bins whose middle lies in the range: each second belongs to one side of an edge.
function binsIn({ first, width, bins }, [from, to]) {
  const low = Math.max(Math.ceil((from - first) / width - 0.5), 0), high = Math.min(Math.ceil((to - first) / width - 0.5), bins);
  return { low, high, seconds: Math.max(high - low, 0) * width };
}

function distribution(family, series, range) {
  const { low, high } = binsIn(family, range), found = new Float64Array(family.ceilings_ns.length);
  let bin = 0, bucket = 0, total = 0, sum = 0, min = Infinity, max = -Infinity;
  for (let i = 0; i < series.count.length; i += 1) {
    bin += series.bin[i];
    bucket += series.bucket[i];
    if (bin < low || bin >= high) continue;
    found[bucket] += series.count[i];
    total += series.count[i];
  }
  series.used.forEach((at, i) => {
    if (at < low || at >= high) return;
    sum += series.sum_ns[i];
    min = Math.min(min, series.min_ns[i]);
    max = Math.max(max, series.max_ns[i]);
  });
  return { found, total, sum, min, max, ceilings: family.ceilings_ns };
}

function atRank({ found, ceilings, max }, rank) {
  let below = 0;
  for (let i = 0; i < found.length; i += 1) {
    below += found[i];
    if (below >= rank) return Math.min(ceilings[i], max);
  }
  return max;
}

// 0.999 · 1000 is a little more than 999 in floats, and the rank must not be 1000.
const rankOf = (total, share) => Math.max(Math.ceil(Number((share * total).toFixed(6))), 1);
function percentile(counted, share) {
  const rank = rankOf(counted.total, share);
  return counted.total - rank >= withheldBelow ? atRank(counted, rank) : null;
}

function spectrumOf(counted) {
  if (counted.total < 2 * withheldBelow) return { x: [], y: [], customdata: [] };
  const furthest = Math.log10(counted.total / withheldBelow), points = 160;
  const x = Array.from({ length: points }, (_, i) => furthest * i / (points - 1));
  const shares = x.map((nines) => 1 - 10 ** -nines);
  const y = shares.map((share) => atRank(counted, Math.min(rankOf(counted.total, share), counted.total - withheldBelow)) / 1e9);
  return { x, y: y.map((value) => value > 0 ? value : null), customdata: shares.map((share) => share * 100) };
}

// The bars of the whole run stay where they are, so that a range can be compared with it.
function sharesOf(counted, edges) {
  const y = edges.map(() => 0), step = Math.log(edges[1] / edges[0]);
  counted.found.forEach((count, i) => {
    const at = counted.ceilings[i] / 1e9;
    if (count && at > 0) y[Math.min(Math.max(Math.floor(Math.log(at / edges[0]) / step + 1e-9), 0), edges.length - 1)] += count / counted.total;
  });
  return y;
}

function redrawDistributions() {
  for (const name of ["spectrum", "histogram"]) {
    if (!figures[name]) continue;
    delete rescoped[name];
    if (selected) {
      const figure = rescoped[name] = structuredClone(figures[name]);
      for (const trace of figure.data) {
        const series = counts.latency.series?.[trace.name];
        if (!series) continue;
        const counted = distribution(counts.latency, series, selected);
        if (name === "spectrum") Object.assign(trace, spectrumOf(counted));
        else trace.y = counted.total ? sharesOf(counted, trace.x) : trace.x.map(() => 0);
      }
    }
    plots.filter((plot) => plot.dataset.chart === name && plot.layout).forEach(drawOne);
  }
}

function fillRow(row, texts) {
  row.replaceChildren(...texts.map((text, i) => {
    const cell = document.createElement(i ? "td" : "th");
    if (!i) cell.scope = "row";
    cell.textContent = text;
    if (row.dataset.names <= i) cell.className = "number";
    return cell;
  }));
}

function latencyRows(body) {
  body.replaceChildren(...Object.entries(counts.latency.series ?? {}).map(([kind, series]) => {
    const counted = distribution(counts.latency, series, selected), row = document.createElement("tr");
    row.dataset.names = 2;
    const numbers = counted.total
      ? [formatNs(counted.min), ...percentiles.map(([, share]) => formatNs(percentile(counted, share))), formatNs(counted.max), formatNs(counted.sum / counted.total)]
      : Array(percentiles.length + 3).fill("–");
    const negative = counted.found.reduce((sum, count, i) => sum + (counted.ceilings[i] < 0 ? count : 0), 0);
    fillRow(row, ["selected range", kind, grouped(counted.total), ...numbers, grouped(negative)]);
    return row;
  }));
}

function spanRows(body) {
  const all = Object.fromEntries(Object.entries(counts.spans.series ?? {}).map(([name, series]) => [name, distribution(counts.spans, series, selected)]));
  const rows = [...body.rows], first = rows[0]?.dataset.key;
  for (const row of rows) {
    const name = row.dataset.key, counted = all[name];
    row.hidden = !name; // a row of one outcome
    if (!counted) continue;
    const request = all[name.split("/")[0]] ?? all[first], share = request?.sum ? counted.sum / request.sum : null;
    const tail = ["p50", "p90", "p99", "p99.9"].map((each) => formatNs(percentile(counted, Object.fromEntries(percentiles)[each])));
    row.dataset.names = 2;
    fillRow(row, [name, "all", grouped(counted.total), share === null ? "–" : `${(share * 100).toFixed(1)} %`,
      ...(counted.total ? [formatNs(counted.sum / counted.total), ...tail, formatNs(counted.max)] : Array(6).fill("–"))]);
  }
}

function readingRows(body) {
  for (const row of body.rows) {
    const series = counts.readings[row.dataset.key];
    if (!series) continue;
    const inside = series.t.flatMap((t, i) => t >= selected[0] && t < selected[1] ? [i] : []);
    const bytes = row.dataset.unit === "bytes", show = (value) => formatReading(bytes, value);
    const many = inside.reduce((sum, i) => sum + series.count[i], 0);
    const mean = inside.reduce((sum, i) => sum + series.mean[i] * series.count[i], 0) / many;
    const values = many
      ? [show(series.mean[inside[0]]), show(series.mean[inside.at(-1)]), show(mean), show(inside.reduce((most, i) => Math.max(most, series.peak[i]), -Infinity))]
      : Array(4).fill("–");
    // Trends are judged over the measure phase, not over a few readings.
    ["–", ...values, "–", "–"].forEach((text, i) => { row.cells[i + 2].textContent = text; });
  }
}

function timedRows(body) {
  for (const row of body.rows) row.hidden = !(Number(row.dataset.from) < selected[1] && Number(row.dataset.to) >= selected[0]);
}

const refill = { latency: latencyRows, spans: spanRows, readings: readingRows, times: timedRows };

function describeRange() {
  const rates = counts.rates, { low, high, seconds } = binsIn(rates, selected);
  const rate = (role) => rates[role] && seconds ? formatRate(rates[role].slice(low, high).reduce((a, b) => a + b, 0) / seconds) : "–";
  const parts = [`sent ${rate("sender")} msg/s`, `received ${rate("receiver")} msg/s`];
  const kind = ["response", "transfer"].find((each) => counts.latency.series?.[each]);
  if (kind) {
    const counted = distribution(counts.latency, counts.latency.series[kind], selected);
    if (counted.total) parts.push(`${kind} p50 ${formatNs(percentile(counted, 0.5))}, p99 ${formatNs(percentile(counted, 0.99))}, max ${formatNs(counted.max)}`);
  }
  return parts.join(" · ");
}

// Edges on whole bins, so that every number on the page is about the same messages.
function snapped([from, to]) {
  const [start, end] = whole(), width = Math.max(counts.rates.width, counts.latency.width ?? 1, counts.spans.width ?? 1);
  const low = Math.max(Math.round((from - start) / width) * width + start, start);
  const high = Math.min(Math.max(Math.round((to - start) / width) * width + start, low + width), end);
  return low <= start && high >= end ? null : [low, high];
}

function select(range, zoom) {
  const wanted = range && counts ? snapped(range) : null;
  if (String(wanted) === String(selected)) return;
  selected = wanted;
  const [from, to] = selected ?? whole();
  rangeForm.elements.from.value = from;
  rangeForm.elements.to.value = to;
  root.toggleAttribute("data-ranged", selected !== null);
  document.getElementById("range-text").textContent = selected ? describeRange() : "The whole run.";
  document.getElementById("range-reset").disabled = !selected;
  for (const body of document.querySelectorAll("table[data-scope] > tbody")) {
    if (!untouched.has(body)) untouched.set(body, body.innerHTML);
    body.innerHTML = untouched.get(body);
    if (selected) refill[body.parentElement.dataset.scope](body);
  }
  redrawDistributions();
  if (zoom) linked.filter((plot) => plot.layout).slice(0, 1).forEach((plot) => Plotly.relayout(plot, { "xaxis.range": [from, to] }));
}

async function offerRange() {
  const packed = document.getElementById("counts");
  if (!rangeForm || !packed || !whole()) return;
  counts = JSON.parse(await unpacked(packed.textContent));
  for (const each of document.querySelectorAll("main .scroll, main .tiles")) {
    const fixed = !each.querySelector("table[data-scope]") && !each.closest("#environment, #repeat");
    each.classList.toggle("whole-run", fixed);
  }
  for (const plot of plots) plot.closest("figure").classList.toggle("whole-run", !linked.includes(plot) && !["spectrum", "histogram"].includes(plot.dataset.chart));
  const typed = () => select([Number(rangeForm.elements.from.value), Number(rangeForm.elements.to.value)], true);
  rangeForm.addEventListener("change", typed);
  rangeForm.addEventListener("submit", (event) => { event.preventDefault(); typed(); });
  document.getElementById("range-reset").addEventListener("click", () => select(null, true));
  addEventListener("timerange", ({ detail }) => select(detail, false));
  [rangeForm.elements.from.value, rangeForm.elements.to.value] = whole();
  rangeForm.hidden = false;
  root.dataset.rangeReady = "yes";
}

offerRange();
