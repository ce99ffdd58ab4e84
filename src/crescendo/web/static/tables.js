"use strict";
// Sends a statement, and shows its rows as text.

const sql = document.getElementById("sql");

function row(kind, values) {
  const line = document.createElement("tr");
  line.append(...values.map((value) => Object.assign(document.createElement(kind), { textContent: value === null ? "–" : String(typeof value === "object" ? JSON.stringify(value) : value) })));
  return line;
}

sql?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = sql.querySelector("button"), said = sql.querySelector(".said");
  button.disabled = true;
  showProblem(sql, "");
  said.textContent = "Asking …";
  try {
    const answer = await callApi("POST", `/api/runs/${sql.dataset.run}/sql`, valuesOf(sql));
    const table = Object.assign(document.createElement("table"), { className: "dense" });
    const head = document.createElement("thead"), body = document.createElement("tbody");
    head.append(row("th", answer.columns));
    body.append(...answer.rows.map((values) => row("td", values)));
    table.append(head, body);
    document.getElementById("answer").replaceChildren(table);
    said.textContent = answer.more ? `The first ${answer.rows.length} rows.` : `${answer.rows.length} rows.`;
  } catch (error) {
    showProblem(sql, error.message);
    said.textContent = "";
  } finally {
    button.disabled = false;
  }
});
