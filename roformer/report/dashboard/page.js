"use strict";

/* Filters, order and selection are DataTables', zoom and legend plotly's. This script unpacks the two and the
   records, draws the selected runs, and compares two configurations. Text out of records becomes text nodes or
   is escaped; markup comes from page.py alone. */

const byId = (id) => document.getElementById(id);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
// Each stands out from both themes' backgrounds by 3 at least.
const COLOURS = ["#2a7fc1", "#cf5c10", "#18916b", "#bb5f97", "#94760f", "#7a6bd1", "#77797e", "#c8494b"];
const MOST_BY_DEFAULT = 12;
const slots = new Map(); // configuration → number of its colour, as long as some that it was drawn with are
let data; // what page.py made
let table; // the DataTable of runs
let wished = "valid/mlm_loss";

/** Make an element; children that are strings become text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Give a select options, [[value, text], …], and choose one. */
function setOptions(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  select.value = chosen;
}

/** A measured number, rounded; null is what was not finite. */
function measured(value) {
  return value?.toLocaleString("en-US", { maximumSignificantDigits: 5 }) ?? "NaN";
}

function counted(value) {
  return value?.toLocaleString("en-US", { maximumFractionDigits: 0 }) ?? "–";
}

/* --- the theme: the system's, until the reader chooses one ------------------------------------------------- */

const system = window.matchMedia("(prefers-color-scheme: dark)");
const storage = (() => { try { return window.localStorage; } catch { return {}; } })();

function showTheme() {
  const dark = storage.theme ? storage.theme === "dark" : system.matches;
  document.documentElement.classList.toggle("dark", dark);
  byId("theme").setAttribute("aria-pressed", String(dark));
}

byId("theme").addEventListener("click", () => {
  storage.theme = document.documentElement.classList.contains("dark") ? "light" : "dark";
  showTheme();
});
system.addEventListener("change", showTheme);
showTheme();

/* --- the table of runs ------------------------------------------------------------------------------------- */

/** A column of words; DataTables reads entities and tags in what it searches, so that has none. */
function text(key, display = DataTable.render.text().display) {
  return { data: key, type: "string", render: { display, filter: (value) => value.replace(/[<>&]/g, " ") } };
}

/** A column of words, with a filter that lists them. */
function category(key) {
  const filter = { extend: "dropdown", icon: "search", text: `Filter by ${key}`, content: ["searchList"] };
  return { ...text(key), columnControl: { target: 0, content: [filter] } };
}

/** A column of numbers; those that are missing come last in either order. */
function number(key, format = counted) {
  const display = (value) => element("span", { title: value ?? "" }, format(value));
  return { data: key, type: "measured", className: "number", render: { display } };
}

function nameCell(id, _, run) {
  return element("div", {}, element("code", {}, id), element("span", { class: "reason" }, run.reason));
}

function scoreCell(score, _, run) {
  const title = Object.entries(run.scores).map(([metric, value]) => `${metric} = ${value ?? "NaN"}`).join("\n");
  const name = element("span", { class: "muted" }, `${run.headline} `);
  return element("span", { title }, name, element("b", {}, run.headline ? measured(score) : "–"));
}

function startTable() {
  const order = (sign) => (a, b) => (a === null || b === null ? (a === null) - (b === null) : sign * (a - b));
  DataTable.type("measured", { order: { asc: order(1), desc: order(-1) } });
  const status = category("status");
  table = new DataTable("#runs-table", {
    data: data.runs,
    createdRow: (row, run) => { row.dataset.run = run.folder; },
    columns: [
      { data: null, orderable: false, render: DataTable.render.select() },
      text("run", nameCell),
      ...["study", "pipeline", "model", "position", "recipe"].map(category),
      number("seed", (value) => value ?? "–"),
      { ...status, createdCell: (cell, value) => { cell.className = `status ${value}`; } },
      { ...number("score"), render: { display: scoreCell } },
      ...["steps", "tokens", "wall_seconds", "tokens_per_second", "parameters"].map((key) => number(key)),
      ...["folder", "task", "label", "reason"].map((key) => ({ ...text(key), visible: false })),
    ],
    order: [],
    paging: false,
    autoWidth: false,
    select: { style: "multi", selector: "td:first-child", headerCheckbox: false },
    layout: {
      top2Start: "info",
      topStart: { search: { placeholder: "words of a name, task or reason" } },
      topEnd: { buttons: [
        { extend: "ccSearchClear", text: "Reset filters" },
        { extend: "selectAll", text: "Select all shown", selectorModifier: { search: "applied" } },
        { extend: "selectNone", text: "Select none" },
      ] },
      bottomStart: null,
    },
    language: { info: "_TOTAL_ runs", infoFiltered: "of _MAX_", infoEmpty: "0 runs" },
  });
  table.on("select deselect draw", renderCurves);
  const region = { tabindex: "0", role: "region", "aria-label": "Table of runs" };
  for (const [name, value] of Object.entries(region)) byId("runs-table").parentNode.setAttribute(name, value);
}

