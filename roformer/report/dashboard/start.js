/* Draws the page, and draws it again when a served one learns of new records. */

function render() {
  renderCounts();
  renderFilters();
  renderRuns();
  renderCurves();
  renderChoices();
  renderCompare();
}

function renderCounts() {
  const { runs, statuses } = page.data;
  const count = (status) => runs.filter((run) => run.status === status).length;
  const counts = statuses.map((status) => [status, count(status)]).filter(([, number]) => number > 0);
  const item = ([status, number]) =>
    element("li", { "data-status": status }, element("b", {}, counted(number)), element("span", { class: `status ${status}` }, status));
  const all = element("li", {}, element("b", {}, counted(runs.length)), runs.length === 1 ? "run" : "runs");
  byId("counts").replaceChildren(all, ...counts.map(item));
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
  const [sameRuns, sameSections] = [same("runs"), same("sections")];
  page.data = data;
  renderMade();
  if (!sameRuns) {
    const known = runsById();
    for (const id of page.checked) if (!known.has(id)) page.checked.delete(id);
    render();
  }
  if (!sameSections) renderSections();
}

startTheme();
startRuns();
startCurves();
startCompare();
renderMade();
renderSections();
render();
startLive();
