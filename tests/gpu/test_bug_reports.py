"""Bug reports of planted faults: their folders fail without dmlgpu, and pass with the right kernels."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import wgpu

from dmlgpu import DmlError, InvalidArgument
from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.drivers.discovery import Discovery, LocatedAdapter
from dmlgpu.conformance.mutation.rules import mutant_by_name
from dmlgpu.conformance.mutation.suite import clear_caches
from dmlgpu.export.bugs import programs, runners, write_bug_report, writing
from dmlgpu.export.bugs.programs import programs_of
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device
from tests import amber_scripts

RESOURCES = Path(wgpu.__file__).parent / "resources"
SUBTRACT = "element_wise_subtract-float32-2x3-packed-s0"
GATHER = "gather_nd1-uint16-int32-3x5-padded-negative-s0"
FAULTS = {
    SUBTRACT: "elementwise/element_wise_subtract:3:16:plus_for_minus",
    GATHER: "indexing/gather_nd1:14:43:unequal_for_equal",
    "pair-softmax-scale_bias-float16-plain": "softmax/activation_softmax1:3:40:times_for_divide",
}
ALONE = """
import runpy, sys
sys.modules["dmlgpu"] = None  # an import of it raises
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script in a Python that cannot import dmlgpu."""


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """A device on the first Vulkan adapter of Mesa's."""
    info = next((info for info in adapters() if info.backend == "Vulkan" and "Mesa" in info.driver), None)
    if info is None:
        pytest.skip("no Vulkan driver of Mesa")
    device = Device(info)
    yield device
    device.remove()


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """A fault in the shaders."""
    mutant = mutant_by_name(name)
    clear_caches()
    with without_files(), templates.replaced(mutant.file, mutant.text):
        yield
    clear_caches()


def run(folder: Path, device: Device) -> subprocess.CompletedProcess[str]:
    """The runner of a folder, without dmlgpu."""
    command = [sys.executable, "-I", "-c", ALONE, str(folder / "run.py"), str(adapters().index(device.adapter))]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("case", "fault"), FAULTS.items())
def test_a_report_fails_without_dmlgpu_and_passes_with_the_right_kernels(case, fault, device, tmp_path):
    with planted(fault):
        report = write_bug_report(case, tmp_path, device, reduce=case != GATHER)
    # Kernels of smaller cases need no features. Others number invocations by subgroups on llvmpipe.
    missing = ("the web page: the kernels need features or limits that not every browser has",)
    assert (report.status, report.missing) == ("wrong", missing if case == GATHER else ())
    assert report.case == (case if case != SUBTRACT else "element_wise_subtract-float32-1-packed-s0")
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.*")} == set(report.files)
    failed = run(tmp_path, device)
    assert (failed.returncode, failed.stderr) == (1, "")
    assert failed.stdout.splitlines()[-1] == report.message.splitlines()[-1]

    bug = json.loads((tmp_path / "bug.json").read_bytes())
    script = amber_scripts.check(tmp_path / "bug.amber")
    assert script.failures(contents(bug, tmp_path, "actual"))
    assert not script.failures(contents(bug, tmp_path, "expected"))
    assert len(script.expectations) == sum(np.prod(output["sizes"]) for output in bug["outputs"])

    clear_caches()
    sound = programs_of(report.case, device.backend.target, device.adapter, portable=not bug["features"])
    program = next(each for each in sound if len(each.manifest["dispatches"]) == len(bug["dispatches"]))
    for kernel, wgsl in zip(bug["kernels"], program.kernels, strict=True):
        (tmp_path / kernel["wgsl"]).write_text(wgsl)
    passed = run(tmp_path, device)
    assert (passed.returncode, passed.stdout.splitlines()[-1]) == (0, "PASS")


def contents(bug, folder: Path, which: str) -> dict[str, bytes]:
    """The buffers of the outputs with the actual or the expected elements in place."""
    buffers = {}
    for index, output in enumerate(bug["outputs"]):
        data = bytearray((folder / bug["buffers"][output["buffer"]]["file"]).read_bytes())
        elements = np.fromfile(folder / f"{which}-{index}.bin", output["type"])
        width = elements.itemsize
        for element, place in zip(elements, np.ndindex(*output["sizes"]), strict=True):
            start = output["offset"] + width * int(np.dot(place, output["strides"]))
            data[start : start + width] = element.tobytes()
        buffers[f"buffer{output['buffer']}"] = bytes(data)
    return buffers


PRODUCT = "quantized_linear_matrix_multiply-int8-int8-int8-3x15x16x5-aligned-single-s0"


