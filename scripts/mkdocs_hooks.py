"""Hooks of the documentation site: pages that are generated when it is built.

Each operator and each verb of the command line has a generated page, and CONTRIBUTING.md becomes a page. Pages link to
shaders, references and examples outside `docs/`, so that links work in the repository. The site has no such files: each
becomes a page under `source/`, and the links are rewritten.
"""

from __future__ import annotations

import functools
import html
import importlib
import inspect
import posixpath
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pages import cli, operators

from dmlgpu.catalog import catalog

LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
DOCUMENT = re.compile(r"<code>(ns-directml-\w+)</code>")
COMPUTED = re.compile(r"<p>Computed by .*?</p>", re.DOTALL)
OPERATOR = re.compile(r"\b[A-Z][A-Z0-9_]{2,}\b")
ANCHOR = re.compile(r'id="(dmlgpu\.[\w.]+)"')
SEE_ALSO = re.compile(r'<details class="see-also".*?</details>', re.DOTALL)
NAME = re.compile(r"<code>([A-Za-z_]\w*)</code>")
LANGUAGES = {".wgsl": "wgsl", ".py": "python", ".json": "json", ".toml": "toml", ".txt": "text"}
CELL = re.compile(r"(<td(?: style=\"[^\"]*\")?)>(.*?)</td>", re.DOTALL)
UNIT = re.compile(r" (?=±)|(?<=[\d±]) (?=[\d.]+ %|%|[mun]?s\b|GB/s|GFLOP/s|[KMG]iB\b|bytes\b)")
DATE = re.compile(r"\b\d{4}-\d\d-\d\d(?: \d\d:\d\d UTC)?")
ENTRY = re.compile(r"(<span class=\"md-ellipsis\">|<h[1-3] id=\"[^\"]*\">)([^<]*)")
LONG_NAME = re.compile(r"(<code>|<a [^>]*>)([^<\s]{16,})(?=</code>|</a>)")
CELLS = {"prose": 60, "sentence": 40, "phrase": 20}
"""Classes of a table's cells by the length of a line, from which the stylesheet gives each a least width."""
RESULTS = ("conformance-table.md", "formulas.md", "mutants.md", "onnx-backend.md", "pytorch-operators.md", "speed.md")
"""Pages whose long tables name everything; a search lists other pages before them."""

GUIDES = ("Tutorial", "Guide", "Coming from")
"""Sections of the navigation whose pages a search lists before others."""

