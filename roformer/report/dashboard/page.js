/* What the other files share: the records, what is checked, and how elements and numbers are made.
   Text out of records becomes text nodes and attribute values here, never markup. */

const page = {
  data: JSON.parse(document.getElementById("data").textContent),
  checked: new Set(), // ids of runs
};

function byId(id) {
  return document.getElementById(id);
}

/** Make an element; children that are strings become text. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/** Text that may be broken after its dots and underscores. */
function breakable(text) {
  return text.split(/(?<=[._])/).flatMap((word, at) => (at ? [element("wbr"), word] : [word]));
}

/** Give a select these [value, text] options; keep what is chosen where it is still there. */
function setOptions(select, options, chosen = select.value) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

/** Like setOptions, with the options in groups: [[group, options], …]. */
function setGroupedOptions(select, groups, chosen = select.value) {
  const made = groups.map(([label, options]) =>
    element("optgroup", { label }, ...options.map(([value, text]) => element("option", { value }, text))));
  select.replaceChildren(...made);
  if (groups.some(([, options]) => options.some(([value]) => value === chosen))) select.value = chosen;
}

/** Put items under the keys that `key` gives, in the order in which they come. */
function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(key(item))) groups.set(key(item), []);
    groups.get(key(item)).push(item);
  }
  return groups;
}

/** A measured number with as many decimals as its neighbours have; null is what was not finite. */
function measured(value) {
  if (value === null) return "NaN";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3);
  if (size >= 1000) return counted(value);
  return value.toFixed(size < 10 ? 4 : 2);
}

function counted(value) {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

function runsById() {
  return new Map(page.data.runs.map((run) => [run.id, run]));
}