const selected = () => table.rows({ selected: true }).data().toArray();

/* --- curves: colours tell configurations apart, dashes their seeds ------------------------------------------ */

function renderCurves() {
  const { runs, why } = chosenRuns();
  const metric = renderMetrics(runs);
  const drawn = runs.filter((run) => Object.hasOwn(run.curves, metric));
  const axis = byId("axis").value;
  const log = byId("log").checked;
  if (!drawn.some((run) => slots.has(run.configuration))) slots.clear();
  const traces = byId("band").checked ? bandTraces(drawn, metric, axis) : runTraces(drawn, metric, axis);
  const without = runs.length - drawn.length;
  byId("curves-note").textContent = why + (without ? ` ${without} of them without ${metric}.` : "");
  byId("plot").setAttribute("aria-label", `${metric || "No metric"} over ${axis} of ${drawn.length} runs`);
  const narrow = window.matchMedia("(max-width: 60rem)").matches;
  const below = narrow || traces.some(({ name }) => name?.length > 48);
  Plotly.react(byId("plot"), traces, {
    xaxis: { title: { text: axis }, rangemode: "tozero", tickformat: "~s", automargin: true, zeroline: false },
    yaxis: { title: { text: plain(metric) }, type: log ? "log" : "linear", automargin: true, zeroline: false },
    uirevision: [metric, axis, log].join(" "), // the same one keeps zoom and hidden curves when points are added
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: "system-ui, sans-serif", size: 13 },
    hoverlabel: { namelength: -1 },
    margin: { l: 60, r: 16, t: 36, b: 48 },
    height: 460 + (below ? 22 * Math.min(traces.length, 12) : 0),
    showlegend: true,
    legend: below ? { orientation: narrow ? "h" : "v", x: 0, y: -0.2, yanchor: "top" } : { x: 1.02, y: 1 },
    dragmode: narrow ? false : "zoom",
  }, { responsive: true, displaylogo: false, toImageButtonOptions: { filename: "curves", scale: 2 } });
  renderDrawn(drawn, metric);
}

/** The selected runs; where there are none, those of the filters, or those that page.py proposes. */
function chosenRuns() {
  const checked = selected();
  if (checked.length) return { runs: checked, why: `Selected runs: ${checked.length}.` };
  const some = (runs, which) => {
    const known = runs.filter((run) => Object.keys(run.curves).length > 0);
    const first = known.length > MOST_BY_DEFAULT ? `the first ${MOST_BY_DEFAULT} of ` : "";
    return { runs: known.slice(0, MOST_BY_DEFAULT), why: `No run is selected: shown are ${first}${which}.` };
  };
  const filtered = table.rows({ search: "applied" }).data().toArray();
  if (filtered.length < data.runs.length) return some(filtered, "those that pass the filters");
  return some(data.runs.filter((run) => run.study === data.first), `those of ${data.first}`);
}

/** Offer the metrics of these runs; return the one that is drawn. */
function renderMetrics(runs) {
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))].sort();
  const metric = [wished, ...runs.map((run) => run.headline), ...metrics].find((name) => metrics.includes(name)) ?? "";
  setOptions(byId("metric"), metrics.map((name) => [name, name]), metric);
  return metric;
}

function runTraces(runs, metric, axis) {
  const alike = Object.groupBy(runs, (run) => run.configuration);
  return runs.map((run) => {
    const dash = DASHES[alike[run.configuration].indexOf(run) % DASHES.length];
    const line = { color: colourOf(run), dash, width: 2 };
    return { ...trace(run.key, nameOf(run, runs), pointsOf(run, metric, axis), line, axis), meta: run.folder };
  });
}

