"use strict";
// The form of the log analyzer: shows the plot or the text, and offers it for download.

const analyze = document.getElementById("analyze");

analyze.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = analyze.querySelector("button"), said = analyze.querySelector(".said"), place = document.getElementById("result");
  const values = valuesOf(analyze);
  values.types = values.types.split(/\s+/).filter(Boolean);
  button.disabled = true;
  showProblem(analyze, "");
  said.textContent = "Analysing …";
  try {
    const answer = await callApi("POST", `/api/runs/${analyze.dataset.run}/log-analysis`, values);
    const download = Object.assign(document.createElement("a"), { className: "button", textContent: "Download", href: `${answer.result}?download=true` });
    const shown = answer.text
      ? Object.assign(document.createElement("pre"), { textContent: answer.text, tabIndex: 0 })
      : Object.assign(document.createElement("img"), { src: answer.result, alt: `Plot of ${values.types.join(", ")}` });
    place.replaceChildren(...(answer.result.endsWith(".eps") ? [download] : [shown, download]));
    said.textContent = "";
  } catch (error) {
    showProblem(analyze, error.message);
    said.textContent = "";
  } finally {
    button.disabled = false;
  }
});
