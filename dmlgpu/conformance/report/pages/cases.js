// The cases of an operator, run beside run; each unfolds into all that is known of it.

function showCases(suite, operator, { index = null, run = null } = {}) {
  const dialog = document.getElementById("cases");
  dialog.querySelector("h2").textContent = operator;
  const search = make("input", { type: "search", placeholder: "part of a case's name", ariaLabel: "Search cases" });
  const [status, chosen] = [make("select", { ariaLabel: "Status" }), make("select", { ariaLabel: "Adapter" })];
  const indices = suite.ranges.get(operator);
  const shown = suite.runs.filter((one) => indices.some((index) => suite.status(one, index) !== null));
  fillCounts(status, suite, indices);
  chosen.append(option("", "any adapter"), ...shown.map((one) => option(one.number, label(one))));
  chosen.value = run === null || index !== null ? "" : String(run.number);
  const results = make("div");
  const only = indices.length === 1 ? indices[0] : index;

  function update() {
    const wanted = { text: search.value.trim().toLowerCase(), status: status.value };
    const runs = shown.filter((one) => !chosen.value || one.number === Number(chosen.value));
    const found = indices.filter((one) => fits(suite, one, runs, wanted));
    const sorted = bySeverity(suite, found, runs, only);
    const heads = ["case", ...shown.map(heading)];
    const table = longTable("results", heads, sorted, (one) => caseRow(suite, one, shown, one === only ? run : null));
    results.replaceChildren(make("p", { className: "soft" }, `${found.length} of ${counted(indices.length, "case")}`), table);
  }

  for (const control of [search, status, chosen]) control.addEventListener("input", update);
  update();
  dialog.querySelector(".body").replaceChildren(make("div", { className: "tools" }, search, status, chosen), results);
  if (!dialog.open) dialog.showModal();
  if (only !== null) results.querySelector("th button").click();
  dialog.querySelector(".body").scrollTop = 0;
}

function fillCounts(select, suite, indices) {
  const counts = data.statuses.map((status) => {
    const here = (index) => suite.runs.some((run) => suite.status(run, index) === status);
    return [status.name, indices.filter(here).length];
  });
  const found = counts.filter(([, count]) => count > 0);
  select.append(option("", "any status"), ...found.map(([name, count]) => option(name, `${name} (${count})`)));
}

function fits(suite, index, runs, { text, status }) {
  if (!suite.cases[index].toLowerCase().includes(text)) return false;
  return runs.some((run) => {
    const found = suite.status(run, index);
    return found !== null && (!status || found.name === status);
  });
}

// The case that was asked for, what is wrong, then the farthest off.
function bySeverity(suite, indices, runs, first) {
  const keys = new Map(indices.map((index) => [index, severity(suite, index, runs, first)]));
  return [...indices].sort((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    const at = a.findIndex((value, number) => value !== b[number]);
    return at < 0 ? one - other : a[at] < b[at] ? -1 : 1;
  });
}

function severity(suite, index, runs, first) {
  const kinds = runs.map((run) => KINDS.indexOf(suite.status(run, index)?.kind ?? "good"));
  const errors = runs.map((run) => distance(run.columns.share[index]) ?? 0);
  return [index === first ? 0 : 1, Math.min(...kinds), -Math.max(...errors)];
}

function caseRow(suite, index, runs, emphasized) {
  const name = suite.cases[index];
  const button = make("button", { type: "button", ariaExpanded: "false" }, name);
  const row = make("tr", {}, make("th", { scope: "row" }, button));
  for (const run of runs) row.append(resultCell(suite.outcome(run, index)));
  button.addEventListener("click", () => {
    const isOpen = row.classList.toggle("open");
    button.ariaExpanded = String(isOpen);
    if (!isOpen) return row.nextElementSibling.remove();
    row.after(detailsRow(suite, index, runs, emphasized));
    history.replaceState(null, "", address(suite, name));
  });
  return row;
}

function resultCell(outcome) {
  if (outcome === null) return make("td", { className: "soft" }, "not run");
  const short = shareText(outcome.share);
  const text = outcome.status.name === "pass" ? short : [outcome.status.name, short].filter(Boolean).join(", ");
  return make("td", { className: outcome.status.kind }, `${data.signs[outcome.status.kind]} ${text}`);
}

function detailsRow(suite, index, shown, emphasized) {
  const rank = (run) => (run === emphasized ? -1 : KINDS.indexOf(suite.status(run, index)?.kind ?? "good"));
  const runs = [...suite.runs].sort((one, other) => rank(one) - rank(other));
  const found = runs.map((run) => [run, suite.outcome(run, index)]).filter(([, outcome]) => outcome !== null);
  const cards = found.map(([run, outcome]) => outcomeCard(run, outcome, found));
  const all = make("div", { className: "outcomes" }, ...cards);
  return make("tr", { className: "more" }, make("td", { colSpan: shown.length + 1, className: "more-cell" }, all));
}

function outcomeCard(run, outcome, found) {
  const list = make("dl");
  for (const [name, text] of Object.entries(factsOf(run, outcome, found))) {
    if (text !== "") list.append(make("dt", {}, name), make("dd", {}, message(text)));
  }
  const title = make("h3", {}, mark(outcome.status), ` ${label(run)}`);
  return make("div", { className: "outcome" }, title, list, command(`${run.command} ${quoted(outcome.case)}`));
}

function factsOf(run, outcome, found) {
  const twins = found.filter(([other, one]) => other !== run && outcome.bits !== 0 && one.bits === outcome.bits);
  return {
    "message": outcome.message,
    "why": outcome.reason,
    "needs": outcome.missing,
    "error": boundText(outcome.share),
    "distance": outcome.max === null ? "" : `at most ${ulpText(outcome.max)}, ${ulpText(outcome.mean)} on average`,
    "allowed": outcome.tolerance,
    "wrong": outcome.wrong ? `${outcome.wrong.toLocaleString("en")} of ${counted(outcome.elements, "element")}` : "",
    "elements": outcome.wrong ? "" : String(outcome.elements || ""),
    "worst at": outcome.expected && `[${outcome.worst}]`,
    "inputs": outcome.inputs,
    "expected": outcome.expected,
    "got": outcome.got,
    "difference": outcome.bound === null ? "" : `at most ${outcome.bound} allowed`,
    "ran as": outcome.kernels,
    "same bits": twins.map(([other]) => label(other)).join("; "),
    "time": outcome.seconds ? `${outcome.seconds} s` : "",
  };
}
