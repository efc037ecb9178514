/* Curves of the checked runs in one plot. Colours tell arms apart, dashes their seeds. */

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const COLOURS = 8; // --curve-1 … in the style sheet
const MOST_BY_DEFAULT = 12;
const wished = { metric: "valid/mlm_loss" };
const slots = new Map(); // arm → number of its colour, while it is drawn

function startCurves() {
  for (const id of ["axis", "log", "band"]) byId(id).addEventListener("change", renderCurves);
  byId("metric").addEventListener("change", () => {
    wished.metric = byId("metric").value;
    renderCurves();
  });
  theme.system.addEventListener("change", renderCurves);
}

function renderCurves() {
  const { runs, why } = chosenRuns();
  const metric = renderMetrics(runs);
  const having = runs.filter((run) => Object.hasOwn(run.curves, metric));
  const drawn = page.checked.size ? having : having.slice(0, MOST_BY_DEFAULT);
  const axis = byId("axis").value;
  const traces = byId("band").checked ? bandTraces(drawn, metric, axis) : runTraces(drawn, metric, axis);
  const without = runs.length - having.length;
  const left = without && page.checked.size ? ` ${without} of the checked runs have no ${metric}.` : "";
  byId("curves-note").textContent = why + left;
  byId("plot").setAttribute("aria-label", `${metric || "No metric"} over ${axis} of ${drawn.length} runs`);
  Plotly.react(byId("plot"), traces, layoutOf(metric, axis, traces), {
    responsive: true,
    displaylogo: false,
    modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
    toImageButtonOptions: { filename: "curves", scale: 2 },
  });
  renderDrawn(drawn, metric);
}

/** The checked runs; where there are none, those of the filters, yours, or those of the study
    that has most models with the metric. */
function chosenRuns() {
  const withCurves = (run) => Object.keys(run.curves).length > 0;
  if (page.checked.size) {
    const runs = page.data.runs.filter((run) => page.checked.has(run.id));
    return { runs, why: runs.length === 1 ? "One checked run." : `${runs.length} checked runs.` };
  }
  if (isFiltered()) {
    const found = filteredRuns().filter(withCurves);
    const some = found.length > MOST_BY_DEFAULT ? `the first ${MOST_BY_DEFAULT} of ` : "";
    const why = `No run is checked: shown are ${some}those that pass the filters.`;
    return { runs: found.slice(0, MOST_BY_DEFAULT), why };
  }
  const yours = page.data.runs.filter((run) => run.study === page.data.yours && withCurves(run));
  if (yours.length) return { runs: yours, why: "No run is checked: shown are yours." };
  const studies = [...groupBy(page.data.runs.filter(withCurves), (run) => run.study)];
  const arms = ([, runs]) =>
    new Set(runs.filter((run) => Object.hasOwn(run.curves, wished.metric)).map((run) => run.label)).size;
  const most = Math.max(...studies.map(arms));
  const [study, runs] = studies.find((found) => arms(found) === most) ?? ["", []];
  const why = runs.length ? `No run is checked: shown are those of ${study}.` : "No run has a curve yet.";
  return { runs, why };
}

/** Offer the metrics of these runs; return the one that is drawn. */
function renderMetrics(runs) {
  const metrics = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))].sort();
  const usual = runs.flatMap((run) => run.headline.map(([metric]) => metric));
  const metric = [wished.metric, ...usual, ...metrics].find((name) => metrics.includes(name)) ?? "";
  const groups = groupBy(metrics, (name) => name.split("/")[0]);
  const options = [...groups].map(([group, names]) => [group, names.map((name) => [name, name])]);
  setGroupedOptions(byId("metric"), options, metric);
  return metric;
}

function runTraces(runs, metric, axis) {
  const names = traceNames(runs);
  const colours = armColours(runs);
  const seeds = new Map([...groupBy(runs, (run) => run.arm)].flatMap(([, arm]) => arm.map((run, at) => [run.id, at])));
  return runs.map((run) => {
    const { x, y } = pointsOf(run, metric, axis);
    const dash = DASHES[seeds.get(run.id) % DASHES.length];
    return lineTrace(run.key, names.get(run.id), x, y, { color: colours.get(run.arm), dash, width: 2 }, axis, run.id);
  });
}