/** Configurations of several seeds as mean and band, at the steps that all their seeds have. */
function bandTraces(runs, metric, axis) {
  return [...Map.groupBy(runs, (run) => run.configuration)].flatMap(([key, seeds]) => {
    const color = colourOf(seeds[0]);
    const name = nameOf({ ...seeds[0], seed: null }, runs);
    const curves = seeds.map((run) => pointsOf(run, metric, axis));
    if (seeds.length < 2) return [trace(key, `${name}, one seed`, curves[0], { color, width: 2 }, axis)];
    const { x, mean, std } = meanAndStd(curves);
    const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: key };
    const fill = { fill: "tonexty", fillcolor: `${color}2e` };
    const middle = trace(key, `${name}, mean of ${seeds.length} seeds`, { x, y: mean }, { color, width: 2.5 }, axis);
    return [
      { ...edge, uid: `${key}-low`, y: mean.map((value, i) => value - std[i]) },
      { ...edge, uid: `${key}-high`, y: mean.map((value, i) => value + std[i]), ...fill },
      { ...middle, legendgroup: key },
    ];
  });
}

/** Mean and sample standard deviation of several curves at the steps that they share. */
function meanAndStd(curves) {
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const at = curves.map(({ steps, x, y }) => new Map(steps.map((step, i) => [step, { x: x[i], y: y[i] }])));
  const shared = curves[0].steps.filter((step) => at.every((points) => Number.isFinite(points.get(step)?.y)));
  const columns = shared.map((step) => at.map((points) => points.get(step)));
  const mean = columns.map((points) => average(points.map(({ y }) => y)));
  const std = columns.map((points, i) =>
    Math.sqrt(points.reduce((sum, { y }) => sum + (y - mean[i]) ** 2, 0) / (points.length - 1)));
  return { x: columns.map((points) => average(points.map(({ x }) => x))), mean, std };
}

/** A run's points on an axis; those that do not say how much was read until then are left out. */
function pointsOf(run, metric, axis) {
  const [at, values] = run.curves[metric];
  const known = values.map((_, i) => i).filter((i) => run.axes[at][axis][i] !== null);
  const pick = (from) => known.map((i) => from[i]);
  return { steps: pick(run.axes[at].steps), x: pick(run.axes[at][axis]), y: pick(values) };
}

function trace(uid, name, { x, y }, line, axis) {
  const mode = x.length <= 40 ? "lines+markers" : "lines";
  return { uid, x, y, line, mode, name: plain(name), hovertemplate: `%{x:,} ${axis}<br>%{y:.5g}` };
}

/** Text as plotly.js prints it literally: it reads tags and entities in names. */
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Name runs as page.py names them within their study. */
function nameOf(run, runs) {
  const study = runs.some((other) => other.study !== run.study) ? `${run.study}: ` : "";
  return `${study}${run.name}${run.seed === null ? "" : `, seed ${run.seed}`}`;
}

function colourOf({ configuration }) {
  if (!slots.has(configuration)) slots.set(configuration, slots.size);
  return COLOURS[slots.get(configuration) % COLOURS.length];
}

/** The drawn curves as a table: points, first, last, lowest and highest value. */
function renderDrawn(runs, metric) {
  byId("drawn").tBodies[0].replaceChildren(...runs.map((run) => {
    const values = run.curves[metric][1];
    const finite = values.filter((value) => value !== null);
    const extremes = finite.length ? [Math.min(...finite), Math.max(...finite)] : [null, null];
    const cells = [counted(values.length), ...[values[0], values.at(-1), ...extremes].map(measured)];
    return element("tr", {}, element("th", { scope: "row" }, nameOf(run, runs)),
      ...cells.map((text) => element("td", { class: "number" }, text)));
  }));
}

/* --- two configurations side by side ------------------------------------------------------------------------ */

/** Offer the runs; at first two of the same study that are not seeds of each other. */
function renderChoices() {
  const runs = data.runs.filter(({ config }) => Object.keys(config).length);
  const one = runs[0];
  const other = runs.find((run) => run.study === one.study && run.configuration !== one.configuration) ?? one;
  const options = runs.map((run) => [run.folder, `${run.study}: ${run.run}`]);
  [["one", one], ["another", other]].forEach(([id, run]) => setOptions(byId(id), options, byId(id).value || run?.folder));
}

