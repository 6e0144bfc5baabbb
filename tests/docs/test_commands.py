"""Every command that a page shows, `dmlgpu VERB ...`, has a verb and options that exist."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from pages import cli, operators

from dmlgpu.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
GENERATED = {
    f"{folder}/{name}": text
    for folder, pages in (("cli", cli.pages()), ("operators", operators.pages()))
    for name, text in pages.items()
}
COMMAND = re.compile(r"^(?:    |    \$ |\$ )(?:[A-Z_]+=\S+ )*(dmlgpu [a-z].*)$", re.MULTILINE)
CONTINUATION = re.compile(r" \\\n +")
INLINE = re.compile(r"`(?:[A-Z_]+=\S+ )*(dmlgpu [a-z][^`]*)`")


def commands() -> list[tuple[str, str]]:
    """Pages and the commands that they show, each command once."""
    page_of: dict[str, str] = {}
    for page, text in (PAGES | GENERATED).items():
        for line in (
            *COMMAND.findall(CONTINUATION.sub(" ", text)),
            *(inline.replace("\n", " ") for inline in INLINE.findall(text)),
        ):
            command = re.split(r"\s+#\s|\s+[|>]\s", line)[0].strip()
            page_of.setdefault(command, page)
    return [(page, command) for command, page in page_of.items()]


@functools.cache
def tool() -> Any:
    return typer.main.get_command(app)


COMMANDS = commands()


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 100
    assert {"docs/onnx.md", "docs/troubleshooting.md", "README.md"} <= {page for page, _ in COMMANDS}


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{page}: {command}" for page, command in COMMANDS])
def test_verb_and_options_exist(page: str, command: str) -> None:
    words = shlex.split(re.sub(r"\[[^\]]*\]|\.\.\.", "", command))[1:]
    command_group = tool()
    while hasattr(command_group, "commands") and words and words[0] in command_group.commands:
        command_group, words = command_group.commands[words[0]], words[1:]
    if command_group is not tool() and "run" in getattr(
        command_group, "commands", ()
    ):  # which `dmlgpu bench GEMM` means
        command_group = command_group.commands["run"]
    assert command_group is not tool() or words[0].startswith("-"), f"{page}: there is no verb {words[0]!r}"
    known = {name for parameter in command_group.params for name in (*parameter.opts, *parameter.secondary_opts)} | {
        "--help"
    }
    options = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert options <= known, f"{page}: {sorted(options - known)}"
