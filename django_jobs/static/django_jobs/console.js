// Live refresh, "select all" and copying.  Every page also works without this script.
"use strict";

(() => {
  const live = () => document.getElementById("jobs-live");
  let waiting = null;
  let pause = 1;

  function ticked() {
    return document.querySelectorAll('#jobs-chosen input[name="job"]:checked').length;
  }

  // Do not replace the part of the page in which the user is selecting, typing or reading.
  function busy() {
    const part = live();
    const inside = document.activeElement && document.activeElement !== part && part.contains(document.activeElement);
    const selected = document.getSelection();
    const selecting = selected && !selected.isCollapsed && part.contains(selected.anchorNode);
    return ticked() > 0 || selecting || (inside && document.activeElement.matches("input, textarea, select, pre"));
  }

  function replace(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const part = fresh.getElementById("jobs-live");
    if (!part || busy()) return;
    const focus = document.activeElement && document.activeElement.getAttribute("href");
    const open = [...live().querySelectorAll("details")].map((each) => each.open);
    live().replaceWith(document.adoptNode(part));
    [...live().querySelectorAll("details")].forEach((each, i) => { if (i in open) each.open = open[i]; });
    const nav = fresh.getElementById("jobs-nav");
    const old = document.getElementById("jobs-nav");
    if (nav && old) old.replaceWith(document.adoptNode(nav));
    if (focus && document.activeElement === document.body) {
      const again = document.querySelector(`.jobs a[href="${CSS.escape(focus)}"]`);
      if (again) again.focus({ preventScroll: true });
    }
    prepare();
  }

  async function refresh() {
    const part = live();
    const drive = part.hasAttribute("data-jobs-drive") && document.getElementById("jobs-drive");
    const request = { headers: { "X-Requested-With": "fetch" }, credentials: "same-origin" };
    if (drive) {
      request.method = "POST";
      request.body = new URLSearchParams(new FormData(drive));
      request.body.set("do", "continue");
    }
    try {
      const response = await fetch(location.href, request);
      // If the session has ended, the answer is the login page.  Reload, so that the user sees it.
      if (response.redirected && new URL(response.url).pathname !== location.pathname) return location.reload();
      if (response.ok) { replace(await response.text()); pause = 1; } else { pause = Math.min(pause * 2, 12); }
    } catch {
      pause = Math.min(pause * 2, 12);
    }
    return schedule();
  }

  function schedule() {
    clearTimeout(waiting);
    const seconds = Number(live() && live().dataset.jobsRefresh);
    if (!seconds || document.hidden) return;
    waiting = setTimeout(() => (document.hidden || busy() ? schedule() : refresh()), seconds * 1000 * pause);
  }

  function prepare() {
    const all = document.querySelector("[data-jobs-all]");
    if (all) all.hidden = false;
    if (navigator.clipboard) document.querySelectorAll("[data-jobs-copy]").forEach((each) => { each.hidden = false; });
    count();
  }

  function count() {
    const number = ticked();
    document.querySelectorAll("[data-jobs-ticked]").forEach((each) => { each.textContent = number ? `(${number})` : ""; });
    const all = document.querySelector("[data-jobs-all]");
    if (all) {
      const boxes = document.querySelectorAll('#jobs-chosen input[name="job"]').length;
      all.checked = number > 0 && number === boxes;
      all.indeterminate = number > 0 && number < boxes;
    }
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-jobs-all]")) {
      document.querySelectorAll('#jobs-chosen input[name="job"]').forEach((each) => { each.checked = event.target.checked; });
    }
    count();
  });

  document.addEventListener("click", async (event) => {
    if (!event.target.matches("[data-jobs-copy]")) return;
    const text = event.target.parentElement.querySelector("pre").textContent;
    await navigator.clipboard.writeText(text);
    event.target.classList.add("jobs-copied");
    event.target.textContent += " ✓";
  });

  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(waiting) : schedule()));

  if (live()) { prepare(); schedule(); }
})();
