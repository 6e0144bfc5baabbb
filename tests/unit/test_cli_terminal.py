"""What the command line shows in a terminal of 80 columns: no number and no case's name vanishes there."""

from __future__ import annotations

import os

import pytest

from dmlgpu.cli.tables import laid_out
from tests.unit.terminal import in_terminal

pytestmark = pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals on Windows")

ADAPTER = "Vulkan: llvmpipe (LLVM 15.0.6, 256 bits) (Mesa 25.0.7-2~bpo12+1 (LLVM 15.0.6))"
CASE = "activation_leaky_relu-values-float32-63x11-broadcast-special-s0"
LONG_NAME = f"""
from dmlgpu.cli import test
def summarize(counted, original=test.summarize):
    for adapter in counted:
        object.__setattr__(adapter.info, "name", {ADAPTER!r})
    original(counted)
test.summarize = summarize
"""
"""Gives the adapter of a run a name as llvmpipe has it."""


def test_an_adapter_gives_way_to_numbers():
    headings, lines = laid_out(("adapter", "pass", "fail"), [(ADAPTER, "1,018", "12")], (1, 2), 80)
    assert headings[0].split() == ["adapter", "pass", "fail"]
    assert lines[0].endswith("  1,018    12")
    assert " ".join(lines[0].split()[:-2] + lines[1].split()) == ADAPTER
    assert all(len(line) <= 80 for line in [*headings, *lines])


def test_nine_statuses_fit_beside_an_adapter():
    statuses = ["pass", "fail", "not supported", "expected fail", "unexpected pass", "flaky", "crash", "time-out"]
    statuses.append("device lost")
    _, lines = laid_out(("adapter", *statuses), [(ADAPTER, *"123456789")], range(1, 10), 80)
    assert list("123456789") == lines[0].split()[-9:] or list("123456789") == lines[1].split()[-9:]
    assert all(len(line) <= 80 for line in lines[1:])


def test_a_name_that_leaves_no_room_stands_above_its_row():
    rows = [("regress", CASE, "pass, exact", "fail, 28,200 times the tolerance")]
    headings, lines = laid_out(("change", "case", "before", "after"), rows, (), 80)
    assert headings == ["case", "  change   before       after"]
    assert lines == [CASE, "  regress  pass, exact  fail, 28,200 times the tolerance"]


def test_a_table_with_room_is_one():
    headings, lines = laid_out(("a", "b"), [("x", "10"), ("longer", "1")], (1,), 80)
    assert [*headings, *lines] == ["a        b", "x       10", "longer   1"]


def test_the_result_of_a_run_is_seen():
    code, shown = in_terminal("test", "-k", "argmin-example1", "-a", "numpy", setup=LONG_NAME)
    assert code == 0
    heading, first, second = shown.splitlines()[-3:]
    assert heading.split() == ["adapter", "pass"]
    assert first.endswith(" 1") and second
