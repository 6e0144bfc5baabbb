"""One page per verb of the command line, from its help and a hand-written example, and an index.

docs/examples/cli/VERB.md has the example of ``dmlgpu VERB``, if there is one. docs/examples/cli/index.md is appended
to the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from dmlgpu.cli.app import app
from dmlgpu.cli.main import EXIT_CODES

BY_HAND = Path(__file__).parents[2] / "docs" / "examples" / "cli"
INDEX = "README.md"
MEANINGS = {
    "install_completion": "Set completion up for the shell in which it runs.",
    "show_completion": "Print the script that does so.",
}
"""Help of options that typer defines, which changes with its versions."""


def pages() -> dict[str, str]:
    """The Markdown of all pages by their files' names."""
    root = typer.main.get_command(app)
    verbs = dict(_verbs(root, ()))
    return {INDEX: _index(root, verbs), **{_file(words): _page(words, command) for words, command in verbs.items()}}


def _verbs(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The verbs with their words, in the order of the help; those of a verb that has verbs of its own come after it."""
    for name, command in group.commands.items():
        if not command.hidden:
            yield (*words, name), command
            if hasattr(command, "commands"):
                yield from _verbs(command, (*words, name))


def _file(words: tuple[str, ...]) -> str:
    return f"{'-'.join(words)}.md"


def _index(root: Any, verbs: dict[tuple[str, ...], Any]) -> str:
    """The page that names all verbs, the options before them, and the exit codes."""
    rows = [(f"[`dmlgpu {' '.join(words)}`]({_file(words)})", _first(command)) for words, command in verbs.items()]
    codes = [(str(code), meaning) for code, meaning in EXIT_CODES.items()]
    parts = [
        "# The command line",
        f"{_prose(root)[0]} `pip install 'dmlgpu[cli]'` installs it; `python -m dmlgpu` is the same as `dmlgpu`.",
        _table(("verb", "what it does"), rows),
        "## Options before the verb",
        _table(("option", "meaning"), [(names, meaning) for names, *_, meaning in _options(root)]),
        "## Exit codes",
        _table(("code", "meaning"), codes),
        *_by_hand("index"),
    ]
    return "\n\n".join(parts) + "\n"


def _page(words: tuple[str, ...], command: Any) -> str:
    """The page of one verb."""
    name = " ".join(("dmlgpu", *words))
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = " ".join((name, "[OPTIONS]", *(_argument(argument) for argument in arguments)))
    parts = [f"# {name}", *_prose(command), f"    {usage}"]
    if arguments:
        rows = [(f"`{_argument(argument)}`", argument.help or "") for argument in arguments]
        parts += ["## Arguments", _table(("argument", "meaning"), rows)]
    if options := list(_options(command)):
        parts += ["## Options", _table(("option", "value", "default", "meaning"), options)]
    if examples := _examples(command):
        parts += ["## Examples", examples]
    parts += _by_hand("-".join(words))
    return "\n\n".join([*parts, f"[All verbs]({INDEX}), [exit codes]({INDEX}#exit-codes)"]) + "\n"


def _prose(command: Any) -> list[str]:
    """The paragraphs of a help text before its examples, each in one line."""
    text = (command.help or "").partition("\b")[0]
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text.strip())]


def _examples(command: Any) -> str:
    """The command lines of a help text, as a block."""
    lines = (command.help or "").partition("Examples:")[2].splitlines()
    return "\n".join(f"    {line.strip()}" for line in lines if line.strip())


def _first(command: Any) -> str:
    """The first sentence of a help text."""
    return re.split(r"(?<=[.])\s", _prose(command)[0])[0]


def _argument(parameter: Any) -> str:
    """An argument in a usage line: optional ones in brackets, with ``...`` if they take several values."""
    name = parameter.metavar or parameter.name.upper()
    if name.startswith("[") and name.endswith("]..."):
        return name
    return (name if parameter.required else f"[{name}]") + ("..." if parameter.nargs == -1 else "")


def _options(command: Any) -> Iterator[tuple[str, str, str, str]]:
    """Of each option its names, its value, its default and its meaning."""
    for option in command.params:
        if option.param_type_name != "option" or option.hidden:
            continue
        is_flag = getattr(option, "is_flag", False)
        value = "" if is_flag else f"`{option.metavar or option.name.upper()}`"
        default = "" if is_flag or option.default in (None, "") else f"`{option.default}`"
        default = "required" if option.required else default
        if option.secondary_opts and option.default:
            default = f"`{option.opts[0]}`"
        meaning = MEANINGS.get(option.name, option.help or "")
        variable = f" From the environment: `{option.envvar}`." if option.envvar else ""
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        yield names, value, default, meaning + variable


def _by_hand(name: str) -> list[str]:
    """The hand-written part of a page; empty if there is none."""
    path = BY_HAND / f"{name}.md"
    return [path.read_text(encoding="utf-8").strip()] if path.exists() else []


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_escape_pipes, row))} |" for row in lines)


def _escape_pipes(cell: str) -> str:
    """Escape pipes outside of code, where Python-Markdown would print the backslash."""
    return re.sub(r"(`[^`]*`)|\|", lambda match: match[1] or r"\|", cell)