/** Arms of several seeds as mean and band, at the updates that all their seeds have. */
function bandTraces(runs, metric, axis) {
  const colours = armColours(runs);
  const arms = [...groupBy(runs, (run) => run.arm)];
  const names = traceNames(arms.map(([, seeds]) => seeds[0]), { seed: false });
  return arms.flatMap(([arm, seeds]) => {
    const name = names.get(seeds[0].id);
    const color = colours.get(arm);
    if (seeds.length < 2) {
      const { x, y } = pointsOf(seeds[0], metric, axis);
      return [lineTrace(arm, `${name}, one seed`, x, y, { color, width: 2 }, axis)];
    }
    const { x, mean, std } = meanAndStd(seeds.map((run) => pointsOf(run, metric, axis)));
    const edge = { x, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
    const fill = { fill: "tonexty", fillcolor: color.replace("rgb(", "rgba(").replace(")", ", 0.18)") };
    return [
      { ...edge, uid: `${arm}-low`, legendgroup: arm, y: mean.map((value, i) => value - std[i]) },
      { ...edge, uid: `${arm}-high`, legendgroup: arm, y: mean.map((value, i) => value + std[i]), ...fill },
      { ...lineTrace(arm, `${name}, mean of ${seeds.length} seeds`, x, mean, { color, width: 2.5 }, axis), legendgroup: arm },
    ];
  });
}

/** Mean and sample standard deviation of several curves at the updates that they share. */
function meanAndStd(curves) {
  const maps = curves.map(({ updates, x, y }) => new Map(updates.map((step, i) => [step, { x: x[i], y: y[i] }])));
  const shared = curves[0].updates.filter((step) => maps.every((map) => Number.isFinite(map.get(step)?.y)));
  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const columns = shared.map((step) => maps.map((map) => map.get(step)));
  const mean = columns.map((column) => average(column.map(({ y }) => y)));
  const std = columns.map((column, i) =>
    Math.sqrt(column.reduce((sum, { y }) => sum + (y - mean[i]) ** 2, 0) / (column.length - 1)));
  return { x: columns.map((column) => average(column.map(({ x }) => x))), mean, std };
}

/** A run's points on an axis; those that do not say how much was read until then are left out. */
function pointsOf(run, metric, axis) {
  const [at, values] = run.curves[metric];
  const amounts = run.axes[at];
  const known = values.map((_, i) => i).filter((i) => amounts[axis][i] !== null);
  const pick = (column) => known.map((i) => column[i]);
  return { updates: pick(amounts.updates), x: pick(amounts[axis]), y: pick(values) };
}

/** A curve; plotly.js makes selectors of `uid`, which is therefore no name. */
function lineTrace(uid, name, x, y, line, axis, meta = uid) {
  const few = x.length <= 40;
  return {
    uid, meta, x, y, line, type: "scatter", name: plain(name), mode: few ? "lines+markers" : "lines",
    marker: { size: 6 }, hovertemplate: `%{x:,} ${axis}<br>%{y:.5g}`,
  };
}

/** Text as plotly.js prints it literally: it reads tags and entities in names. */
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Name runs by model and position, and what tells those of one name apart; else by their id. */
function traceNames(runs, { seed = true } = {}) {
  const names = new Map();
  const titles = (run) => (run.task ? `${run.label}, ${run.task}` : run.label);
  for (const [title, alike] of groupBy(runs, titles)) {
    const differing = differingKeys(alike);
    for (const run of alike) {
      const settings = differing.map((key) => `, ${key.split(".").pop()}=${run.config[key] ?? "none"}`);
      const short = title + settings.join("") + (seed && run.seed !== null ? `, seed ${run.seed}` : "");
      const name = seed ? run.name : run.name.replace(/-s-?\d+$/, "");
      names.set(run.id, differing.length > (isNarrow() ? 0 : 3) ? name : short);
    }
  }
  const counts = groupBy([...names.values()], (name) => name);
  for (const run of runs) if (counts.get(names.get(run.id)).length > 1) names.set(run.id, `${run.study}: ${run.name}`);
  return names;
}

function isNarrow() {
  return window.matchMedia("(max-width: 60rem)").matches;
}

function differingKeys(runs) {
  const free = /^(seed|resume|task\..*|runtime\..*|tracker\..*)$/;
  const keys = new Set(runs.flatMap((run) => Object.keys(run.config)));
  return [...keys].filter((key) => !free.test(key) && new Set(runs.map((run) => run.config[key])).size > 1);
}

/** Give each arm a colour and keep it as long as the arm is drawn. */
function armColours(runs) {
  const arms = new Set(runs.map((run) => run.arm));
  for (const arm of slots.keys()) if (!arms.has(arm)) slots.delete(arm);
  for (const arm of arms) {
    const taken = new Set(slots.values());
    const free = [...Array(COLOURS).keys()].find((slot) => !taken.has(slot)) ?? taken.size % COLOURS;
    if (!slots.has(arm)) slots.set(arm, free);
  }
  return new Map([...arms].map((arm) => [arm, colour(`--curve-${slots.get(arm) + 1}`)]));
}

/** The style sheet's colour in this theme, as rgb(). */
function colour(name) {
  const probe = element("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function layoutOf(metric, axis, traces) {
  const narrow = isNarrow();
  const long = traces.some(({ name }) => name?.length > 48);
  const [text, muted, line] = [colour("--text"), colour("--muted"), colour("--line")];
  const scale = { gridcolor: line, linecolor: line, zeroline: false, automargin: true, tickfont: { color: muted } };
  const below = { orientation: narrow ? "h" : "v", x: 0, y: -0.2, yanchor: "top" };
  const log = byId("log").checked;
  return {
    xaxis: { ...scale, title: { text: axis, font: { size: 13, color: muted } }, rangemode: "tozero", tickformat: "~s" },
    yaxis: { ...scale, title: { text: plain(metric), font: { size: 13, color: muted } }, type: log ? "log" : "linear" },
    // The same revision keeps zoom and hidden curves when points are added.
    uirevision: [metric, axis, log].join(" "),
    font: { family: "system-ui, sans-serif", size: 13, color: text },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { namelength: -1 },
    margin: { l: 60, r: 16, t: 36, b: 48 },
    height: (narrow ? 400 : 480) + (narrow || long ? 22 * Math.min(traces.length, 12) : 0),
    showlegend: true,
    legend: { bgcolor: "rgba(0,0,0,0)", ...(narrow || long ? below : { x: 1.02, y: 1 }) },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: text },
    dragmode: narrow ? false : "zoom",
  };
}

function renderDrawn(runs, metric) {
  const names = traceNames(runs);
  const cell = (value) => element("td", { class: "number", title: value ?? "NaN" }, measured(value));
  const rows = runs.map((run) => {
    const values = run.curves[metric][1];
    const finite = values.filter((value) => value !== null);
    const extremes = finite.length ? [Math.min(...finite), Math.max(...finite)] : [null, null];
    const shown = [values[0], values[values.length - 1], ...extremes].map(cell);
    const points = element("td", { class: "number" }, counted(values.length));
    return element("tr", {}, element("th", { scope: "row" }, names.get(run.id)), points, ...shown);
  });
  byId("drawn").tBodies[0].replaceChildren(...rows);
}
