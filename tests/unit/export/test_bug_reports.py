"""Bug reports without a GPU: reduction of cases, allowed differences, Amber scripts, READMEs, the command line."""

from __future__ import annotations

import dataclasses
import json
import struct
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

from dmlgpu import DmlError, InvalidArgument, NotSupported
from dmlgpu.cli import report_bug
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.conformance.cases.tolerance import CORRECTLY_ROUNDED, EXACT, Accumulated, Ulp
from dmlgpu.export.bugs import BugReport, cutting, runners, spirv, write_bug_report, writing
from dmlgpu.export.bugs.amber import amber_script
from dmlgpu.export.bugs.programs import BugProgram, _allowed, programs_of
from dmlgpu.export.bugs.readme import TRACKERS, readme
from dmlgpu.export.bugs.reduction import candidates, reduced, smaller_sizes
from dmlgpu.export.bugs.runners import runner_files
from dmlgpu.export.cases import numbers_of, rule_of
from tests import amber_scripts
from tests.unit.cli.cli_process import run_here

INFO = AdapterInfo("card", "Vulkan", "discrete", "vendor", "driver 1.2", limits={})
CASE = "activation_softmax1-float32-7x11-packed-inner-s0"
TOP_K = "top_k1-float32-uint32-7x11-packed-inner-s0"


def program_of(name: str) -> BugProgram:
    (program,) = programs_of(name, Target("card"), INFO)
    return program


def sizes_of(name: str) -> tuple[int, ...]:
    return tuple(int(size) for size in name.split("-")[2].split("x"))


def test_sizes_shrink_to_the_smallest_that_fail():
    def fails(name: str) -> bool:
        sizes = sizes_of(name)
        return len(sizes) == 2 and sizes[0] >= 3 and sizes[1] >= 65

    assert reduced("op-float32-9x2x200-padded-inner-s0", fails, 100) == "op-float32-3x65-packed-s0"


def test_layouts_and_variants_that_matter_stay():
    def fails(name: str) -> bool:
        return "-padded-" in name and "-negative-" in name

    assert reduced("op-int8-int32-4x4-padded-negative-owned-s3", fails) == "op-int8-int32-1-padded-negative-s3"


def test_the_number_of_tries_is_limited_and_none_is_repeated():
    tried: list[str] = []

    def fails(name: str) -> bool:
        tried.append(name)
        return sizes_of(name)[0] > 50

    assert sizes_of(reduced("op-float32-1000-packed-s0", fails, 4))[0] > 50
    assert len(tried) == len(set(tried)) == 4


def test_names_without_sizes_have_no_candidates():
    assert list(candidates("pair-gather-residual-float32-odd")) == []
    assert list(smaller_sizes((1,))) == []
    assert next(candidates("graph-float32-16-s0")) == "graph-float32-1-s0"


