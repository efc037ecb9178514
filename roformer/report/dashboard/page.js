"use strict";
/* Filters, order and selection are DataTables', zoom and legend plotly's; this overlays curves and compares configs.
   Text out of records becomes text nodes or is escaped; markup comes only from page.py. */

const byId = (id) => document.getElementById(id);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
// Each stands out from both themes' backgrounds by 3 at least.
const COLOURS = ["#2a7fc1", "#cf5c10", "#18916b", "#bb5f97", "#94760f", "#7a6bd1", "#77797e", "#c8494b"];
const TITLES = ["Select", "Run", "Study", "Pipeline", "Model", "Position", "Recipe", "Seed", "Status", "Headline",
  "Steps", "Tokens", "Seconds", "Tokens/s", "Parameters", "Folder", "Task", "Label", "Reason"]; // of runs
const EVENTS = "select deselect draw"; // of the table, after which curves are drawn again
const slots = new Map(); // configuration → number of its colour, as long as some that it was drawn with are
let data, table, wished = "valid/mlm_loss"; // what page.py made; the DataTable of runs; the metric to draw

/** Make an element; children that are strings become text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function fillTable(id, header, rows) {
  const head = element("tr", {}, ...header.map((text) => element("th", { scope: "col" }, text)));
  byId(id).replaceChildren(byId(id).caption, element("thead", {}, head), element("tbody", {}, ...rows));
}

/** Give a select options, [[value, text], …], and choose one. */
function setOptions(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
}

const measured = (value) => value?.toLocaleString("en-US", { maximumSignificantDigits: 5 }) ?? "NaN";
const selected = () => table.rows({ selected: true }).data().toArray();
const counted = (value) => value?.toLocaleString("en-US", { maximumFractionDigits: 0 }) ?? "–";

const system = window.matchMedia("(prefers-color-scheme: dark)");
const storage = (() => { try { return window.localStorage; } catch { return {}; } })();

/** Show the theme that the reader chose, else the system's. */
function showTheme() {
  const dark = storage.theme ? storage.theme === "dark" : system.matches;
  document.documentElement.classList.toggle("dark", dark);
  byId("theme").setAttribute("aria-pressed", String(dark));
}

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

const nameCell = (id, _, { reason }) =>
  element("div", {}, element("code", {}, id), element("span", { class: "reason" }, reason));

function scoreCell(score, _, run) {
  const title = Object.entries(run.scores).map(([metric, value]) => `${metric} = ${value ?? "NaN"}`).join("\n");
  const name = element("span", { class: "muted" }, `${run.headline} `);
  return element("span", { title }, name, element("b", {}, run.headline ? measured(score) : "–"));
}

function startTable() {
  const order = (sign) => (a, b) => (a === null || b === null ? (a === null) - (b === null) : sign * (a - b));
  DataTable.type("measured", { order: { asc: order(1), desc: order(-1) } });
  fillTable("runs-table", TITLES, []);
  table = new DataTable("#runs-table", {
    data: data.runs,
    createdRow: (row, run) => { row.dataset.run = run.folder; },
    columns: [
      { data: null, orderable: false, render: DataTable.render.select() },
      { ...text("run", nameCell), className: "name" },
      ...["study", "pipeline", "model", "position", "recipe"].map(category),
      number("seed", (value) => value ?? "–"),
      { ...category("status"), createdCell: (cell, value) => { cell.className = `status ${value}`; } },
      { ...number("score"), render: { display: scoreCell } },
      ...["steps", "tokens", "wall_seconds", "tokens_per_second", "parameters"].map((key) => number(key)),
      ...["folder", "task", "label", "reason"].map((key) => ({ ...text(key), visible: false })),
    ],
    order: [], paging: false, autoWidth: false,
    select: { style: "multi", selector: "td:first-child", headerCheckbox: false },
    layout: { topStart: { buttons: [
      { extend: "ccSearchClear", text: "Reset filters" },
      { extend: "selectAll", text: "Select all shown", selectorModifier: { search: "applied" } },
      { extend: "selectNone", text: "Select none" },
    ] } },
    language: { info: "_TOTAL_ runs", infoFiltered: "of _MAX_", infoEmpty: "0 runs" },
  });
  table.on(EVENTS, renderCurves);
  Object.assign(byId("runs-table").parentNode, { tabIndex: 0, role: "region", ariaLabel: "Table of runs" });
}

