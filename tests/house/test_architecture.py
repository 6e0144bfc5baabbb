"""The table of docs/architecture.md is right: all packages, and what each may import."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def read_table(text: str) -> dict[str, set[str]]:
    """Return what each package or module of the table may import, in the table's order.

    The last column is ``-``, or a list of packages, ``above`` and ``PACKAGE and above``, then perhaps ``but`` and the
    packages that are excluded. ``above`` are the rows above, and in the same row the packages to the left.
    """
    allowed: dict[str, set[str]] = {}
    _, _, table = text.partition("| may import |")
    rows = re.findall(r"^\| (`.*) \| .* \| (.*) \|$", table.partition("\n\n")[0], re.MULTILINE)
    for packages, may_import in rows:
        permitted, _, left_out = may_import.partition(" but ")
        for package in _packages(packages):
            above = list(allowed)
            allowed[package] = set(_packages(permitted))
            for last in _packages(" ".join(re.findall(r"`\S+(?= and above)", permitted))):
                allowed[package].update(above[: above.index(last)])
            if permitted == "above":
                allowed[package].update(above)
            allowed[package].difference_update(_packages(left_out))
    return allowed


def _packages(text: str) -> list[str]:
    return re.findall(r"`([^`\s]+)", text)


def imports(file: Path, root: Path) -> Iterator[tuple[int, Path]]:
    """Yield line and path of every module below ``root`` that a file imports anywhere."""
    package = ".".join(file.relative_to(root.parent).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.partition(".")[0] == root.name:
                yield node.lineno, _file(root, name.split(".")[1:])


def _file(root: Path, parts: list[str]) -> Path:
    """Return the file or folder of a module, or of the module that defines a name."""
    for end in range(len(parts), 0, -1):
        path = root.joinpath(*parts[:end])
        if path.is_dir():
            return path
        if path.with_suffix(".py").is_file():
            return path.with_suffix(".py")
    return root / "__init__.py"


def package_of(path: Path, root: Path, packages: Iterable[str]) -> str:
    """Return the package of a file or folder: the innermost one of the table that contains it, else its path."""
    place = path.relative_to(root).as_posix() + ("/" if path.is_dir() else "")
    holding = [name for name in packages if place == name or (name.endswith("/") and place.startswith(name))]
    return max(holding, key=len, default=place)


def violations(root: Path, allowed: dict[str, set[str]]) -> list[str]:
    """Yield every import that the table does not allow, between the packages in it."""
    messages = []
    for file in sorted(root.rglob("*.py")):
        package = package_of(file, root, allowed)
        for line, imported in imports(file, root):
            other = package_of(imported, root, allowed)
            if package != other and {package, other} <= set(allowed) and other not in allowed[package]:
                messages.append(f"{file.relative_to(root.parent)}:{line}: {package} may not import {other}")
    return messages


TABLE = read_table((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


def test_every_package_is_in_the_table():
    package = ROOT / "dmlgpu"
    assert {package_of(file, package, TABLE) for file in package.rglob("*.py")} - {"compiler/__init__.py"} == set(TABLE)


def test_dmlgpu_has_fourteen_packages():
    entries = {entry.name for entry in (ROOT / "dmlgpu").iterdir() if entry.name.strip("_") == entry.name}
    entries -= {name for name in entries if name.endswith(".pyi")}  # generated, not in git
    packages = {package.partition("/")[0] for package in TABLE if "/" in package}
    assert (entries - {"py.typed", "shaders"}, len(packages)) == (packages, 14)


def test_imports_are_those_of_the_table():
    assert violations(ROOT / "dmlgpu", TABLE) == []


def test_only_gpu_imports_wgpu():
    importing = [
        file.relative_to(ROOT)
        for file in sorted((ROOT / "dmlgpu").rglob("*.py"))
        if re.search(r"^\s*(import|from) wgpu\b", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert {file.parts[1:3] for file in importing} == {("runtime", "wgpu")}


# ---- the test's own means --------------------------------------------------------------------------------------------


def test_reading_a_table():
    table = read_table(
        "text\n\n| package | what | may import |\n|---|---|---|\n"
        "| `a.py` `b/` | x | - |\n| `c/` `d.py` | `e/` is not meant | above |\n| `e/` | x | above but `a.py` `c/` |\n"
        "| `f/` | x | `b/` and above, `d.py` |\n\nafterwards | `g/` |\n"
    )
    assert table == {
        "a.py": set(),
        "b/": set(),
        "c/": {"a.py", "b/"},
        "d.py": {"a.py", "b/", "c/"},
        "e/": {"b/", "d.py"},
        "f/": {"a.py", "b/", "d.py"},
    }


@pytest.mark.parametrize(
    "statement",
    [
        "import house.low",
        "from house import low",
        "from house.low import value",
        "from .. import low",
        "def late():\n    from house.low import value",
        "if TYPE_CHECKING:\n    from house import low as low",
    ],
)
def test_every_kind_of_import_is_recognized(tmp_path, statement):
    root = tmp_path / "house"
    (root / "high").mkdir(parents=True)
    for name in ("__init__.py", "low.py", "high/__init__.py"):
        (root / name).touch()
    (root / "high" / "rise.py").write_text(f"from house.high import x\nimport os\n{statement}\n", encoding="utf-8")
    line = 2 + len(statement.splitlines())
    allowed = {"__init__.py": set(), "low.py": set(), "high/": {"low.py"}}
    assert violations(root, allowed) == []
    allowed["high/"] = set()
    assert violations(root, allowed) == [f"house/high/rise.py:{line}: high/ may not import low.py"]


def test_the_example_dispatch_matches_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
    (shown,) = re.findall(r"```wgsl\n(.*?)```", page, re.DOTALL)
    text = names["program"].kernels[0].wgsl
    assert [part for part in re.split(r"\n(?=@group|fn )", shown) if not is_quoted(part, text)] == []
    body = (ROOT / "shaders/indexing/gather_nd1.wgsl").read_text(encoding="utf-8")
    quoted = re.search(r"((?:    .*\n)+)\n\*\*2\.\*\*", page)
    assert quoted is not None
    head, tail = quoted[1].split("        ...\n")
    assert is_quoted(head, body) and is_quoted(tail, body)


def is_quoted(lines: str, text: str) -> bool:
    """Whether a text has these lines, however a page wraps them."""
    return bool(lines.strip()) and re.sub(r"\\\n|\s", "", lines) in re.sub(r"\s", "", text)


def test_the_example_schedule_is_in_the_files_that_the_page_names() -> None:
    page = (ROOT / "docs/internals/schedules.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\*\*\d\. `(\S+?)`(?:.+\n)+\n((?:    .*\n|\n)*)", page, re.MULTILINE)
    assert len(steps) == 6 and sum(len(quoted.split()) for _, quoted in steps) > 100
    for file, quoted in steps:
        root = ROOT if file.startswith(("shaders", "tests")) else ROOT / "dmlgpu"
        text = (root / file).read_text(encoding="utf-8")
        parts = re.split(r"^ +\.\.\.\n|\n\n", re.sub(r"  +#.*", "", quoted), flags=re.MULTILINE)
        assert [part for part in parts if part.strip() and not is_quoted(part, text)] == [], file


def test_the_page_names_every_list_of_schedules() -> None:
    page = (ROOT / "docs/internals/schedules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (`\w+_SCHEDULES`[^|]*) \| `(\S+)` \|$", page, re.MULTILINE)
    named = {(name, file) for names, file in rows for name in re.findall(r"\w+_SCHEDULES", names)}
    files = sorted((ROOT / "dmlgpu/compiler/schedule").rglob("*.py"))
    pattern = re.compile(r"^(\w+_SCHEDULES)\b.* = (?:register)?\($", re.MULTILINE)
    listed = {
        (name, f"compiler/schedule/{file.name}")
        for file in files
        for name in pattern.findall(file.read_text(encoding="utf-8"))
    }
    assert len(listed) == 15 and named == listed