@pytest.mark.parametrize(
    ("tolerance", "magnitude"),
    [
        (EXACT, None),
        (CORRECTLY_ROUNDED, None),
        (Ulp(0), None),
        (Ulp(3), None),
        (Accumulated(7), 10.0),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_runners_accept_what_the_tolerance_accepts(tolerance, magnitude, dtype):
    """Nothing right is reported, and nothing far off is accepted; next to powers of two the runners may be lenient."""
    values = [0.0, -0.0, 1.0, 2.0, -3.5, 1e-40, 6e4, 100.25, np.nan, np.inf, -np.inf]
    kind = np.dtype(dtype)
    expected = np.array([value for value in values if kind.kind == "f" or np.isfinite(value)]).astype(dtype)
    bound = None if magnitude is None else np.full(expected.shape, magnitude)
    rule = rule_of(tolerance, expected)
    numbers = numbers_of(tolerance, rule, expected, bound)
    allowed = _allowed(rule.to_json(), expected, 0.0 if numbers is None else numbers)
    bits = expected.view(f"u{kind.itemsize}").astype(np.int64)
    for step in (-4, -3, -2, -1, 0, 1, 2, 3, 4):
        got = (bits + step).astype(f"u{kind.itemsize}").view(dtype)
        right = tolerance.accepts(expected, got, bound)
        assert (is_accepted(expected, got, allowed) | ~right).all()
    with np.errstate(all="ignore"):
        got = (expected.astype(np.float64) * 1.5 + 1).astype(dtype)
    is_finite = np.isfinite(expected.astype(np.float64)) & np.isfinite(got.astype(np.float64))
    assert (is_accepted(expected, got, allowed) <= tolerance.accepts(expected, got, bound))[is_finite].all()


def is_accepted(expected, got, allowed):
    """The condition of run.py."""
    same = expected.view(f"u{expected.itemsize}") == got.view(f"u{got.itemsize}")
    with np.errstate(invalid="ignore"):
        x, y = got.astype(np.float64), expected.astype(np.float64)
        return same | (np.abs(x - y) <= allowed) | (np.isnan(allowed) & np.isnan(x))


def test_a_program_has_everything_that_runs_it():
    program = program_of(CASE)
    bug = program.manifest
    assert json.loads(program.all_files["bug.json"]) == bug
    (output,) = bug["outputs"]
    assert (output["type"], output["sizes"], output["strides"]) == ("float32", [7, 11], [11, 1])
    exponentials = np.frombuffer(program.files[output["expected"]], np.float32).reshape(7, 11)
    assert np.allclose(exponentials.sum(axis=1), 1)
    assert [len(program.files[buffer["file"]]) for buffer in bug["buffers"]] == [b["bytes"] for b in bug["buffers"]]
    (dispatch,) = bug["dispatches"]
    bases = struct.unpack_from("<2I", program.files[dispatch["parameters"]])
    (destination, source) = dispatch["bind"]
    assert destination[1] + 4 * bases[0] == output["offset"]
    assert bug["buffers"][source[0]]["writable"] == []
    assert "var<uniform> params" in program.kernels[0] and "var<immediate>" not in program.kernels[0]


def test_values_of_four_bits_are_compared_as_bytes():
    program = program_of("quantize-float16-uint4-4x9x4x2-packed-ties-s0")
    (output,) = program.manifest["outputs"]
    assert (output["type"], output["sizes"]) == ("uint8", [144])


@pytest.mark.parametrize("name", ["exp_f32-16", "quirk-silent_loops", "nonesuch"])
def test_cases_without_outputs_are_rejected(name):
    with pytest.raises((NotSupported, InvalidArgument), match=name):
        program_of(name)


SPIRV = struct.pack("<5I", 0x07230203, 0x10300, 0, 8, 0) + struct.pack("<4I", 2 << 16 | 17, 11, 2 << 16 | 17, 61)
SHARED = SPIRV + struct.pack("<5I", 5 << 16 | 59, 1, 2, 4, 3)
"""Modules with 64-bit integers and subgroups; the second has a variable of workgroup memory with an initializer."""


def test_amber_scripts(tmp_path):
    program = program_of("element_wise_divide-values-float16-33-packed-special-s0")
    manifest = {**program.manifest, "kernels": [{**program.manifest["kernels"][0], "spirv": "kernel-0.spv"}]}
    text = amber_script(dataclasses.replace(program, manifest=manifest), {0: SHARED}, {"case": "a # b"})
    for name, data in {**program.files, "kernel-0.spv": SHARED, "bug.amber": text.encode()}.items():
        (tmp_path / name).write_bytes(data)
    script = amber_scripts.check(tmp_path / "bug.amber")
    assert script.features == [
        "shaderInt64",
        "SubgroupSupportedOperations.basic",
        "ZeroInitializeWorkgroupMemoryFeatures.shaderZeroInitializeWorkgroupMemory",
    ]
    expected = np.frombuffer(program.files["expected-0.bin"], np.float16)
    assert len(script.expectations) == 33 - np.isinf(expected).sum()
    assert np.isnan(expected).any() and " EQ NaN\n" in text
    assert np.isinf(expected).any() and "# not compared, because Amber has no infinity" in text


def test_amber_scripts_compare_outputs_of_the_type_of_their_buffer(tmp_path):
    """Amber gives a buffer one type, so indices that share the buffer of values are not compared."""
    program = program_of(TOP_K)
    values, indices = program.manifest["outputs"]
    assert (values["type"], indices["type"]) == ("float32", "uint32")
    buffers = [*program.manifest["buffers"]]
    contents = [program.files[buffer["file"]] for buffer in buffers]
    offset = len(contents[values["buffer"]])
    shared = {**buffers[values["buffer"]], "bytes": offset + len(contents[indices["buffer"]])}
    buffers[values["buffer"]] = shared
    moved = {**indices, "buffer": values["buffer"], "offset": offset + indices["offset"]}
    kernels = [{**kernel, "spirv": f"kernel-{index}.spv"} for index, kernel in enumerate(program.manifest["kernels"])]
    manifest = {**program.manifest, "kernels": kernels, "buffers": buffers, "outputs": [values, moved]}
    text = amber_script(dataclasses.replace(program, manifest=manifest), dict.fromkeys(range(len(kernels)), SPIRV), {})
    files = {**program.files, shared["file"]: contents[values["buffer"]] + contents[indices["buffer"]]}
    for name, data in {**files, **{kernel["spirv"]: SPIRV for kernel in kernels}, "bug.amber": text.encode()}.items():
        (tmp_path / name).write_bytes(data)
    script = amber_scripts.check(tmp_path / "bug.amber")
    right = bytearray(files[shared["file"]])
    expected = program.files[values["expected"]]
    right[values["offset"] : values["offset"] + len(expected)] = expected
    assert script.failures({f"buffer{values['buffer']}": bytes(right)}) == []
    assert len(script.expectations) == len(expected) // 4
    assert "this output is uint32, its buffer float\n" in text


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("RUN pipeline0 1 1 1", "RUN pipeline1 1 1 1"),
        ("DESCRIPTOR_RANGE 324", "DESCRIPTOR_RANGE 32400"),
        ("EXPECT buffer1 IDX 16 ", "EXPECT buffer1 IDX 17 "),
        ("BINDING 2", "BINDING 3"),
        ("SIZE 109", "SIZE 110"),
        ("END", "FINISH"),
        ("e-02", "e-0x"),
    ],
)
def test_the_checker_notices_wrong_scripts(tmp_path, line, wrong):
    program = program_of(CASE)
    manifest = {**program.manifest, "kernels": [{**program.manifest["kernels"][0], "spirv": "kernel-0.spv"}]}
    text = amber_script(dataclasses.replace(program, manifest=manifest), {0: SPIRV}, {})
    for name, data in {**program.files, "kernel-0.spv": SPIRV, "bug.amber": text.encode()}.items():
        (tmp_path / name).write_bytes(data)
    amber_scripts.check(tmp_path / "bug.amber")
    assert line in text
    (tmp_path / "bug.amber").write_text(text.replace(line, wrong, 1))
    with pytest.raises((AssertionError, KeyError)):
        amber_scripts.check(tmp_path / "bug.amber")


