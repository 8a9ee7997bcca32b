// Keyboard shortcuts, and the box that lists them.  Every page also works without this script.
"use strict";

(() => {
  // A key that goes somewhere follows "g" within this time (ms).
  const PATIENCE = 1500;
  // In these, a key is text or chooses something.
  const TYPING = "input, textarea, select, [contenteditable]:not([contenteditable=false]), [role=textbox], [role=combobox]";
  // A browser in which somebody turned the shortcuts off has this in its storage.
  const OFF = "django_jobs.shortcuts_off";
  const box = () => document.getElementById("jobs-keys");
  let went = 0;

  // A browser may refuse its storage; the shortcuts then stay on.
  function isOff() {
    try { return localStorage.getItem(OFF) === "1"; } catch { return false; }
  }

  function turn(on) {
    try { if (on) localStorage.removeItem(OFF); else localStorage.setItem(OFF, "1"); } catch { /* they stay as they are */ }
  }

  function open() {
    box().querySelector("[data-jobs-keys-on]").checked = !isOff();
    box().showModal();
  }

  // Move the focus to the next or previous row of the page that has a link, from the row in which the focus is.
  function step(by) {
    const links = [...document.querySelectorAll(".jobs tbody tr")].map((row) => row.querySelector("th a, td a")).filter(Boolean);
    const row = document.activeElement && document.activeElement.closest(".jobs tbody tr");
    const at = row ? links.findIndex((link) => row.contains(link)) : -1;
    const link = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
    if (link) link.focus();
  }

  function tick() {
    const row = document.activeElement && document.activeElement.closest(".jobs tbody tr");
    const job = row && row.querySelector("input[type=checkbox][name=job]");
    if (job) job.click();
    return Boolean(job);
  }

  function press(key) {
    if (went && Date.now() - went < PATIENCE) {
      went = 0;
      const link = [...document.querySelectorAll("#jobs-nav [data-jobs-key]")].find((each) => each.dataset.jobsKey === key);
      if (link) link.click();
      return Boolean(link);
    }
    went = key === "g" ? Date.now() : 0;
    const find = document.getElementById("jobs-find");
    if (key === "?") open();
    else if (key === "/" && find) find.focus();
    else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
    else if (key === "x") return tick();
    else return false;
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.repeat && !"jk".includes(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!box() || document.querySelector("dialog[open]") || isOff()) return;
    if (event.target instanceof Element && event.target.closest(TYPING)) return;
    if (press(event.key)) event.preventDefault();
  });

  // The button is shown only where this script runs; console.js shows the new one after a refresh of the page.
  document.querySelectorAll("[data-jobs-keys-open]").forEach((each) => { each.hidden = !box(); });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-jobs-keys-open]") && box()) open(); });
  document.addEventListener("change", (event) => { if (event.target.matches("[data-jobs-keys-on]")) turn(event.target.checked); });
})();
