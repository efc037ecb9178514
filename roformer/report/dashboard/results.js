/* The first table: what your runs came to, beside the record and the paper. */

const ANSWERS = { yes: "good", no: "bad", unclear: "odd" };

function renderResults() {
  const groups = [...groupBy(page.data.rows, (row) => row.experiment)].map(([, rows]) => rows);
  byId("yours").hidden = groups.length === 0;
  byId("yours-legend").textContent = `Pairs: the model / its baseline. ${page.data.legend}`;
  for (const body of [...byId("yours-table").tBodies]) body.remove();
  byId("yours-table").append(...groups.map((rows) => element("tbody", {}, groupRow(rows[0]), ...rows.map(resultRow))));
  byId("yours-notes").replaceChildren(...groups.map(notesOf));
}

function groupRow(row) {
  const scale = row.here_scale || row.record_scale;
  const other = row.here_scale && row.record_scale && row.here_scale !== row.record_scale;
  const words = [scale && `${row.here_scale ? "here" : "record"} ${scale}`, other && `record ${row.record_scale}`,
    `paper ${row.paper_scale}`].filter(Boolean).join("; ");
  return element("tr", { class: "group" }, element("th", { scope: "colgroup", colspan: 7 },
    element("b", {}, row.where), ` ${row.models} `, element("span", {}, words)));
}

function resultRow(row) {
  const number = (text) => element("td", { class: "number" }, text);
  const answer = ANSWERS[row.holds.replace(/[()]/g, "")];
  const within = row.verdict.startsWith("within") ? "good" : row.verdict.startsWith("off") ? "bad" : "muted";
  return element("tr", { "data-experiment": row.experiment, "data-metric": row.metric },
    element("th", { scope: "row" }, row.metric), number(row.paper), number(row.record),
    element("td", { class: "number" }, element("b", {}, row.here)),
    element("td", { class: answer }, row.holds), element("td", { class: within }, row.verdict),
    number(row.spread));
}

function notesOf([row]) {
  const scales = [["Here", row.here_scale], ["Record", row.record_scale], ["Paper", row.paper_settings]];
  const words = scales.filter(([, scale]) => scale).map(([name, scale]) => `${name}: ${scale}.`).join(" ");
  return element("p", { class: "note" }, element("b", {}, `${row.title}. `), `Claim: ${row.claim} ${words} Spread: ${row.how}`);
}
