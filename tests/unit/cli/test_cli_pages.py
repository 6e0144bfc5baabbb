"""Every verb has a page, and the command lines on it are valid."""

import re
import shlex

import pytest
import typer.main
from pages import cli as cli_pages

from dmlgpu.cli import app as cli_app
from dmlgpu.cli.main import EXIT_CODES

PAGES = cli_pages.pages()
COMMAND = re.compile(r"^    (?:\w+=\S+ )*(dmlgpu .*)$", re.MULTILINE)
CONTINUATION = re.compile(r" \\\n +")


def test_every_verb_has_a_page_that_the_index_names():
    index = PAGES["README.md"]
    verbs = {command.name or command.callback.__name__ for command in cli_app.app.registered_commands}
    assert {f"{verb}.md" for verb in verbs} <= PAGES.keys()
    assert all(f"]({verb}.md)" in index for verb in verbs)
    assert all(f"| {code} | " in index for code in EXIT_CODES)


def command_lines(page):
    """The command lines of a page: what a shell gives to ``dmlgpu`` in each indented line."""
    for line in COMMAND.findall(CONTINUATION.sub(" ", PAGES[page])):
        words = shlex.split(line, comments=True)
        end = next((at for at, word in enumerate(words) if word in ("|", ">", ">>", "&&", ";")), len(words))
        if "[OPTIONS]" not in words:
            yield words[1:end]


@pytest.mark.parametrize("page", PAGES)
def test_the_command_lines_of_a_page_parse(page):
    root = typer.main.get_command(cli_app.app)
    lines = [words for words in command_lines(page) if words]
    assert lines or page == "README.md"
    for words in lines:
        if words[0].startswith("-"):
            continue
        command, rest = root.commands[words[0]], words[1:]
        while rest and rest[0] in getattr(command, "commands", {}):
            command, rest = command.commands[rest[0]], rest[1:]
        command.make_context("dmlgpu", rest)  # raises for options that the verb lacks


def test_tables_show_values_as_they_are_typed():
    row = next(line for line in PAGES["test.md"].splitlines() if line.startswith("| `--drivers`"))
    assert "| `all|MANIFEST` |" in row
    assert not any("``" in line for page in PAGES.values() for line in page.splitlines() if line.startswith("| "))


def test_a_new_verb_only_takes_another_run(monkeypatch):
    app = typer.Typer()

    @app.command()
    def serve(port: int = 80) -> None:
        """Answer requests. Until it is stopped."""

    @app.command(hidden=True)
    def secret() -> None:
        """Not for people."""

    group = typer.Typer()

    @group.command("ocr")
    def read(picture: str) -> None:
        """Read a picture."""

    app.add_typer(group, name="demo")
    monkeypatch.setattr(cli_pages, "app", app)
    pages = cli_pages.pages()
    assert sorted(pages) == ["README.md", "demo-ocr.md", "demo.md", "serve.md"]
    assert "| [`dmlgpu serve`](serve.md) | Answer requests. |" in pages["README.md"]
    assert "| `--port` | `PORT` | `80` |  |" in pages["serve.md"]
    assert "    dmlgpu demo ocr [OPTIONS] PICTURE\n" in pages["demo-ocr.md"]
