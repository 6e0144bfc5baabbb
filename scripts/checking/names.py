"""Resolve the command line of `scripts/check` with Python's standard library, before anything is installed.

python3 -m checking.names [OPERATOR|FILE]...    print the extra to install and whether a driver is needed
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CATALOG = ROOT / "dmlgpu" / "catalog" / "operators.json"
SYNONYMS = ROOT / "dmlgpu" / "catalog" / "synonyms.toml"

FAMILIES = ("ELEMENT_WISE_", "ACTIVATION_")
"""Prefixes of operator names that users omit, as in `dmlgpu ops`."""

SOURCES = ("onnx", "torch", "numpy", "webnn", "words")
"""Keys of the synonyms: where an operator has another name."""


class UnknownTarget(Exception):
    """A target that is neither an operator nor a file."""


@dataclass(frozen=True)
class Targets:
    """What to check.

    Attributes:
        operators: DirectML's names.
        files: Paths from the root of the checkout.
        deleted: Paths of files that no longer exist.
        origin: Where the files come from if the command line names nothing.
    """

    operators: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    origin: str = ""


def resolve(arguments: Sequence[str], folder: Path) -> Targets:
    """Return the targets that a command line names, or what has changed if it names none.

    Args:
        arguments: Operators by any of their names, and paths from `folder`.
        folder: The caller's working directory.

    Raises:
        UnknownTarget: If an argument is neither an operator nor a file, with similar names.
    """
    if not arguments:
        return changed()
    operators: list[str] = []
    files: list[str] = []
    for argument in arguments:
        path = (folder / argument).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            files.append(path.relative_to(ROOT).as_posix())
        else:
            operators.append(operator_named(argument))
    return Targets(tuple(dict.fromkeys(operators)), tuple(dict.fromkeys(files)))


def changed() -> Targets:
    """Return the files that differ from the last commit and those that are not in git; else those of the commit."""
    new = _git("ls-files", "--others", "--exclude-standard")
    for origin, revisions in (("changed since the last commit", ["HEAD"]), ("of the last commit", ["HEAD^", "HEAD"])):
        files = dict.fromkeys([*_git("diff", "--name-only", "--diff-filter=d", *revisions), *new])
        deleted = _git("diff", "--name-only", "--diff-filter=D", "--find-renames", *revisions)
        if files or deleted:
            return Targets(files=tuple(files), deleted=tuple(deleted), origin=origin)
    return Targets()


def _git(*arguments: str) -> list[str]:
    """Return the paths that a git command prints; none if it fails, as `HEAD^` of a first commit."""
    done = subprocess.run(["git", *arguments, "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return [path for path in done.stdout.split("\0") if path] if done.returncode == 0 else []


# ---- names of operators ----------------------------------------------------------------------------------------------


def operator_named(name: str) -> str:
    """Return DirectML's name of an operator by its name, stem, alias or name in another library.

    Raises:
        UnknownTarget: If no operator, or more than one, has that name.
    """
    for names in (own_names(), short_names(), synonyms()):
        operators = names.get(_key(name), ())
        if len(operators) == 1:
            return operators[0]
        if operators:
            raise UnknownTarget(f"{name!r} names several operators: {', '.join(map(str.lower, operators))}")
    similar = similar_names(name)
    hint = f"; similar names: {', '.join(similar)}" if similar else ""
    raise UnknownTarget(f"{name!r} is neither an operator nor a file of this checkout{hint}")


def similar_names(name: str) -> list[str]:
    """Return names of operators, or paths of files, that are similar to a name."""
    if "/" in name or "." in name:
        known = _git("ls-files")
        same_name = [path for path in known if Path(path).name == Path(name).name]
        return same_name[:3] or difflib.get_close_matches(name, known)
    stems = {_key(operator): operator.lower() for operator in reversed(catalog())}
    stems |= {key: operators[0].lower() for key, operators in (*synonyms().items(), *short_names().items())}
    close = difflib.get_close_matches(_key(name), stems, cutoff=0.7)
    return list(dict.fromkeys(stems[key] for key in close))


@functools.cache
def catalog() -> dict[str, dict[str, object]]:
    """Return the entries of the catalog by operator."""
    entries: dict[str, dict[str, object]] = json.loads(CATALOG.read_text(encoding="utf-8"))
    return entries


@functools.cache
def own_names() -> dict[str, tuple[str, ...]]:
    """Return the operators by their full names and aliases."""
    return _grouped(
        (name, operator) for operator, entry in catalog().items() for name in (operator, *_strings(entry, "aliases"))
    )


@functools.cache
def short_names() -> dict[str, tuple[str, ...]]:
    """Return the operators that are not superseded by their names without family, and without version."""

    def names(operator: str) -> Iterator[str]:
        plain = operator.rstrip("0123456789")
        yield plain
        for family in FAMILIES:
            if operator.startswith(family):
                yield from (operator.removeprefix(family), plain.removeprefix(family))

    exact = _grouped((operator.removeprefix(family), operator) for operator in newest() for family in FAMILIES)
    return _grouped((name, operator) for operator in newest() for name in names(operator)) | exact


@functools.cache
def synonyms() -> dict[str, tuple[str, ...]]:
    """Return the operators by their names in other libraries."""
    entries = tomllib.loads(SYNONYMS.read_text(encoding="utf-8"))
    return _grouped(
        (name, operator)
        for operator in newest()
        for source in SOURCES
        for name in _strings(entries.get(operator, {}), source)
    )


@functools.cache
def newest() -> tuple[str, ...]:
    """Return the operators that no newer version supersedes."""
    return tuple(operator for operator, entry in catalog().items() if "superseded_by" not in entry)


def _strings(entry: dict[str, object], key: str) -> tuple[str, ...]:
    value = entry.get(key, ())
    return tuple(value) if isinstance(value, list) else ()


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    grouped: dict[str, tuple[str, ...]] = {}
    for name, operator in pairs:
        grouped[_key(name)] = tuple(dict.fromkeys((*grouped.get(_key(name), ()), operator)))
    return grouped


def _key(name: str) -> str:
    """Return a name in the form in which names are compared: ``torch.nn.LayerNorm`` as ``layernorm``."""
    return re.sub(r"[\W_]", "", name.strip().rpartition(".")[2].lower())


# ---- the command -----------------------------------------------------------------------------------------------------


def main() -> int:
    """Print what the check needs, or what is wrong with the command line."""
    from checking.tests import extra, needs_driver  # noqa: PLC0415 - a cycle

    try:
        targets = resolve(sys.argv[2:], Path(sys.argv[1]))
    except UnknownTarget as error:
        print(f"scripts/check: {error}", file=sys.stderr)
        return 2
    print(extra(targets), "driver" if needs_driver(targets) else "no-driver")
    return 0


if __name__ == "__main__":
    sys.exit(main())