/** Draw the metric of the chosen runs: colours tell configurations apart, dashes their seeds. */
function renderCurves() {
  const { runs, why } = chosenRuns();
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))].sort();
  const metric = [wished, ...runs.map((run) => run.headline), ...metrics].find((one) => metrics.includes(one)) ?? "";
  setOptions(byId("metric"), metrics.map((one) => [one, one]), metric);
  const drawn = runs.filter((run) => Object.hasOwn(run.curves, metric));
  const [axis, log] = [byId("axis").value, byId("log").checked];
  if (!drawn.some((run) => slots.has(run.configuration))) slots.clear();
  const traces = tracesOf(drawn, metric, axis);
  const without = runs.length - drawn.length;
  byId("curves-note").textContent = without ? `${why} ${without} of them without ${metric}.` : why;
  byId("plot").setAttribute("aria-label", `${metric || "No metric"} over ${axis} of ${drawn.length} runs`);
  const narrow = window.matchMedia("(max-width: 60rem)").matches;
  const below = narrow || traces.some(({ name }) => name?.length > 48);
  Plotly.react(byId("plot"), traces, {
    xaxis: { title: { text: axis }, rangemode: "tozero", tickformat: "~s", automargin: true, zeroline: false },
    yaxis: { title: { text: plain(metric) }, type: log ? "log" : "linear", automargin: true, zeroline: false },
    uirevision: [metric, axis, log].join(" "), // the same one keeps zoom and hidden curves when points are added
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", modebar: { bgcolor: "transparent", color: "#85898f" },
    hoverlabel: { namelength: -1 }, margin: { l: 60, r: 16, t: 36, b: 48 }, showlegend: true,
    height: 460 + (below ? 22 * Math.min(traces.length, 12) : 0),
    legend: below ? { orientation: narrow ? "h" : "v", x: 0, y: -0.2, yanchor: "top" } : { x: 1.02, y: 1 },
    dragmode: narrow ? false : "zoom",
  }, { responsive: true, displaylogo: false, toImageButtonOptions: { filename: "curves", scale: 2 } });
  renderDrawn(drawn, metric);
}

/** The selected runs; where there are none, the first of those that pass the filters, or of the first study. */
function chosenRuns() {
  const checked = selected();
  if (checked.length) return { runs: checked, why: `Selected runs: ${checked.length}.` };
  const found = table.rows({ search: "applied" }).data().toArray();
  const [runs, which] = found.length < data.runs.length ? [found, "that pass the filters"]
    : [data.runs.filter((run) => run.study === data.first), `of ${data.first}`];
  const known = runs.filter((run) => Object.keys(run.curves).length > 0).slice(0, 12);
  return { runs: known, why: `No run is selected: shown are ${known.length} ${which}.` };
}

/** A line each run; with bands, mean and deviation of configurations that have several seeds. */
function tracesOf(runs, metric, axis) {
  return [...Map.groupBy(runs, (run) => run.configuration)].flatMap(([key, seeds]) => {
    if (!slots.has(key)) slots.set(key, slots.size);
    const color = COLOURS[slots.get(key) % COLOURS.length];
    const curves = seeds.map((run) => pointsOf(run, metric, axis));
    if (!byId("band").checked || seeds.length < 2) return seeds.map((run, at) => ({
      ...trace(run.key, nameOf(run, runs), curves[at], { color, dash: DASHES[at % DASHES.length] }, axis),
      meta: run.folder,
    }));
    const points = meanAndStd(curves);
    const name = `${nameOf({ ...seeds[0], seed: null }, runs)}, mean of ${seeds.length} seeds`;
    const middle = { ...trace(key, name, points, { color, width: 2.5 }, axis), legendgroup: key };
    const hidden = { line: { width: 0 }, hoverinfo: "skip", showlegend: false, mode: "lines", legendgroup: key };
    const edge = (sign) => ({ ...hidden, x: middle.x, y: points.map(({ y, std }) => y + sign * std) });
    const band = { ...edge(1), uid: `${key}-high`, fill: "tonexty", fillcolor: `${color}2e` };
    return [{ ...edge(-1), uid: `${key}-low` }, band, middle];
  });
}

/** Mean and sample standard deviation of several curves at the steps that they share. */
function meanAndStd(curves) {
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const shared = (points) => points.length === curves.length && points.every(({ y }) => Number.isFinite(y));
  return [...Map.groupBy(curves.flat(), ({ step }) => step).values()].filter(shared).map((points) => {
    const mean = average(points.map(({ y }) => y));
    const variance = average(points.map(({ y }) => (y - mean) ** 2)) * points.length / (points.length - 1);
    return { x: average(points.map(({ x }) => x)), y: mean, std: Math.sqrt(variance) };
  });
}

/** A run's points on an axis; those that do not say how much was read until then are left out. */
function pointsOf(run, metric, axis) {
  const { steps, [axis]: amounts, values } = run.curves[metric];
  return values.map((y, i) => ({ step: steps[i], x: amounts[i], y })).filter(({ x }) => x !== null);
}

function trace(uid, name, points, line, axis) {
  const [x, y] = [points.map((point) => point.x), points.map((point) => point.y)];
  const mode = points.length <= 40 ? "lines+markers" : "lines";
  return { uid, x, y, line, mode, name: plain(name), hovertemplate: `%{x:,} ${axis}<br>%{y:.5g}` };
}