def test_the_readme_says_what_is_missing_and_where_to_report():
    bug = {
        **program_of(CASE).manifest,
        "adapter": {"name": "card", "backend": "Vulkan", "driver": "driver 1.2"},
        "versions": {"wgpu": "0.32.0"},
        "reduced_from": "longer",
    }
    text = readme(bug, "crash", "Segmentation fault", {"run.py": b""}, ["SPIR-V: no driver"])
    assert "The process dies:\n\n    Segmentation fault\n" in text
    assert "| reduced from | longer |" in text and "| driver | driver 1.2 |" in text
    assert "Missing here:\n\n- SPIR-V: no driver\n" in text
    assert "amber" not in text.partition("## Report it")[0]
    assert all(place in text for _, place in TRACKERS)


def test_the_runner_in_python_is_short_and_needs_wgpu_only():
    files = runner_files(program_of(CASE).manifest)
    lines = [line for line in files["run.py"].decode().splitlines() if line.strip()]
    assert len(lines) <= 60
    assert "import wgpu" in lines and not any("import dmlgpu" in line or "numpy" in line for line in lines)
    assert b'{"output_tensor", "buffer-1.bin", 16, 324}' in files["bug.h"]
    assert b"./run [INDEX OF THE ADAPTER]" in files["run.c"]


