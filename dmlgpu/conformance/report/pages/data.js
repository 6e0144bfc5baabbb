// Every outcome of every run, in columns: see dmlgpu/conformance/report/dataset.py.

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const data = await unpack(document.getElementById("data").textContent);
const KINDS = Object.keys(data.signs);

// One suite: its cases by operator, and its runs.
class Suite {
  constructor({ name, cases, operators, runs }) {
    Object.assign(this, { name, cases, runs, ranges: new Map(), owners: [] });
    for (const [operator, count] of operators) {
      const first = this.owners.length;
      this.ranges.set(operator, Array.from({ length: count }, (_, number) => first + number));
      for (let number = 0; number < count; number++) this.owners.push(operator);
    }
    this.indices = new Map(cases.map((name, index) => [name, index]));
  }

  // What came of a case in a run; null where it was not run.
  outcome(run, index) {
    if (run.columns.status[index] === null) return null;
    const found = { case: this.cases[index] };
    for (const [name, column] of Object.entries(run.columns)) found[name] = column[index];
    found.status = data.statuses[found.status];
    for (const name of ["share", "max", "mean"]) found[name] = distance(found[name]);
    return found;
  }

  // What two outcomes are compared by.
  brief({ columns }, index) {
    const number = columns.status[index];
    if (number === null) return null;
    return { status: data.statuses[number], share: distance(columns.share[index]), bits: columns.bits[index] };
  }

  status(run, index) {
    const number = run.columns.status[index];
    return number === null ? null : data.statuses[number];
  }
}

// JSON has no infinity: it comes as text.
function distance(value) {
  return value === "inf" ? Infinity : value;
}

// An error in units of what is allowed.
function boundText(value) {
  if (value === null) return "";
  if (value === Infinity) return "beyond any bound";
  if (value === 0) return "exact";
  return value < 0.001 ? "below 0.001 of the bound" : `${shortNumber(value)} of the bound`;
}

function ulpText(value) {
  if (value === null) return "";
  return value === Infinity ? "not comparable" : `${shortNumber(value)} ULP`;
}

function shortNumber(value) {
  return value < 1e7 ? value.toLocaleString("en", { maximumSignificantDigits: 3 }) : value.toExponential(2);
}

// As Python's shlex.quote, so that a command can be pasted into a shell.
function quoted(text) {
  return text && /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`;
}

// How a case changed between two runs, or null: see dmlgpu/conformance/report/changes.py.
function change(before, after) {
  if (!before || !after) return before || after ? (before ? "missing" : "new") : null;
  if (before.status !== after.status) return changeOfStatus(before.status, after.status);
  const [old, now] = [before.share ?? 0, after.share ?? 0];
  if (old !== now) return now > old ? "less accurate" : "more accurate";
  return before.bits === after.bits ? null : "other bits";
}

function changeOfStatus(before, after) {
  if (after.failure && !before.failure) return "regression";
  if (before.name === "pass" && after.name === "not supported") return "regression";
  return before.failure && !after.failure ? "repaired" : "changed";
}