FUNCTIONS = "reference/ops.md"
"""The page that lists the functions of ``dmlgpu.ops``, whose parts are in a folder of that name."""
LISTED = "<!-- the functions, listed by scripts/mkdocs_hooks.py -->"
MEMBERS = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
TITLE = re.compile(r"^# (.*)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Show the version on every page, link the repository if the project names one, and list the generated pages."""
    project = tomllib.loads((Path(config.docs_dir).parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.copyright = f"{project['name']} {project['version']} · {project['license']}"
    config.repo_url = project.get("urls", {}).get("Repository")
    sections = {title: entries for section in config.nav or () for title, entries in section.items()}
    for tasks in operators.navigation():
        sections["Operators"] += [{task: [f"operators/{name}" for name in names]} for task, names in tasks.items()]
    verbs = next(section for section in config.nav or () if "Command line" in section)
    verbs["Command line"] = [f"cli/{name}" for name in cli.pages()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and a page for each file outside `docs/` that a page links to."""
    for folder, pages in (("operators", operators.pages()), ("cli", cli.pages())):
        for name, text in pages.items():
            files.append(File.generated(config, f"{folder}/{name}", content=text))
    root = Path(config.docs_dir).parent
    files.append(File.generated(config, "contributing.md", content=contributing(root)))
    for path in sorted({path for file in files.documentation_pages() for path in _outside(file, root)}):
        text = (root / path).read_text(encoding="utf-8")
        fence = "`" * 5
        content = (
            f"---\nsearch: {{exclude: true}}\nhide: [navigation, toc]\n---\n"
            f"# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"
        )
        files.append(File.generated(config, f"source/{path}.md", content=content))
    return files


def contributing(root: Path) -> str:
    """Return CONTRIBUTING.md as a page in `docs/`, with links relative to it."""

    def turned(link: re.Match[str]) -> str:
        path = posixpath.relpath(link[2], "docs") if ":" not in link[2] else link[2]
        return f"{link[1]}{path}{link[3] or ''}{link[4]}"

    return LINK.sub(turned, (root / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links that leave `docs/` to the pages that `on_files` added."""
    page.meta.setdefault("search", {"boost": _boost(page)})
    folder = posixpath.dirname(page.file.src_uri)
    root = Path(config.docs_dir).parent
    if page.file.src_uri == FUNCTIONS:
        markdown = markdown.replace(LISTED, _function_table(config.docs_dir))

    def turned(link: re.Match[str]) -> str:
        path = _path(folder, link[2], root)
        if path is None:
            return link[0]
        return f"{link[1]}{posixpath.relpath(f'source/{path}.md', folder or '.')}{link[4]}"

    return LINK.sub(turned, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link operators, DirectML's pages and other functions in docstrings of the API reference."""
    if not page.file.src_uri.startswith("reference/"):
        return html
    html = DOCUMENT.sub(rf'<a href="{operators.DOCUMENTS}\1"><code>\1</code></a>', html)
    folder = posixpath.dirname(page.file.src_uri)
    operator_pages = posixpath.relpath("operators", folder)
    html = COMPUTED.sub(lambda text: OPERATOR.sub(lambda name: _operator_link(name, operator_pages), text[0]), html)
    places = {
        name: f"{posixpath.relpath(path, folder)[: -len('.md')]}.html#{anchor}"
        for name, (path, anchor) in _functions(config.docs_dir).items()
    }
    places |= {name.rpartition(".")[2]: f"#{name}" for name in ANCHOR.findall(html)}
    return SEE_ALSO.sub(lambda text: NAME.sub(lambda name: _function_link(name, places), text[0]), html)


def _operator_link(name: re.Match[str], folder: str) -> str:
    if name[0] not in catalog():
        return name[0]
    return f'<a href="{folder}/{name[0].lower()}.html">{name[0]}</a>'


def _function_link(name: re.Match[str], places: dict[str, str]) -> str:
    place = places.get(name[1])
    return name[0] if place is None else f'<a href="{place}">{name[0]}</a>'


def _boost(page: Page) -> float:
    """Rank guides and the functions of ``dmlgpu.ops`` above other pages, and these above DirectML's operators."""
    path = page.file.src_uri
    if path in RESULTS or path.startswith("operators/"):
        return 0.5
    sections = {ancestor.title for ancestor in page.ancestors}
    return 4 if path.startswith("reference/ops") or sections & set(GUIDES) else 1


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each function and class that a page of the reference shows."""
    for path, block in MEMBERS.findall(text):
        module, _, name = path.rpartition(".")
        member = getattr(importlib.import_module(module), name)
        if not inspect.ismodule(member):
            yield module, name
        elif (yaml.safe_load(block) or {}).get("options", {}).get("members") is not False:
            yield from ((path, listed) for listed in member.__all__)


@functools.cache
def _parts(docs: str) -> dict[str, str]:
    """Return the Markdown of the pages of ``dmlgpu.ops``, in the order of the navigation."""
    folder = Path(docs, FUNCTIONS).with_suffix("")
    navigation = (Path(docs).parent / "mkdocs.yml").read_text(encoding="utf-8")
    paths = [path.relative_to(docs).as_posix() for path in folder.glob("*.md")]
    return {path: Path(docs, path).read_text(encoding="utf-8") for path in sorted(paths, key=navigation.index)}


@functools.cache
def _functions(docs: str) -> dict[str, tuple[str, str]]:
    """Return page and anchor of each function of ``dmlgpu.ops``, by name; those of `linalg` and `fft` are last."""
    places: dict[str, tuple[str, str]] = {}
    for path, text in _parts(docs).items():
        for module, name in _members(text):
            places.setdefault(name, (path, f"{module}.{name}"))
    return places


def _function_table(docs: str) -> str:
    """Return a table of the functions by page. Each has the anchor that it had when all were on one page."""
    lines = ["| topic | functions |", "|---|---|"]
    for path, text in _parts(docs).items():
        link = posixpath.relpath(path, posixpath.dirname(FUNCTIONS))
        anchors = [(name, f"{module}.{name}") for module, name in _members(text)]
        names = ", ".join(f"[`{name}`]({link}#{anchor}){{ #{anchor} }}" for name, anchor in anchors)
        title = TITLE.findall(text)[0]
        lines.append(f"| [{title}]({link}) | {names} |")
    return "\n".join(lines)


def _outside(file: File, root: Path) -> set[str]:
    folder = posixpath.dirname(file.src_uri)
    paths = (_path(folder, link[2], root) for link in LINK.finditer(file.content_string))
    return {path for path in paths if path is not None}


def _path(folder: str, target: str, root: Path) -> str | None:
    """The path from the repository's root of a linked file outside `docs/`; None for other links."""
    if ":" in target:
        return None
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    return None if path.startswith(("docs/", "../")) or not (root / path).is_file() else path


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Allow line breaks in long names, not between numbers and units, and widen cells of prose."""
    output = ENTRY.sub(lambda entry: entry[1] + entry[2].replace("_", "_<wbr>"), output)
    return CELL.sub(_cell, output)


def _cell(cell: re.Match[str]) -> str:
    start, content = cell[1], cell[2]
    length = max(len(html.unescape(re.sub(r"<[^>]+>", "", line))) for line in re.split(r"<br ?/?>", content))
    if name := next((name for name, least in CELLS.items() if length > least), None):
        is_code, is_list = content.startswith("<code>"), content.count("<code>") > 1
        kind = ("phrase" if is_list else "code") if name == "prose" and is_code else name
        start += f' class="{kind}"'
    content = LONG_NAME.sub(lambda name: name[1] + re.sub(r"([._/]+)(?=\w)", r"\1<wbr>", name[2]), content)
    content = DATE.sub(r'<span class="nowrap">\g<0></span>', UNIT.sub("&nbsp;", content))
    return f"{start}>{content}</td>"
