/* The table of runs: filters, order, and which runs are checked. */

const COLUMNS = [
  { key: "name", title: "Run", value: (run) => run.name, cell: nameCell },
  { key: "study", title: "Study", value: (run) => run.study },
  { key: "pipeline", title: "Pipeline", value: (run) => run.pipeline },
  { key: "model", title: "Model", value: (run) => run.model },
  { key: "position", title: "Position", value: (run) => run.position },
  { key: "seed", title: "Seed", value: (run) => run.seed, number: String },
  { key: "status", title: "Status", value: (run) => run.status, cell: statusCell },
  { key: "headline", title: "Headline", value: headlineValue, number: measured, cell: headlineCell },
  { key: "steps", title: "Updates", value: (run) => run.steps, number: counted },
  { key: "tokens", title: "Tokens", value: (run) => run.tokens, number: counted },
  { key: "seconds", title: "Seconds", value: (run) => run.seconds, number: counted },
  { key: "speed", title: "Tokens/s", value: (run) => run.speed, number: counted },
  { key: "parameters", title: "Parameters", value: (run) => run.parameters, number: counted },
];
const FILTERS = ["study", "pipeline", "model", "position", "recipe", "status"];
const order = { column: null, ascending: true };

function startRuns() {
  byId("runs-head").append(
    element("th", { scope: "col" }, element("span", { class: "hidden" }, "Overlay")),
    ...COLUMNS.map(headerCell),
  );
  byId("filters").addEventListener("input", changed);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("reset").addEventListener("click", () => {
    byId("filters").reset();
    changed();
  });
  byId("check-shown").addEventListener("click", () => {
    for (const run of filteredRuns()) page.checked.add(run.id);
    changed();
  });
  for (const id of ["clear", "clear-curves"]) byId(id).addEventListener("click", uncheckAll);
  byId("runs-body").addEventListener("change", (event) => check(event.target.value, event.target.checked));
}

function changed() {
  renderRuns();
  renderCurves();
}

function check(id, checked) {
  if (checked) page.checked.add(id);
  else page.checked.delete(id);
  byId("clear").disabled = byId("clear-curves").disabled = page.checked.size === 0;
  renderShown(filteredRuns());
  renderCurves();
}

function uncheckAll() {
  page.checked.clear();
  changed();
}

/** Fill the filters with what the records have; what was chosen stays, also where it is gone. */
function renderFilters() {
  for (const key of FILTERS) {
    const select = byId(`filter-${key}`);
    const values = new Set(page.data.runs.map((run) => run[key]).filter((value) => value !== ""));
    if (select.value) values.add(select.value);
    setOptions(select, [["", "all"], ...[...values].sort().map((value) => [value, value])]);
  }
}

function isFiltered() {
  return byId("filter-text").value.trim() !== "" || FILTERS.some((key) => byId(`filter-${key}`).value !== "");
}

function filteredRuns() {
  const words = byId("filter-text").value.toLowerCase().split(/\s+/).filter(Boolean);
  return page.data.runs.filter((run) => {
    const text = [run.id, run.task, run.label, run.reason].join(" ").toLowerCase();
    const chosen = FILTERS.every((key) => ["", run[key]].includes(byId(`filter-${key}`).value));
    return chosen && words.every((word) => text.includes(word));
  });
}

function renderRuns() {
  const focused = document.activeElement.closest("#runs-body") && document.activeElement.value;
  const shown = sorted(filteredRuns());
  byId("runs-body").replaceChildren(...shown.map(runRow));
  byId("clear").disabled = byId("clear-curves").disabled = page.checked.size === 0;
  renderShown(shown);
  if (!focused) return;
  for (const box of byId("runs-body").querySelectorAll("input")) if (box.value === focused) box.focus();
}

function renderShown(shown) {
  const checked = page.checked.size ? `, ${page.checked.size} checked` : "";
  byId("shown").textContent = `${shown.length} of ${page.data.runs.length} runs${checked}`;
}

function sorted(runs) {
  const column = COLUMNS.find(({ key }) => key === order.column);
  if (!column) return runs;
  const sign = order.ascending ? 1 : -1;
  const missing = (value) => value === null || value === "";
  return [...runs].sort((one, another) => {
    const [a, b] = [column.value(one), column.value(another)];
    if (missing(a) || missing(b)) return missing(a) - missing(b); // last in both directions
    return sign * (column.number ? a - b : a.localeCompare(b, "en"));
  });
}

function headerCell(column) {
  const button = element("button", { type: "button" }, column.title);
  const cell = element("th", { scope: "col", "aria-sort": "none", class: column.number ? "number" : null }, button);
  button.addEventListener("click", () => {
    order.ascending = order.column === column.key ? !order.ascending : true;
    order.column = column.key;
    for (const other of cell.parentNode.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
    cell.setAttribute("aria-sort", order.ascending ? "ascending" : "descending");
    renderRuns();
  });
  return cell;
}

function runRow(run) {
  const box = element("input", { type: "checkbox", value: run.id, "aria-label": `Overlay ${run.name}` });
  box.checked = page.checked.has(run.id);
  const cells = COLUMNS.map((column) => (column.cell ?? plainCell)(run, column));
  return element("tr", { "data-run": run.id }, element("td", {}, box), ...cells);
}

function plainCell(run, { key, value, number }) {
  const found = value(run);
  if (!number) return element("td", { "data-column": key }, ...breakable(found));
  if (found === null) return element("td", { "data-column": key, class: "number muted" }, "–");
  return element("td", { "data-column": key, "data-value": found, title: found, class: "number" }, number(found));
}

function nameCell(run) {
  const cell = element("th", { "data-column": "name", scope: "row", class: "name" }, element("code", {}, run.name));
  if (run.reason) cell.append(element("span", { class: "reason" }, run.reason));
  return cell;
}

function statusCell(run) {
  return element("td", { "data-column": "status" }, element("span", { class: `status ${run.status}` }, run.status));
}

function headlineValue(run) {
  return run.headline.length ? run.headline[0][1] : null;
}

function headlineCell(run) {
  const parts = run.headline.map(([metric, value]) => element(
    "span",
    { "data-metric": metric, "data-value": JSON.stringify(value), title: `${metric} = ${value ?? "NaN"}` },
    element("span", { class: "muted" }, `${metric} `),
    element("b", {}, measured(value)),
  ));
  return element("td", { "data-column": "headline", class: "number headline" }, ...parts);
}
