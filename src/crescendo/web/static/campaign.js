"use strict";
// The form of a campaign: how many runs it has, before it is started.

const campaign = document.getElementById("campaign");
const planned = document.getElementById("planned");

document.getElementById("plan")?.addEventListener("click", async () => {
  showProblem(campaign, "");
  planned.textContent = "";
  try {
    const answer = await callApi("POST", "/api/campaigns/plan", valuesOf(campaign));
    planned.textContent = [answer.about, ...answer.aliases.map((line) => `Cannot be separated: ${line}.`)].join(" ");
  } catch (error) {
    showProblem(campaign, error.message);
  }
});

// The name follows the experiment until somebody writes one.
let named = false;
campaign?.elements.name.addEventListener("input", () => { named = true; });
campaign?.elements.experiment.addEventListener("change", () => {
  if (!named) campaign.elements.name.value = campaign.elements.experiment.value;
});