def test_programs_are_cut_only_if_another_driver_computes_them_right():
    program, wrong = program_of(CASE), runners.RunnerResult("wrong", "", {})
    assert cutting.cut(program, wrong, lambda program: wrong, lambda program: wrong) is None


def test_float16_between_kernels_may_differ_by_units_in_the_last_place():
    """Two float16 elements in a word look like a float32 element, of which only the upper one is compared closely."""
    _, program = programs_of("pair-convolution-relu-float16-odd", Target("card"), INFO)
    halves = np.linspace(-3, 7, 106).astype(np.float16)
    contents = [program.files[buffer["file"]] for buffer in program.manifest["buffers"]]
    place = next(i for i, buffer in enumerate(program.manifest["buffers"]) if buffer["name"] == "temporary")
    contents[place] = halves.tobytes() + contents[place][halves.nbytes :]
    actual = {f"actual-{index}.bin": content for index, content in enumerate(contents)}

    def suspect(part: BugProgram) -> runners.RunnerResult:
        is_first = len(part.manifest["kernels"]) == 1 and "relu" not in part.manifest["kernels"][0]["label"].split()[-2]
        return runners.RunnerResult("wrong" if is_first else "pass", "", {})

    def judge(part: BugProgram) -> runners.RunnerResult:
        return runners.RunnerResult("pass", "", actual)

    result = cutting.cut(program, runners.RunnerResult("wrong", "", {}), suspect, judge)
    assert result is not None and (result.kernel, result.is_alone) == (1, True)
    (output,) = result.program.manifest["outputs"]
    assert (output["type"], output["sizes"]) == ("float16", [106])
    expected = np.frombuffer(result.program.files[output["expected"]], np.float16)
    allowed = np.frombuffer(result.program.files[output["allowed"]], "<f8")
    assert np.array_equal(expected, halves)
    for steps, accepted in ((0, True), (1, True), (2, True), (4, False)):
        got = (expected.view(np.uint16) + np.uint16(steps)).view(np.float16)
        assert (is_accepted(expected, got, allowed)[np.abs(expected) > 0.5] == accepted).all()


def test_words_of_floats_are_told_from_integers():
    assert cutting.are_floats(np.array([0.0, -1.5, 3e4], np.float32).view(np.uint32))
    assert not cutting.are_floats(np.array([1, 7, 300], np.uint32))
    assert not cutting.are_floats(np.array([-1, 5], np.int32).view(np.uint32))


def test_spirv_comes_from_mesa_only():
    other, lavapipe = INFO, dataclasses.replace(INFO, driver="Mesa 25.0.7")
    assert spirv.mesa_adapter(0, [other]) is None
    assert spirv.mesa_adapter(0, [other, lavapipe]) == 1
    assert spirv.mesa_adapter(1, [lavapipe, lavapipe]) == 1


def test_the_second_of_two_equal_cards_is_tested(tmp_path, monkeypatch):
    """As an index, or an object of the list of adapters, selects it."""
    cards = (INFO, dataclasses.replace(INFO))
    indices = []

    def run(program, *, adapter, time_limit):
        indices.append(adapter)
        return runners.RunnerResult("pass", "PASS", {})

    monkeypatch.setattr(writing, "adapters", lambda: cards)
    monkeypatch.setattr(writing, "run", run)
    for card in (*cards, dataclasses.replace(INFO)):
        device = SimpleNamespace(adapter=card, backend=SimpleNamespace(target=Target("card")))
        monkeypatch.setattr(writing, "as_device", lambda caller, chosen, device=device: device)
        with pytest.raises(DmlError, match="passes on"):
            write_bug_report(CASE, tmp_path)
    assert indices == [0, 1, 0]


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (1, "error", "exit code 1"),
        (-11, "crash", "exit code -11"),
        (3, "crash", "exit code 3"),
        (0xC0000005, "crash", "exit code 0xC0000005"),
    ],
)
def test_a_process_that_dies_is_a_crash_on_every_system(code, status, message, monkeypatch):
    done = subprocess.CompletedProcess((), code, "", "")
    monkeypatch.setattr(runners.subprocess, "run", lambda *command, **options: done)
    result = runners.run(program_of(CASE), 0, 60.0)
    assert (result.status, result.message) == (status, message)