@pytest.mark.slow
def test_programs_are_cut_to_the_first_wrong_kernel(device, tmp_path, monkeypatch):
    """The second of three kernels is wrong on a driver. It fails alone, with inputs that another driver computes."""
    (whole,) = programs_of(PRODUCT, device.backend.target, device.adapter)
    count, faulty = len(whole.manifest["dispatches"]), whole.kernels[whole.manifest["dispatches"][1]["kernel"]]
    wrong = faulty.replace("] = block;", "] = block + block;")
    assert wrong != faulty and whole.kernels.count(faulty) == 1

    def run_on(program, adapter, time_limit, environment=None):
        """Run on the faulty driver; on the other one in the environment of a driver."""
        if environment is None:
            texts = {name: wrong.encode() for name, text in program.files.items() if text == faulty.encode()}
            program = replace(program, files={**program.files, **texts})
        return runners.run(program, adapter, time_limit)

    other = LocatedAdapter(replace(device.adapter, driver="another"), adapters().index(device.adapter))
    monkeypatch.setattr(writing, "run", run_on)
    monkeypatch.setattr(writing, "all_drivers", lambda: Discovery((other,)))
    monkeypatch.setattr(writing, "MAX_TRIES", 0)
    report = write_bug_report(PRODUCT, tmp_path, device)
    assert (report.status, report.missing) == ("wrong", ())
    assert report.kernel == f"2 of {count}, alone; its inputs were computed by {other.info}"
    bug = json.loads((tmp_path / "bug.json").read_bytes())
    (dispatch,), (kernel,) = bug["dispatches"], bug["kernels"]
    assert len(bug["buffers"]) == len({index for index, _, _ in dispatch["bind"]})
    assert (tmp_path / kernel["wgsl"]).read_text() == faulty
    assert f"| kernel | {report.kernel} |" in (tmp_path / "README.md").read_text()
    passed = run(tmp_path, device)
    assert (passed.returncode, passed.stdout.splitlines()[-1]) == (0, "PASS")
    (tmp_path / kernel["wgsl"]).write_text(wrong)
    failed = run(tmp_path, device)
    assert (failed.returncode, failed.stdout.splitlines()[-1]) == (1, report.message.splitlines()[-1])


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.skipif(not (RESOURCES / "wgpu.h").exists(), reason="this build of wgpu-py has no headers")
def test_the_runner_in_c(device, tmp_path):
    with planted(FAULTS[SUBTRACT]):
        write_bug_report(SUBTRACT, tmp_path, device, reduce=False)
    (library,) = RESOURCES.glob("*wgpu_native*")
    flags = ["-Wall", "-Werror", "-I", RESOURCES, library, f"-Wl,-rpath,{RESOURCES}", "-lm", "-o", "run"]
    subprocess.run(["cc", "run.c", *flags], cwd=tmp_path, check=True)
    command = ["./run", str(adapters().index(device.adapter))]
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (failed.returncode, failed.stdout.splitlines()[-1]) == (1, "FAIL: 6 problems")
    clear_caches()
    (program,) = programs_of(SUBTRACT, device.backend.target, device.adapter)
    (tmp_path / "kernel-0.wgsl").write_text(program.kernels[0])
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("spirv-val") is None, reason="spirv-val is not installed")
def test_spirv_is_that_of_the_kernel(device, tmp_path):
    report = write_bug_report("reduce-int32-3x70-packed-sum-s0", tmp_path, device, passing=True)
    assert report.status == "pass"
    modules = sorted(tmp_path.glob("*.spv"))
    bug = json.loads((tmp_path / "bug.json").read_bytes())
    assert [module.name for module in modules] == [kernel["spirv"] for kernel in bug["kernels"]]
    for module, kernel in zip(modules, bug["kernels"], strict=True):
        subprocess.run(["spirv-val", "--target-env", "vulkan1.3", module], check=True)
        text = subprocess.run(["spirv-dis", module], capture_output=True, text=True, check=True).stdout
        bound = max(len(dispatch["bind"]) for dispatch in bug["dispatches"])
        assert {int(number) for number in re.findall(r"Binding (\d+)", text)} == set(range(bound + 1))
        (sizes,) = re.findall(r"@workgroup_size\((\d+)", (tmp_path / kernel["wgsl"]).read_text())
        assert re.search(rf"LocalSize {sizes} 1 1", text)


def test_bytes_outside_of_outputs_must_not_change(device, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_writable", lambda run: {index: [] for index in range(len(run["buffers"]))})
    report = write_bug_report(SUBTRACT, tmp_path, device, reduce=False)
    assert report.status == "wrong"
    assert report.message.splitlines()[0] == "output_tensor: bytes changed that no kernel may change"


def test_a_hang_is_reported_as_one(device, tmp_path):
    report = write_bug_report(SUBTRACT, tmp_path, device, reduce=False, time_limit=0.01)
    assert (report.status, report.message) == ("time-out", "no result after 0.01 s")
    assert "The runner does not end:" in (tmp_path / "README.md").read_text()


def test_cases_that_pass_are_not_written(device, tmp_path):
    with pytest.raises(DmlError, match=f"{SUBTRACT} passes on .* as a program of wgpu alone"):
        write_bug_report(SUBTRACT, tmp_path / "none", device)
    assert not (tmp_path / "none").exists()


def test_the_reference_has_no_kernels(tmp_path):
    with pytest.raises(InvalidArgument, match="device must be an adapter of wgpu, got NumPy"):
        write_bug_report(SUBTRACT, tmp_path, "numpy")
