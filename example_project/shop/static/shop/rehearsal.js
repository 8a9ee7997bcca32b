// Updates the lists of the rehearsal.  The page also works without this script.
"use strict";

const lists = document.querySelector("[data-lists-url]");

async function look() {
  const answer = await fetch(lists.dataset.listsUrl);
  if (answer.ok) {
    const counts = await answer.json();
    for (const cell of lists.querySelectorAll("[data-list]")) cell.textContent = counts[cell.dataset.list];
  }
  setTimeout(look, Number(lists.dataset.every));
}

if (lists) look();
