// Every outcome of every run, in columns: see dmlgpu/conformance/report/writing.py.

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

  // The same cases with some of the runs.
  withRuns(runs) {
    return Object.assign(Object.create(Suite.prototype), this, { runs });
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

// An error that is given in units of what is allowed, as a share of that: see dmlgpu/conformance/running/outcome.py.
function boundText(value) {
  const share = shareText(value);
  if (value === null || value === Infinity || value === 0) return share;
  return `${share}${value < 10 ? " of" : ""} the tolerance`;
}

function shareText(value) {
  if (value === null) return "";
  if (value === Infinity) return "out of tolerance";
  if (value === 0) return "exact";
  return value < 10 ? percentText(100 * value) : `${shortNumber(value)} times`;
}

function percentText(percent) {
  if (percent < 0.1) return "below 0.1 %";
  const text = percent < 9.95 ? String(Number(percent.toPrecision(2))) : percent.toFixed(0);
  return text === "100" && percent > 100 ? "just over 100 %" : `${text} %`;
}

// As many things as there are, by their name.
function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
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
