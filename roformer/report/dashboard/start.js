/* Draws the page, and draws it again when a served one learns of new records. */

function render() {
  renderCounts();
  renderFilters();
  renderRuns();
  renderCurves();
  renderChoices();
  renderCompare();
}

/** Count your runs by status, and the recorded ones; all runs where none is yours. */
function renderCounts() {
  const { runs, statuses, yours } = page.data;
  const own = runs.filter((run) => run.study === yours);
  const shown = own.length ? own : runs;
  const count = (status) => shown.filter((run) => run.status === status).length;
  const counts = statuses.map((status) => [status, count(status)]).filter(([, number]) => number > 0);
  const plural = shown.length === 1 ? "run" : "runs";
  const item = (number, text, attributes = {}) =>
    element("li", attributes, element("b", {}, counted(number)), text);
  byId("counts").replaceChildren(
    item(shown.length, own.length ? `${plural} of yours` : plural),
    ...counts.map(([status, number]) =>
      item(number, element("span", { class: `status ${status}` }, status), { "data-status": status })),
    ...(own.length ? [item(runs.length - own.length, "recorded")] : []),
  );
}

function renderMade() {
  byId("made").textContent = page.data.made;
}

function startTheme() {
  const button = byId("theme");
  const show = () => button.setAttribute("aria-pressed", String(theme.isDark()));
  button.addEventListener("click", () => {
    theme.choose(theme.isDark() ? "light" : "dark");
    show();
    renderCurves();
  });
  theme.system.addEventListener("change", show);
  show();
}

/** Ask the server for the records as long as somebody looks; filters, zoom and checks stay. */
function startLive() {
  if (page.data.poll === null) return;
  tell(`Live: asks every ${page.data.poll} s.`);
  setInterval(poll, page.data.poll * 1000);
  document.addEventListener("visibilitychange", poll);
}

async function poll() {
  if (document.hidden) return;
  try {
    const response = await fetch("records.json", { cache: "no-store" });
    if (!response.ok) throw new Error(response.statusText);
    take(await response.json());
    tell(`Live: asks every ${page.data.poll} s.`);
  } catch {
    tell("The server does not answer; these are its last records.");
  }
}

/** Say how the asking goes, once: the line is read out whenever it is written. */
function tell(text) {
  if (byId("live").textContent !== text) byId("live").textContent = text;
}

function take(data) {
  const same = (key) => JSON.stringify(data[key]) === JSON.stringify(page.data[key]);
  const [sameRuns, sameRows, sameSections] = [same("runs"), same("rows"), same("sections")];
  page.data = data;
  renderMade();
  if (!sameRuns) {
    const known = runsById();
    for (const id of page.checked) if (!known.has(id)) page.checked.delete(id);
    render();
  }
  if (!sameRows) renderResults();
  if (!sameSections) renderSections();
}

startTheme();
startRuns();
startCurves();
startCompare();
renderMade();
renderResults();
renderSections();
render();
startLive();
