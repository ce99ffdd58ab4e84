"use strict";
// Values of each series with its change points, and what a person says about a change.

const LATENCY_NS = /_p[\d.]+$/;

async function drawHistory() {
  if (!window.Plotly) return;
  const data = await fetch(`/api/history${location.search}`).then((response) => response.json());
  const { colour, layout, config } = chartLook();
  for (const place of document.querySelectorAll(".series .chart")) {
    const series = data.series[Number(place.closest(".series").dataset.series)];
    const metric = series.metrics.find((one) => one.metric === place.dataset.metric);
    const scale = LATENCY_NS.test(metric.metric) ? 1e6 : 1;
    const line = {
      type: "scatter", mode: "lines+markers", x: metric.positions.map((at) => at + 1), y: metric.values.map((value) => value / scale),
      text: metric.positions.map((at) => series.runs[at].name), hovertemplate: "%{text}: %{y}<extra></extra>",
      line: { color: colour("blue"), width: 2 }, marker: { size: 7 },
    };
    const shapes = metric.changes.map((change) => ({
      type: "line", xref: "x", yref: "paper", x0: change.position + 0.5, x1: change.position + 0.5, y0: 0, y1: 1,
      line: { color: colour(change.state === "dismissed" ? "muted" : change.worse ? "fail" : "pass"), width: 2, dash: "dash" },
    }));
    const xaxis = { ...layout.xaxis, rangemode: "normal", dtick: Math.ceil(series.runs.length / 12), title: { text: "runs, the newest on the right", standoff: 4 } };
    const yaxis = { ...layout.yaxis, title: { text: scale === 1 ? "msg/s" : "ms", standoff: 6 } };
    Plotly.react(place, [line], { ...layout, shapes, xaxis, yaxis, showlegend: false }, config);
  }
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form.review");
  if (!form) return;
  event.preventDefault();
  try {
    await callApi("POST", "/api/history/review", { ...valuesOf(form), state: event.submitter.value });
    location.reload();
  } catch (error) {
    showProblem(form, error.message);
  }
});
document.addEventListener("themed", drawHistory);
drawHistory();
