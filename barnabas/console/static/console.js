// The console's one script: it renews a page when the cluster was asked again, moves by keys, and shows tails and searches as they come.
"use strict";
const base = document.body.dataset.base;

// A page follows its cluster: on each tick the parts with data-live are taken from the page as it is now.
async function renew() {
  const answer = await fetch(location.href, { headers: { "x-again": "1" } });
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (next.title !== document.title || document.getSelection().type === "Range") return;
  const open = [...document.querySelectorAll("[data-live] details[open][id]")].map((each) => each.id);
  const here = rowIndex();
  for (const old of document.querySelectorAll("[data-live]")) {
    if (old.contains(document.activeElement) && /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName)) continue;
    const fresh = next.getElementById(old.id);
    if (fresh) old.replaceWith(document.adoptNode(fresh));
  }
  // The first answer has what the waiting page had not: headings and filters outside of the live parts.
  if (next.querySelector("main > :not([data-live])") && !document.querySelector("main > :not([data-live])")) {
    document.querySelector("main").replaceWith(document.adoptNode(next.querySelector("main")));
  }
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (here >= 0) selectRow(here);
}

if (document.body.dataset.follows) {
  let ticks = null, busy = false;
  const again = async () => {
    if (busy) return;
    busy = true;
    try { await renew(); } catch { /* the next tick tries again */ } finally { busy = false; }
  };
  const follow = () => {
    if (document.hidden) { ticks?.close(); ticks = null; return; }
    if (ticks) return;
    ticks = new EventSource(`${base}/ticks?polls=${document.body.dataset.polls}`);
    ticks.addEventListener("tick", again);
  };
  document.addEventListener("visibilitychange", follow);
  follow();
  if (document.body.dataset.polls !== "0") again();
}

// Rows
function rows() { return [...document.querySelectorAll("main table.rows tbody tr")].filter((row) => row.querySelector("a")); }
function rowIndex() { return rows().findIndex((row) => row.classList.contains("here")); }
function selectRow(index) {
  const all = rows();
  if (!all.length) return;
  const place = Math.min(Math.max(index, 0), all.length - 1);
  all.forEach((row, each) => row.classList.toggle("here", each === place));
  all[place].scrollIntoView({ block: "nearest" });
}

// Keys
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /INPUT|TEXTAREA|SELECT/.test(event.target.tagName);
  if (event.key === "Escape") { if (typing) event.target.blur(); return; }
  if (typing || document.querySelector("dialog[open]")) return;
  const click = (selector) => { const found = document.querySelector(selector); found?.click(); return Boolean(found); };
  const done = {
    "/": () => { const box = document.querySelector("main input[type=search]"); box?.focus(); box?.select(); return Boolean(box); },
    "?": () => click("#keys"),
    j: () => { selectRow(rowIndex() + 1); return true; },
    k: () => { selectRow(rowIndex() - 1); return true; },
    Enter: () => event.target === document.body && rowIndex() >= 0 && (rows()[rowIndex()].querySelector("a").click(), true),
    n: () => click("a[rel=next]"),
    p: () => click("a[rel=prev]"),
    " ": () => click("#pause"),
  }[event.key] ?? (/^[a-z]$/.test(event.key) ? () => click(`[data-key=${event.key}]`) : null);
  if (done?.()) event.preventDefault();
});
document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.clusters[open]")) if (!menu.contains(event.target)) menu.open = false;
});

// Records: of a view, a tail or a search, as the server sends them; the newest are above.
const run = document.getElementById("run");
if (run) {
  const { records: address, mode, max } = run.dataset;
  const [body, counts, progress, pause, failed, trouble] = ["records", "counts", "progress", "pause", "failed", "trouble"].map((id) => document.getElementById(id));
  const figures = new Intl.NumberFormat("en");
  let source = null, isPaused = false, missed = 0, isEnded = false;

  const show = (event) => {
    const came = JSON.parse(event.data);
    if (isPaused) { missed += 1; return; }
    if (came.html) {
      const table = document.createElement("table");
      table.insertAdjacentHTML("afterbegin", `<tbody>${came.html}</tbody>`);
      const fresh = [...table.rows];
      if (mode === "search") body.append(...fresh.reverse()); else body.prepend(...fresh);
      while (Number(max) && body.rows.length > Number(max)) body.lastElementChild.remove();
    }
    if (came.trouble) { trouble.textContent = `▲ Not everything is decoded: ${came.trouble}`; trouble.hidden = false; }
    const rate = `${figures.format(Math.round(came.rate))}/s`;
    if (mode === "tail") counts.textContent = `${figures.format(came.read)} came, ${rate}; the newest ${body.rows.length} are shown`;
    else if (mode === "search") {
      counts.textContent = `${figures.format(came.found)} found in ${figures.format(came.read)} of ${came.total === null ? "…" : figures.format(came.total)} read, ${rate}`;
      progress.hidden = false;
      progress.value = came.total ? came.read / came.total : 0;
    } else counts.textContent = body.rows.length ? `${body.rows.length} messages` : "No messages there.";
  };
  const end = (text) => {
    source?.close(); source = null; isEnded = true;
    progress.hidden = true; pause.hidden = true;
    if (text) counts.textContent += text;
  };
  const begin = () => {
    source = new EventSource(address);
    source.addEventListener("rows", show);
    source.addEventListener("done", (event) => {
      const { error, is_full: isFull } = JSON.parse(event.data);
      end(mode === "search" ? (isFull ? "; it ends there: search from a later place for more" : "; that was all") : "");
      if (error) { failed.textContent = `▲ ${error}`; failed.hidden = false; }
    });
    // The browser would begin a search anew; a tail goes on from where the end is then.
    source.addEventListener("error", () => { if (mode !== "tail" && !isEnded) end("; the console has not answered"); });
  };
  pause.addEventListener("click", () => {
    if (mode === "search") { end("; stopped"); return; }
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Go on" : "Pause";
  });
  addEventListener("pagehide", () => source?.close());
  begin();
}
