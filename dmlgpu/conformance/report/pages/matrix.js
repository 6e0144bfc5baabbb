// Operators by adapters: families fold, a search and a status choose rows.

function setUpMatrix(section, suite) {
  const [search, status] = [section.querySelector("input"), section.querySelector("select")];
  const unfold = section.querySelector("button.unfold");
  const rows = [...section.querySelectorAll("tr.operator")];
  const bodies = [...section.querySelectorAll("tbody[data-family]")];
  const folding = bodies.filter((body) => body.querySelector("tr.family"));
  const open = new Set(folding.filter((body) => body.querySelector("td.bad")));
  const statuses = statusesByOperator(suite);
  fillStatuses(status, suite);

  function update() {
    const text = search.value.trim().toLowerCase();
    const isFiltered = text !== "" || status.value !== "";
    let count = 0;
    for (const row of rows) {
      const operator = row.dataset.operator;
      const fits = (!status.value || statuses.get(operator).has(status.value)) && mentions(suite, operator, text);
      const body = row.parentElement;
      count += fits;
      row.hidden = !fits || !(isFiltered || open.has(body) || !folding.includes(body));
      row.dataset.fits = fits;
    }
    for (const body of folding) updateFamily(body, isFiltered || open.has(body));
    section.querySelector("[role=status]").textContent = isFiltered ? `${count} of ${counted(rows.length, "operator")}` : "";
    unfold.hidden = isFiltered || folding.length === 0;
    unfold.textContent = open.size === folding.length ? "fold all" : "unfold all";
  }

  for (const body of folding) {
    body.querySelector("tr.family button").addEventListener("click", () => {
      if (!open.delete(body)) open.add(body);
      update();
    });
  }
  unfold.addEventListener("click", () => {
    const all = open.size === folding.length;
    open.clear();
    if (!all) folding.forEach((body) => open.add(body));
    update();
  });
  for (const control of [search, status]) control.addEventListener("input", update);
  section.querySelector(".tools").hidden = false;
  update();
}

function updateFamily(body, isOpen) {
  body.querySelector("tr.family button").setAttribute("aria-expanded", String(isOpen));
  body.hidden = !body.querySelector("tr.operator[data-fits=true]");
}

function fillStatuses(select, suite) {
  const counts = new Map(data.statuses.map((status) => [status.name, 0]));
  for (const run of suite.runs) {
    for (const number of run.columns.status) {
      if (number !== null) counts.set(data.statuses[number].name, counts.get(data.statuses[number].name) + 1);
    }
  }
  const found = [...counts].filter(([, count]) => count > 0);
  select.append(option("", "any status"), ...found.map(([name, count]) => option(name, `${name} (${count})`)));
}

function statusesByOperator(suite) {
  const found = new Map([...suite.ranges.keys()].map((operator) => [operator, new Set()]));
  for (const run of suite.runs) {
    run.columns.status.forEach((number, index) => {
      if (number !== null) found.get(suite.owners[index]).add(data.statuses[number].name);
    });
  }
  return found;
}

// Whether an operator's name, or that of one of its cases, has a text in it.
function mentions(suite, operator, text) {
  if (text === "" || operator.includes(text)) return true;
  const wasRun = (index) => suite.runs.some((run) => suite.status(run, index) !== null);
  return suite.ranges.get(operator).some((index) => suite.cases[index].toLowerCase().includes(text) && wasRun(index));
}
