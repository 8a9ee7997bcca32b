// Live refresh, "select all" and copying.  Every page also works without this script.
"use strict";

(() => {
  // ms: an answer that takes longer is late, and the page says so; one that takes this long is given up, and asked for again.
  const LATE = 1200;
  const GIVE_UP = 10000;
  // ms: a page that is not refreshed because a person chooses or types in it says so after this time.
  const HELD = 10000;
  const live = () => document.getElementById("jobs-live");
  let waiting = null;
  // What the page shows is from this moment; a failure since then; when it was noticed.
  let fresh_at = Date.now();
  let failed = "";
  let asking = 0;
  let pressed = false;

  function ticked() {
    return document.querySelectorAll('#jobs-chosen input[name="job"]:checked').length;
  }

  const changed = (each) => each.type === "checkbox" || each.type === "radio" ? each.checked !== each.defaultChecked
    : each.matches("select") ? each.selectedIndex !== Math.max(0, [...each.options].findIndex((option) => option.defaultSelected))
    : each.value !== each.defaultValue;

  // Do not replace the part of the page in which the user is selecting, typing or reading.
  function busy() {
    const part = live();
    if (pressed || [...part.querySelectorAll("input:not([type=hidden]), textarea, select")].some(changed)) return true;
    const inside = document.activeElement && document.activeElement !== part && part.contains(document.activeElement);
    const selected = document.getSelection();
    const selecting = selected && !selected.isCollapsed && part.contains(selected.anchorNode);
    return ticked() > 0 || selecting || (inside && document.activeElement.matches("input, textarea, select, pre"));
  }

  function replace(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const part = fresh.getElementById("jobs-live");
    if (!part || busy()) return;
    const focus = signOf(document.activeElement);
    const open = [...live().querySelectorAll("details")].map((each) => each.open);
    live().replaceWith(document.adoptNode(part));
    [...live().querySelectorAll("details")].forEach((each, i) => { if (i in open) each.open = open[i]; });
    const nav = fresh.getElementById("jobs-nav");
    const old = document.getElementById("jobs-nav");
    if (nav && old) old.replaceWith(document.adoptNode(nav));
    if (focus && document.activeElement === document.body) {
      const again = [...document.querySelectorAll(".jobs a, .jobs button, .jobs input")].find((each) => signOf(each) === focus);
      if (again) again.focus({ preventScroll: true });
    }
    prepare();
  }

  // What makes a link or button the same one after a refresh.
  function signOf(each) {
    if (!each || !each.matches("a, button, input")) return "";
    const row = each.closest("form") && each.closest("form").querySelector("input[type=hidden]:not([name=csrfmiddlewaretoken])");
    return [each.tagName, each.getAttribute("href"), each.name, each.value, row && row.value].join(" ");
  }

  // How old is what the page shows, in the units that all its languages share.
  function age(ms) {
    const seconds = Math.round(ms / 1000);
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  }

  // Says that the page is not what is: a refresh failed, or its answer is late.  Runs every half second, and asks nobody.
  function watch() {
    const sign = document.getElementById("jobs-stale");
    const every = Number(live() && live().dataset.jobsRefresh);
    if (!sign || !every) return;
    const late = asking && Date.now() - asking > LATE;
    const held = !failed && !late && Date.now() - fresh_at > HELD && busy();
    const stale = Boolean(failed || late || held);
    if (stale) {
      const why = failed || (late ? sign.dataset.silent : sign.dataset.held);
      const told = sign.dataset.stale.replace("{age}", age(Date.now() - fresh_at))
        .replace("{time}", new Date(fresh_at).toLocaleTimeString(document.documentElement.lang || undefined));
      sign.firstElementChild.textContent = why;
      sign.lastElementChild.textContent = told;
    }
    if (sign.hidden === stale) sign.hidden = !stale;
    document.body.classList.toggle("jobs-is-stale", stale);
  }

  async function refresh() {
    const part = live();
    const sign = document.getElementById("jobs-stale");
    const drive = part.hasAttribute("data-jobs-drive") && document.getElementById("jobs-drive");
    const request = { headers: { "X-Requested-With": "fetch" }, credentials: "same-origin" };
    if (drive) {
      request.method = "POST";
      request.body = new URLSearchParams(new FormData(drive));
      request.body.set("do", "continue");
    }
    const began = asking = Date.now();
    try {
      const response = await fetch(location.href, { ...request, signal: AbortSignal.timeout(GIVE_UP) });
      // If the session has ended, the answer is the login page.  Reload, so that the user sees it.
      if (response.redirected && new URL(response.url).pathname !== location.pathname) return location.reload();
      // The job is gone, or the person may no longer see it: the whole page says so.
      if (response.status === 404 || response.status === 403) return location.reload();
      const text = await response.text();
      if (response.ok) { replace(text); fresh_at = began; failed = ""; } else { failed = reasonIn(text, response) }
    } catch {
      failed = sign ? sign.dataset.silent : "";
    }
    asking = 0;
    watch();
    return schedule();
  }

  // The server's own words, if its answer is a page of the console; else the number of its answer.
  function reasonIn(text, response) {
    const said = new DOMParser().parseFromString(text, "text/html").querySelector(".jobs-attention h2");
    return said ? said.textContent.trim() : document.getElementById("jobs-stale").dataset.refused.replace("{status}", response.status);
  }

  function schedule() {
    clearTimeout(waiting);
    const seconds = Number(live() && live().dataset.jobsRefresh);
    if (!seconds || document.hidden) return;
    waiting = setTimeout(() => (document.hidden || busy() ? schedule() : refresh()), seconds * 1000);
  }

  function prepare() {
    const all = document.querySelector("[data-jobs-all]");
    if (all) all.hidden = false;
    document.querySelectorAll("[data-jobs-keys-open]").forEach((each) => { each.hidden = false; });
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

  document.addEventListener("pointerdown", (event) => { pressed = Boolean(event.target.closest("#jobs-live")); });
  for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => setTimeout(() => { pressed = false; }, 0));

  // What was shown when the tab was left is old: refresh at once when it is looked at again.
  document.addEventListener("visibilitychange", () => {
    clearTimeout(waiting);
    if (!document.hidden && Number(live() && live().dataset.jobsRefresh)) { if (busy()) schedule(); else refresh(); }
  });

  if (live()) { prepare(); schedule(); setInterval(watch, 500); }
})();
