// The address says what is open: #suite/operator, #suite/case, either with /run at its end.

function address(suite, name) {
  return `#${encodeURIComponent(suite.name)}/${encodeURIComponent(name)}`;
}

function setUpRoutes(suites) {
  const dialog = document.getElementById("cases");
  function follow() {
    const [name, rest, number] = location.hash.slice(1).split("/").map(decodeURIComponent);
    const suite = suites.find((one) => one.name === name);
    const index = suite?.indices.get(rest) ?? null;
    const operator = suite?.ranges.has(rest) ? rest : suite?.owners[index];
    if (operator === undefined) return dialog.close();
    const run = suite.runs.find((one) => one.number === Number(number)) ?? null;
    showCases(suite, operator, { index: rest === operator ? null : index, run });
  }
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
  addEventListener("hashchange", follow);
  follow();
}

// The system's theme, or one that somebody chose here; kept where the browser keeps things for pages.
function setUpTheme() {
  const kept = (use) => {
    try {
      return use(localStorage);
    } catch {
      return null;
    }
  };
  const [button, themes] = [document.getElementById("theme"), ["system", "light", "dark"]];
  function show(theme) {
    document.documentElement.dataset.theme = theme;
    button.textContent = `theme: ${theme}`;
  }
  button.addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    kept((storage) => storage.setItem("dmlgpu-theme", next));
    show(next);
  });
  const chosen = kept((storage) => storage.getItem("dmlgpu-theme"));
  show(themes.includes(chosen) ? chosen : "system");
  button.hidden = false;
}

setUpTheme();
const suites = data.suites.map((suite) => new Suite(suite));
for (const section of document.querySelectorAll(".matrix-section")) {
  const [suite, numbers] = [suites.find(({ name }) => name === section.dataset.suite), section.dataset.runs.split(" ")];
  setUpMatrix(section, suite.withRuns(suite.runs.filter((run) => numbers.includes(String(run.number)))));
}
setUpDifferences(suites);
setUpRoutes(suites);
document.documentElement.dataset.ready = "true";
