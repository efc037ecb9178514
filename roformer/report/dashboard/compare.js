/* Two configs side by side, and the tables of the report: those of recorded studies are folded. */

function startCompare() {
  for (const id of ["one", "another", "all-keys"]) byId(id).addEventListener("change", renderCompare);
}

/** Offer the runs; at first two of the same study that were not the same arm. */
function renderChoices() {
  const runs = page.data.runs.filter((run) => Object.keys(run.config).length > 0);
  const groups = [...groupBy(runs, (run) => run.study)];
  const options = groups.map(([study, members]) => [study, members.map((run) => [run.id, run.name])]);
  const usual = groups.map(([, members]) => [members[0], members.find((run) => run.arm !== members[0].arm)]);
  const [one, another] = usual.find(([, other]) => other) ?? [runs[0], runs[0]];
  setGroupedOptions(byId("one"), options, byId("one").value || one?.id);
  setGroupedOptions(byId("another"), options, byId("another").value || another?.id);
}

function renderCompare() {
  const runs = runsById();
  const [one, another] = [runs.get(byId("one").value), runs.get(byId("another").value)];
  const body = byId("compare-table").tBodies[0];
  body.replaceChildren();
  if (!one || !another) {
    byId("compare-note").textContent = "No run has a config yet.";
    return;
  }
  byId("compare-one").replaceChildren(element("code", {}, one.name));
  byId("compare-another").replaceChildren(element("code", {}, another.name));
  const notes = [];
  for (const [part, title] of [["config", "Config"], ["environment", "Environment"]]) {
    const keys = [...new Set([...Object.keys(one[part]), ...Object.keys(another[part])])].sort();
    const differs = (key) => one[part][key] !== another[part][key];
    const differing = keys.filter(differs);
    notes.push(`${title}: ${differing.length} of ${keys.length} keys differ.`);
    const shown = byId("all-keys").checked ? keys : differing;
    body.append(element("tr", { class: "part" }, element("th", { colspan: 3, scope: "colgroup" }, title)));
    body.append(...shown.map((key) => compareRow(part, key, one[part][key], another[part][key])));
  }
  byId("compare-note").textContent = notes.join(" ");
}

function compareRow(part, key, one, another) {
  const differs = one !== another;
  const mark = element("span", { class: "mark" }, differs ? "≠" : "");
  const cell = (value) => value === undefined
    ? element("td", { class: "muted" }, "not there")
    : element("td", {}, element("code", {}, value));
  const head = element("th", { scope: "row" }, mark, element("code", {}, ...breakable(key)));
  return element("tr", { "data-part": part, "data-key": key, class: differs ? "differs" : null },
    head, cell(one), cell(another));
}

/** The report's tables under their headings, and links to them. */
function renderSections() {
  for (const link of document.querySelectorAll("#nav .made")) link.remove();
  const last = byId("nav").lastElementChild;
  const open = new Set([...document.querySelectorAll("#sections details[open]")].map(({ dataset }) => dataset.heading));
  const made = page.data.sections.map(({ heading, yours, tables }, number) => {
    const id = `section-${number}`;
    const link = element("a", { href: `#${id}` }, heading.split(":")[0]);
    const title = element("h2", { id: `${id}-heading` }, heading);
    const attributes = { open: yours || open.has(heading), "data-heading": heading };
    const details = element("details", attributes, element("summary", {}, title), ...tables.map(tableOf));
    link.addEventListener("click", () => { details.open = true; });
    last.before(element("li", { class: "made" }, link));
    return element("section", { id, "aria-labelledby": `${id}-heading`, tabindex: "-1" }, details);
  });
  byId("sections").replaceChildren(...made);
}

function tableOf({ title, lines, textColumns, notes, command }) {
  const number = (column) => (column >= textColumns ? "number" : null);
  const [head, ...rows] = lines.map((cells, row) => element("tr", {}, ...cells.map((text, column) => {
    if (row === 0) return element("th", { scope: "col", class: number(column) }, text);
    return column === 0 ? element("th", { scope: "row" }, text) : element("td", { class: number(column) }, text);
  })));
  const table = element("table", {}, element("caption", {}, element("span", {}, title)),
    element("thead", {}, head), element("tbody", {}, ...rows));
  const region = element("div", { class: "region", tabindex: "0", role: "region", "aria-label": title }, table);
  const figure = element("div", { class: "report" }, region, ...notes.map((note) => element("p", { class: "note" }, note)));
  if (command) figure.append(commandOf(command));
  return figure;
}

function commandOf(command) {
  const code = element("code", { tabindex: "0" }, command);
  const button = element("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = await copied(code) ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  return element("div", { class: "command" }, code, button);
}

/** Copy an element's text; where the clipboard is closed, select it. */
async function copied(code) {
  window.getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch {
    return false;
  }
}
