"""What kernels use of WGSL: read from their sources, merged from child processes, recorded, and reported."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from dmlgpu.common.errors import ModelError
from dmlgpu.conformance.report.model import Report
from dmlgpu.conformance.report.writing import as_html, as_markdown
from dmlgpu.conformance.running import exercised
from dmlgpu.conformance.running.exercised import (
    VOCABULARY,
    Avoided,
    Exercised,
    KernelNotes,
    RunNotes,
    avoided_on,
    used_by,
)
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.records import read_lines, write_run
from dmlgpu.conformance.running.worker import CaseServer
from dmlgpu.runtime.device import Device
from tests.unit.conformance.report_runs import GOOD, run

KERNEL = """enable f16;
// exp(1.0) in a comment
alias element = f16;
const limit = 4u;
struct Params { count: u32 }
@group(0) @binding(0) var<storage, read_write> values: array<vec4<element>>;
@group(0) @binding(1) var<uniform> params: Params;
var<workgroup> shared_word: atomic<u32>;
var<private> unused: vec2i;
fn sinh(x: f32) -> f32 { return x; }
fn helper(x: f32) -> f32 {
var y = sinh(x);
    return sqrt(y);
}
fn never() { let x = tan(1.0); }
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.count) { return; }
    let length = helper(1.0);
    atomicAdd(&shared_word, limit);
    values[id.x] = values[id.x] * element(length) + vec4<element>(params.cos);
}
"""
USED = {
    *("atomicAdd", "sqrt"),
    *("f16", "f32", "u32", "vec3<u32>", "vec4<f16>", "array", "struct", "atomic<u32>"),
    *("if", "return", "var<storage>", "var<uniform>", "var<workgroup>", "@builtin(global_invocation_id)"),
    "enable f16",
}


def test_a_kernel_uses_what_its_entry_point_reaches():
    assert used_by(KERNEL) == USED


@pytest.mark.parametrize(
    ("statement", "used"),
    [
        ("let a = vec2h(1.0);", {"vec2<f16>"}),
        ("let a = mat4x3f();", {"mat4x3"}),
        ("let a = bitcast<vec2<i32>>(b);", {"bitcast", "vec2<i32>", "i32"}),
        ("loop { continuing { break if true; } }", {"loop", "continuing", "break", "if"}),
        ("let a = b.exp(c);", set()),
        ("let exp = 1;", set()),
        ("let a = subgroupShuffleXor(b, 1u);", {"subgroupShuffleXor"}),
    ],
)
def test_statements_are_read(statement, used):
    assert used_by(f"@compute @workgroup_size(1)\nfn main() {{ {statement} }}\n") == used


def test_kinds_are_disjoint_and_what_needs_a_feature_is_in_one():
    names = [name for kind in VOCABULARY.values() for name in kind]
    assert len(names) == len(set(names)) > 150
    assert {name for needed in exercised._NEEDED.values() for name in needed} <= set(names)


def test_what_probes_avoid_has_names_of_the_vocabulary():
    from dmlgpu.runtime.wgpu.probes import PROBES

    for probe in PROBES:
        assert probe.builtins.keys() <= probe.avoided.keys()
        assert all(name in exercised.FUNCTIONS for names in probe.builtins.values() for name in names)


def test_nothing_is_avoided_on_the_reference():
    assert avoided_on(Device("numpy")) == ()


# ---- merging


class Compiling:
    """A suite whose cases compile two kernels, one of which all cases share; the case ``broken`` fails to compile."""

    def run(self, name, device):
        self.server.tell_kernels((), (KERNEL, f"// {name}\n@compute fn main() {{ let x = ceil(1.0); }}"))
        if name == "broken":
            return Outcome(name, Status.FAIL, message="kernel 'x' does not compile on this: no")
        return Outcome(name, Status.PASS)


def answers_of(*names) -> list[dict]:
    """Return the answers of a child process about what kernels use."""
    suite, responses = Compiling(), io.StringIO()
    suite.server = CaseServer(suite, responses)
    suite.server.serve(Device("numpy"), io.StringIO("".join(f"{json.dumps(name)}\n" for name in names)))
    records = map(json.loads, responses.getvalue().splitlines())
    return [record["exercised"] for record in records if isinstance(record, dict) and "exercised" in record]


def test_a_child_tells_each_kernel_once_and_none_that_does_not_compile():
    assert [len(answer["kernels"]) for answer in answers_of("a", "a", "b", "broken")] == [2, 1]


def test_kernels_of_several_children_count_once():
    notes = RunNotes()
    assert notes.exercised() is None
    for answer in (*answers_of("a", "b"), *answers_of("b", "c")):
        notes.add(answer)
    table = notes.exercised()
    assert (table.kernels, table.used["ceil"], table.used["sqrt"]) == (4, 3, 1)
    assert "floor" in table.never and not set(table.never) & table.used.keys()


def test_what_is_avoided_is_told_with_the_first_kernels(monkeypatch):
    avoided = Avoided("probe x", "tan", "not exact", ("tan",))
    monkeypatch.setattr(exercised, "avoided_on", lambda device: (avoided,))
    kernels, notes = KernelNotes(), RunNotes()
    for text in (KERNEL, f"{KERNEL}//"):
        kernels.add([text])
        notes.add(json.loads(json.dumps(kernels.take(Device("numpy")))))
    assert kernels.take(Device("numpy")) is None
    assert notes.exercised().avoided == (avoided,)


# ---- text, records, reports

TABLE = Exercised(
    12,
    {"exp": 3, "u32": 12, "<b>": 1},
    (
        Avoided("probe float16", "pack2x16float", "not exact", ("pack2x16float",)),
        Avoided("quirk loops", "loop_limit = 7", "loops end | early"),
        Avoided("adapter", "shader-f16", "lacks shader-f16", ("f16",)),
    ),
    ("f16", "pack2x16float", "tan", "while"),
)


def test_the_text_has_what_is_used_avoided_and_never_used():
    assert TABLE.summary() == [
        "exercised by 12 kernels: 1 of 3 functions, 1 of 2 types, 1 of 2 features of WGSL",
        "avoided: pack2x16float (probe float16); loop_limit = 7 (quirk loops)",
    ]
    assert TABLE.rows() == [
        ("functions", "exp", "3", ""),
        ("functions", "pack2x16float", "-", "probe float16: not exact"),
        ("types", "u32", "12", ""),
        ("types", "f16", "-", "adapter: lacks shader-f16"),
        ("features", "<b>", "1", ""),
        ("others", "loop_limit = 7", "-", "quirk loops: loops end | early"),
    ]
    assert TABLE.never_used() == {"functions": ["tan"], "types": [], "features": ["while"]}
    assert len(replace(TABLE, avoided=()).summary()) == 1


def lines_of(notes=None) -> list[bytes]:
    file = io.StringIO()
    list(write_run(file, run().facts, [GOOD], notes))
    return [line.encode() for line in file.getvalue().splitlines(keepends=True)]


def test_the_table_survives_its_file():
    notes = RunNotes()
    notes.add(answers_of("a")[0])
    (recorded,) = read_lines("a", lines_of(notes)).runs
    assert recorded.exercised == notes.exercised() and recorded.exercised.used["sqrt"] == 1


def test_files_without_a_table_are_read():
    (recorded,) = read_lines("a", lines_of()).runs
    assert recorded.is_complete and recorded.exercised is None


@pytest.mark.parametrize(
    "changed",
    [{"kernels": -1}, {"used": {"exp": "3"}}, {"never": [1]}, {"avoided": [{"by": "x"}]}, {"more": 1}],
)
def test_a_malformed_table_is_rejected(changed):
    *lines, _ = lines_of()
    end = {"record": "end", "exercised": {**TABLE.to_json(), **changed}}
    with pytest.raises(ModelError, match=r"a, line 3: is not a valid end: 'exercised' "):
        read_lines("a", [*lines, json.dumps(end).encode()])


def test_reports_have_the_tables_of_runs_that_have_one():
    with_table, without = replace(run(GOOD, name="this"), exercised=TABLE), run(GOOD, name="that")
    text = as_markdown(Report((with_table, without)))
    assert (
        "| this (NumPy) | dmlgpu | 12 | 1 of 3 | 1 of 2 | 1 of 2 "
        "| pack2x16float (probe float16); loop_limit = 7 (quirk loops) |"
    ) in text
    page = as_html(Report((with_table, without)))
    rows = page[page.index('id="exercised"') :]
    assert '<tr><th scope="row">exp</th><td>3</td></tr>' in rows
    assert '<tr><th scope="row">pack2x16float</th><td>avoided, probe float16: not exact</td></tr>' in rows
    assert '<tr><th scope="row">tan</th><td>never</td></tr>' in rows
    assert "&lt;b&gt;" in rows and "<b>" not in rows


def test_reports_of_runs_without_tables_omit_the_section():
    report = Report((run(GOOD),))
    assert "xercised" not in as_markdown(report) and 'id="exercised"' not in as_html(report)