function renderCompare() {
  const [one, another] = ["one", "another"].map((id) => data.runs.find((run) => run.folder === byId(id).value));
  const body = byId("compare-table").tBodies[0];
  body.replaceChildren();
  byId("compare-note").textContent = one && another ? "" : "No run has a config yet.";
  if (!one || !another) return;
  byId("compare-one").textContent = one.run;
  byId("compare-another").textContent = another.run;
  for (const [part, title] of [["config", "Config"], ["environment", "Environment"]]) {
    const keys = [...new Set([...Object.keys(one[part]), ...Object.keys(another[part])])].sort();
    const differing = keys.filter((key) => one[part][key] !== another[part][key]);
    byId("compare-note").append(`${title}: ${differing.length} of ${keys.length} keys differ. `);
    body.append(element("tr", { class: "part" }, element("th", { colspan: 3, scope: "colgroup" }, title)));
    for (const key of byId("all-keys").checked ? keys : differing) {
      const cells = [one, another].map((run) => Object.hasOwn(run[part], key)
        ? element("td", {}, element("code", {}, run[part][key])) : element("td", { class: "muted" }, "not there"));
      const attributes = { "data-part": part, "data-key": key, class: differing.includes(key) ? "differs" : "" };
      body.append(element("tr", attributes, element("th", { scope: "row" }, element("code", {}, key)), ...cells));
    }
  }
}

/* --- the start, and new records of a served page ------------------------------------------------------------- */

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

/** Draw what differs from the old records; filters, order, selection, zoom and open parts stay. */
function take(found) {
  const old = data;
  data = found;
  byId("made").textContent = data.made;
  for (const [id, markup] of Object.entries(data.parts)) {
    if (markup === old?.parts[id]) continue;
    const open = [...byId(id).querySelectorAll("details[open]")].map((part) => part.dataset.heading);
    byId(id).innerHTML = markup;
    for (const part of byId(id).querySelectorAll("details")) part.open ||= open.includes(part.dataset.heading);
  }
  if (JSON.stringify(data.runs) === JSON.stringify(old?.runs)) return;
  if (!table) startTable();
  else {
    const focused = document.activeElement.closest("#runs-table tbody tr")?.dataset.run;
    const checked = new Set(selected().map((run) => run.folder));
    table.clear().rows.add(data.runs).draw(false);
    table.rows((_, run) => checked.has(run.folder)).select();
    byId("runs-table").querySelector(`tr[data-run="${CSS.escape(focused ?? "")}"] input`)?.focus();
  }
  renderCurves();
  renderChoices();
  renderCompare();
}

async function poll() {
  if (document.hidden) return;
  let told = "Live: new records appear by themselves.";
  try {
    const response = await fetch("records.json", { cache: "no-store" });
    if (!response.ok) throw new Error(response.statusText);
    take(await response.json());
  } catch {
    told = "The server does not answer; these are its last records.";
  }
  if (byId("live").textContent !== told) byId("live").textContent = told; // it is read out whenever it is written
}

/** Copy a command; where the clipboard is closed, select it. */
async function copy({ target: button }) {
  if (!button.matches(".command button")) return;
  window.getSelection().selectAllChildren(button.previousElementSibling);
  const done = await navigator.clipboard.writeText(button.previousElementSibling.textContent).then(() => true, () => false);
  button.textContent = done ? "Copied" : "Selected";
}

async function start() {
  for (const packed of document.querySelectorAll("script.library")) {
    document.head.append(element("script", {}, await unpack(packed)));
  }
  take(JSON.parse(await unpack(byId("data"))));
  for (const id of ["axis", "log", "band"]) byId(id).addEventListener("change", renderCurves);
  byId("metric").addEventListener("change", () => { wished = byId("metric").value; renderCurves(); });
  for (const id of ["one", "another", "all-keys"]) byId(id).addEventListener("change", renderCompare);
  byId("clear-curves").addEventListener("click", () => table.rows().deselect());
  document.addEventListener("click", copy);
  const seconds = Number(byId("live").dataset.poll);
  if (seconds === 0) return;
  setInterval(poll, seconds * 1000);
  document.addEventListener("visibilitychange", poll);
}

document.addEventListener("DOMContentLoaded", start);