/** Text as plotly.js prints it literally: it reads tags and entities in names. */
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** Name runs as page.py names them within their study. */
function nameOf(run, runs) {
  const study = runs.some((other) => other.study !== run.study) ? `${run.study}: ` : "";
  return `${study}${run.name}${run.seed === null ? "" : `, seed ${run.seed}`}`;
}

/** The drawn curves as a table: points, first, last, lowest and highest value. */
function renderDrawn(runs, metric) {
  fillTable("drawn", ["Run", "Points", "First", "Last", "Lowest", "Highest"], runs.map((run) => {
    const { values } = run.curves[metric];
    const sorted = values.filter((value) => value !== null).sort((a, b) => a - b);
    const cells = [values.length, ...[values[0], values.at(-1), sorted[0], sorted.at(-1)].map(measured)];
    const name = element("th", { scope: "row" }, nameOf(run, runs));
    return element("tr", {}, name, ...cells.map((text) => element("td", {}, text)));
  }));
}

/** Offer the runs; at first two of the same study that are not seeds of each other. */
function renderChoices() {
  const runs = data.runs.filter(({ config }) => Object.keys(config).length);
  const other = (run) => run.study === runs[0].study && run.configuration !== runs[0].configuration;
  const options = runs.map((run) => [run.folder, `${run.study}: ${run.run}`]);
  setOptions(byId("one"), options, byId("one").value || runs[0]?.folder);
  setOptions(byId("another"), options, byId("another").value || (runs.find(other) ?? runs[0])?.folder);
}

function renderCompare() {
  const pair = ["one", "another"].map((id) => data.runs.find((run) => run.folder === byId(id).value)).filter(Boolean);
  byId("compare-note").textContent = pair.length ? "" : "No run has a config yet.";
  const rows = (pair.length ? ["config", "environment"] : []).flatMap((part) => {
    const [one, another] = pair.map((run) => run[part]);
    const keys = Object.keys({ ...one, ...another }).sort();
    const differing = keys.filter((key) => one[key] !== another[key]);
    byId("compare-note").append(`Of the ${part}, ${differing.length} of ${keys.length} keys differ. `);
    const title = element("tr", {}, element("th", { colspan: 3, scope: "colgroup" }, element("b", {}, part)));
    return [title, ...(byId("all-keys").checked ? keys : differing).map((key) => {
      const cells = [one, another].map((texts) => Object.hasOwn(texts, key)
        ? element("td", {}, element("code", {}, texts[key])) : element("td", { class: "muted" }, "not there"));
      const name = element("th", { scope: "row" }, differing.includes(key) ? "≠ " : "", element("code", {}, key));
      return element("tr", { "data-part": part, "data-key": key }, name, ...cells);
    })];
  });
  fillTable("compare-table", ["Key", ...pair.map((run) => run.run)], rows);
}

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
  if (!table) startTable(); else {
    const focused = document.activeElement.closest("#runs-table tbody tr")?.dataset.run;
    const checked = new Set(selected().map((run) => run.folder));
    table.off(EVENTS, renderCurves).clear().rows.add(data.runs);
    table.columns().columnControl.searchList("refresh");
    table.draw(false).rows((_, run) => checked.has(run.folder)).select();
    table.on(EVENTS, renderCurves);
    byId("runs-table").querySelector(`tr[data-run="${CSS.escape(focused ?? "")}"] input`)?.focus();
  }
  renderCurves();
  renderChoices();
  renderCompare();
}

async function poll() {
  if (document.hidden) return;
  const answer = await fetch("records.json", { cache: "no-store" }).catch(() => ({ ok: false }));
  if (answer.ok) take(await answer.json());
  const state = answer.ok ? "Live: new records appear here." : "The server does not answer; these are its last records.";
  if (byId("live").textContent !== state) byId("live").textContent = state; // it is read out whenever it is written
}

/** Copy a command; where the clipboard is closed, select it. */
async function copy({ target: button }) {
  const command = button.previousElementSibling;
  if (!button.matches(".command button")) return;
  window.getSelection().selectAllChildren(command);
  button.textContent = await navigator.clipboard.writeText(command.textContent).then(() => "Copied", () => "Selected");
}

async function start() {
  for (const packed of document.querySelectorAll("script.library")) {
    document.head.append(element("script", {}, await unpack(packed)));
  }
  take(JSON.parse(await unpack(byId("data"))));
  byId("curves").addEventListener("change", () => { wished = byId("metric").value; renderCurves(); });
  byId("compare").addEventListener("change", renderCompare);
  document.addEventListener("click", copy);
  if (Number(byId("live").dataset.poll) === 0) return;
  setInterval(poll, byId("live").dataset.poll * 1000);
  document.addEventListener("visibilitychange", poll);
}

showTheme();
system.addEventListener("change", showTheme);
byId("theme").addEventListener("click", () => {
  storage.theme = byId("theme").ariaPressed === "true" ? "light" : "dark";
  showTheme();
});
document.addEventListener("DOMContentLoaded", start);
