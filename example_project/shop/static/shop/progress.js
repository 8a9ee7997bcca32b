// Updates the page of one job until the job has ended.  The page also works without this script.
"use strict";

const box = document.querySelector("[data-state-url]");
const ended = ["succeeded", "dead", "cancelled", "expired", "deleted", "not started", "gone"];

async function refresh() {
  const answer = await fetch(box.dataset.stateUrl);
  if (!answer.ok) return;
  const state = await answer.json();
  for (const element of box.querySelectorAll("[data-field]")) {
    const value = state[element.dataset.field];
    if (element.tagName === "PROGRESS") element.value = value;
    else element.textContent = value;
  }
  if (!ended.includes(state.state)) setTimeout(refresh, document.hidden ? 5000 : 500);
}

if (box) refresh();