@pytest.mark.parametrize(
    ("name", "value"),
    [("folder", None), ("folder", "a\0b"), ("case", 1), ("reduce", 1), ("passing", "yes"), ("time_limit", "1")],
)
def test_wrong_arguments_are_named(tmp_path, name, value):
    arguments = {"case": CASE, "folder": tmp_path, "device": "numpy", name: value}
    with pytest.raises(InvalidArgument, match=f"write_bug_report: {name} must be"):
        write_bug_report(**arguments)


def test_a_record_must_have_the_failure(tmp_path):
    record = tmp_path / "run.jsonl"
    assert run_here("test", "-a", "numpy", "-k", CASE, "-o", record).returncode == 0
    done = run_here("report-bug", CASE, "-o", tmp_path / "bug", "--run", record)
    assert (done.returncode, done.stderr) == (2, f"dmlgpu: {record}: no run in which {CASE} failed\n")


def test_the_adapter_of_a_record_is_taken(tmp_path):
    record = tmp_path / "run.jsonl"
    assert run_here("test", "-a", "numpy", "-k", CASE, "-o", record).returncode == 0
    record.write_text(record.read_text().replace('"pass"', '"fail"'))
    done = run_here("report-bug", CASE, "-o", tmp_path / "bug", "--run", record)
    assert done.returncode == 2
    assert "write_bug_report: device must be an adapter of wgpu, got NumPy: numpy" in done.stderr
    record.write_text(record.read_text().replace('"name": "numpy"', '"name": "other"'))
    done = run_here("report-bug", CASE, "-o", tmp_path / "bug", "--run", record)
    assert "the run was made on NumPy: other" in done.stderr


def test_the_recorded_one_of_two_equal_cards_is_taken(tmp_path, monkeypatch):
    record, chosen = tmp_path / "run.jsonl", []
    assert run_here("test", "-a", "numpy", "-k", CASE, "-o", record).returncode == 0
    header, *rest = record.read_text().replace('"pass"', '"fail"').splitlines(keepends=True)
    assert json.loads(header)["index"] == len(report_bug.adapters()) - 1
    card = json.loads(header)["adapter"]
    monkeypatch.setattr(report_bug, "adapters", lambda: [INFO, *[AdapterInfo(**{**card, "features": ()})] * 2])
    monkeypatch.setattr(report_bug, "Device", lambda index, precise: chosen.append(index))
    monkeypatch.setattr(
        report_bug, "write_bug_report", lambda *arguments, **options: BugReport(tmp_path, *[""] * 4, {}, ())
    )
    for index in (2, 1, 7):
        record.write_text(json.dumps({**json.loads(header), "index": index}) + "\n" + "".join(rest))
        run_here("report-bug", CASE, "-o", tmp_path / "bug", "--run", record)
    assert chosen == [2, 1, 1]


def test_adapters_of_dawn_are_rejected(monkeypatch, tmp_path):
    """The runners open adapters by their index in wgpu's list, where those of Dawn are not."""
    dawn = dataclasses.replace(INFO, backend="Dawn Vulkan")
    monkeypatch.setattr(writing, "adapters", lambda: (INFO, dawn))
    monkeypatch.setattr(writing, "as_device", lambda caller, device: SimpleNamespace(adapter=dawn))
    with pytest.raises(InvalidArgument, match="device must be an adapter of wgpu, got Dawn Vulkan: card"):
        write_bug_report(CASE, tmp_path)
