// Elements made from values; text is always set as text.

function make(tag, values = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

function mark(status, text = status.name) {
  return make("span", { className: `mark ${status.kind}` }, `${data.signs[status.kind]} ${text}`);
}

// A table whose rows are made as they are wanted, so many at a time.
function longTable(className, heads, items, row, step = 200) {
  const body = make("tbody");
  const more = make("button", { type: "button", onclick: grow });
  let shown = 0;
  function grow() {
    const next = items.slice(shown, shown + step);
    body.append(...next.map(row));
    shown += next.length;
    more.hidden = shown === items.length;
    more.textContent = `show more of ${items.length - shown}`;
  }
  grow();
  const columns = heads.map((text) => make("th", { scope: "col" }, ...[text].flat()));
  const head = make("thead", {}, make("tr", {}, ...columns));
  const table = make("table", { className }, head, body);
  return make("div", {}, make("div", { className: "scroll", tabIndex: 0 }, table), make("p", {}, more));
}

function heading(run) {
  return [run.name, make("small", {}, run.details)];
}

function label(run) {
  return `${run.name} (${run.details})`;
}

function option(value, text) {
  return make("option", { value: String(value) }, text);
}

// What a compiler or a driver said: lines as they are, in a box of its own.
function message(text) {
  if (!text.trim().includes("\n")) return text;
  return make("pre", { className: "message", tabIndex: 0, role: "region", ariaLabel: "Message" }, text.trimEnd());
}

// A command, and a button that copies it where pages may.
function command(text) {
  const button = make("button", { type: "button", hidden: !navigator.clipboard }, "copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  });
  return make("div", { className: "command" }, make("code", {}, text), button);
}
