// What changed between any two runs of a suite, regressions first.

// The address #differences/number/number chooses the runs.
function setUpDifferences(suites) {
  const section = document.getElementById("differences");
  const pairs = suites.filter((suite) => suite.runs.length > 1);
  if (pairs.length === 0) return;
  section.hidden = false;
  const runs = pairs.flatMap((suite) => suite.runs.map((run) => ({ suite, run })));
  const [before, after] = [document.getElementById("before"), document.getElementById("after")];
  for (const select of [before, after]) {
    for (const suite of pairs) {
      const options = suite.runs.map((run) => option(run.number, label(run)));
      select.append(...(pairs.length > 1 ? [make("optgroup", { label: suite.name }, ...options)] : options));
    }
  }
  const [name, ...numbers] = location.hash.slice(1).split("/");
  const exists = (number) => runs.some(({ run }) => String(run.number) === number);
  const isAsked = name === "differences" && numbers.length === 2 && numbers.every(exists);
  [before.value, after.value] = isAsked ? numbers : firstPair(pairs[0]).map((run) => String(run.number));
  if (isAsked) section.scrollIntoView();
  const chosen = (select) => runs.find(({ run }) => run.number === Number(select.value));
  function update(event) {
    const [from, to] = [chosen(before), chosen(after)];
    if (from.suite === to.suite) return showChanges(from.suite, from.run, to.run);
    const moved = event.target === before ? after : before;
    moved.value = String(chosen(event.target).suite.runs.find((run) => run !== chosen(event.target).run).number);
    update(event);
  }
  for (const select of [before, after]) {
    select.addEventListener("input", (event) => {
      update(event);
      history.replaceState(null, "", `#differences/${before.value}/${after.value}`);
    });
  }
  update({ target: before });
}

// Two runs on one adapter where there are, the first and the second otherwise.
function firstPair(suite) {
  const names = suite.runs.map((run) => run.command);
  const second = suite.runs.findIndex((run, number) => names.indexOf(run.command) < number);
  return second < 0 ? suite.runs.slice(0, 2) : [suite.runs[names.indexOf(names[second])], suite.runs[second]];
}

function changesBetween(suite, before, after) {
  const [found, isSame] = [[], before.selection === after.selection];
  for (let index = 0; index < suite.cases.length; index++) {
    const outcomes = [suite.brief(before, index), suite.brief(after, index)];
    if (!isSame && outcomes.includes(null)) continue; // other cases were asked for: none is missing
    const kind = change(...outcomes);
    if (kind !== null) found.push({ index, kind });
  }
  const order = (one) => data.changes.indexOf(one.kind);
  return found.sort((one, other) => order(one) - order(other) || one.index - other.index);
}

function showChanges(suite, before, after) {
  const found = changesBetween(suite, before, after);
  const buttons = data.changes.filter((kind) => found.some((one) => one.kind === kind)).map((kind) => {
    const count = found.filter((one) => one.kind === kind).length;
    return make("button", { type: "button", ariaPressed: "false", value: kind }, `${count} ${kind === "regression" && count > 1 ? "regressions" : kind}`);
  });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const isPressed = button.ariaPressed !== "true";
      buttons.forEach((one) => (one.ariaPressed = String(one === button && isPressed)));
      list(isPressed ? found.filter((one) => one.kind === button.value) : found);
    });
  }
  const both = suite.cases.filter((_, index) => suite.status(before, index) && suite.status(after, index)).length;
  const selections = `${counted(both, "case")} in both: ${before.selection}; ${after.selection}`;
  document.getElementById("selections").textContent = before.selection === after.selection ? "" : selections;
  function list(wanted) {
    const heads = ["change", "case", "before", "after"];
    const table = longTable("results", heads, wanted, (one) => changeRow(suite, one, [before, after]), 100);
    const none = make("p", {}, `No differences in ${counted(both, "case")} that both ran.`);
    document.getElementById("changes").replaceChildren(wanted.length ? table : none);
  }
  document.getElementById("change-kinds").replaceChildren(...buttons);
  list(found);
}

function changeRow(suite, { index, kind }, runs) {
  const name = suite.cases[index];
  const link = make("a", { href: address(suite, name) }, make("code", {}, name));
  const results = runs.map((run) => resultCell(suite.outcome(run, index)));
  return make("tr", {}, make("td", {}, kind), make("td", {}, link), ...results);
}
