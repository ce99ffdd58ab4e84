"use strict";
// One point per run: its rate, and its response p99 on an axis of its own. Runs that are not a pass are marked.

const trend = document.getElementById("trend");

async function drawTrend() {
  if (!trend || !window.Plotly) return;
  const runs = (await fetch(trend.dataset.api).then((response) => response.json())).runs.reverse();
  const { colour, layout, config } = chartLook();
  const marks = { size: 8, symbol: runs.map((run) => (run.outcome === "pass" ? "circle" : run.outcome === "fail" ? "x" : "diamond-open")) };
  const x = runs.map((_, number) => number + 1);
  const line = (name, tone, y, more = {}) => ({ type: "scatter", mode: "lines+markers", name, x, y, text: runs.map((run) => run.name), hovertemplate: "%{text}: %{y}<extra></extra>", line: { color: colour(tone), width: 2 }, marker: marks, ...more });
  const traces = [
    line("rate, msg/s", "blue", runs.map((run) => run.rate)),
    line("response p99, ms", "purple", runs.map((run) => (run.p99_ns === null ? null : run.p99_ns / 1e6)), { yaxis: "y2" }),
  ];
  const yaxis2 = { ...layout.yaxis, overlaying: "y", side: "right", showgrid: false };
  const xaxis = { ...layout.xaxis, rangemode: "normal", title: { text: "runs, the newest on the right", standoff: 4 }, dtick: Math.ceil(runs.length / 10) };
  Plotly.react(trend, traces, { ...layout, xaxis, yaxis2, margin: { ...layout.margin, r: 56 } }, config);
}

document.addEventListener("themed", drawTrend);
drawTrend();
