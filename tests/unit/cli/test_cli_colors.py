"""Colors: on a terminal, but not in a pipe, nor where NO_COLOR is set."""

import os
import re
import subprocess
import sys

import pytest

from tests.unit.cli.cli_process import START

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

ESCAPE = re.compile("\x1b")
COLOR = re.compile(r"\x1b\[(\d+;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;\d+)*m")
VARIABLES = ("DMLGPU_ADAPTER", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "GITHUB_ACTIONS")
TABLES = """
from dmlgpu.cli import tables
tables.table(("name", "value"), [("a", "1")])
tables.facts("title", [("name", "value")])
tables.text("heading")
"""
CODES = {"error": (START, "ops", "--bogus"), "tables": (TABLES,)}
"""Python and its what: an error of the command line, and all that ``tables`` prints."""


def environment(**more):
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return {**inherited, "TERM": "xterm-256color", **more}


def on_terminal(what, **variables):
    """What a person sees: both streams, of a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", *CODES[what]], stdout=theirs, stderr=theirs, env=environment(**variables)
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # Linux reports that all writers are gone
                break
            if not part:
                break
            seen += part
        process.wait()
    os.close(ours)
    return seen.decode()


@pytest.mark.parametrize("what", CODES)
def test_colours_on_a_terminal_but_not_with_no_color(what):
    assert COLOR.search(on_terminal(what))
    assert not COLOR.search(on_terminal(what, NO_COLOR="1"))


def test_plain_tables_where_rich_is_not_installed(monkeypatch):
    monkeypatch.setitem(CODES, "alone", (f"import sys\nsys.modules['rich'] = None\n{TABLES}",))
    assert on_terminal("alone").splitlines() == ["name  value", "a     1", "title", "  name  value", "heading"]


@pytest.mark.parametrize("what", CODES)
def test_a_pipe_gets_plain_text_even_with_force_color(what):
    done = subprocess.run(
        [sys.executable, "-c", *CODES[what]], capture_output=True, check=False, env=environment(FORCE_COLOR="1")
    )
    assert not ESCAPE.search((done.stdout + done.stderr).decode())
