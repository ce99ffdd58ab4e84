"use strict";
// Response percentiles of the compared runs, one line each.

const compared = document.getElementById("compared");
const TONES = ["blue", "orange", "green", "purple", "muted"];

async function drawCompared() {
  if (!compared || !window.Plotly) return;
  const data = await fetch(compared.dataset.api).then((response) => response.json());
  const rows = data.metrics.filter((row) => row.metric.startsWith("response_p"));
  const { colour, layout, config } = chartLook();
  const traces = data.runs.map((run, number) => ({
    type: "scatter", mode: "lines+markers", name: run.name, x: rows.map((row) => row.metric.replace("response_", "")),
    y: rows.map((row) => (row.values[number] === null ? null : row.values[number] / 1e6)),
    line: { color: colour(TONES[number]), width: 2 }, marker: { size: 7 },
  }));
  const yaxis = { ...layout.yaxis, title: { text: "response, ms", standoff: 8 } };
  Plotly.react("compare-chart", traces, { ...layout, yaxis, xaxis: { ...layout.xaxis, type: "category" } }, config);
}

document.addEventListener("themed", drawCompared);
drawCompared();
