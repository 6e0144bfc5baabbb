"""The ``numpy`` adapter in an environment that has everything but wgpu: library and command line."""

import json
import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.unit.cli.cli_process import START

ROOT = Path(__file__).parents[3]
WHY = "wgpu is not installed, so no GPU can be reached"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Run Python with arguments in such an environment and return the finished process."""
    environment = tmp_path_factory.mktemp("without_wgpu")
    venv.EnvBuilder(symlinks=os.name != "nt").create(environment)
    (packages,) = environment.glob("[Ll]ib/**/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if entry.name.partition("-")[0] != "wgpu":
            (packages / entry.name).symlink_to(entry)
    (interpreter,) = environment.glob("*/python")
    variables = {name: value for name, value in os.environ.items() if name != "DMLGPU_ADAPTER"}

    def run(program, *arguments):
        return subprocess.run(
            [interpreter, "-c", program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=variables | {"PYTHONPATH": str(ROOT)},
        )

    return run


def test_the_environment_has_no_wgpu(python):
    assert "No module named 'wgpu'" in python("import wgpu").stderr


@pytest.mark.slow
def test_the_library(python):
    finished = python(
        "import sys, numpy, dmlgpu\n"
        "row = dmlgpu.TensorDesc(dmlgpu.DataType.FLOAT32, (3,))\n"
        "desc = dmlgpu.descs.ElementWiseNegate(input_tensor=row, output_tensor=row)\n"
        "(result,) = dmlgpu.evaluate(desc, [numpy.arange(3, dtype=numpy.float32)], dmlgpu.Device('numpy'))\n"
        "print(result.tolist(), [info.name for info in dmlgpu.adapters()])\n"
    )
    assert (finished.stdout, finished.stderr) == ("[-0.0, -1.0, -2.0] ['numpy']\n", "")


@pytest.mark.parametrize(
    "attempt",
    [
        "Device('llvmpipe')",
        "Device(1)",
        "Device(dmlgpu.AdapterInfo('GeForce', 'Vulkan', 'discrete', 'NVIDIA', '550'))",
        "Device.from_wgpu(object())",
    ],
)
def test_a_gpu_is_not_found(python, attempt):
    finished = python(f"import dmlgpu\ntry: dmlgpu.{attempt}\nexcept dmlgpu.AdapterNotFound as error: print(error)\n")
    first, only = finished.stdout.splitlines()
    assert first.startswith("no adapter matches ")
    assert first.endswith(f": {WHY}; available adapters:")
    assert only.startswith("  0: NumPy: numpy (")


@pytest.mark.slow
def test_the_default_device_says_why_it_is_slow(python):
    finished = python("import dmlgpu\nprint(dmlgpu.Device().adapter.name)")
    assert finished.stdout == "numpy\n"
    assert f"SoftwareAdapterWarning: {WHY}: dmlgpu computes on 'numpy', in software; " in finished.stderr


@pytest.mark.slow
def test_devices(python):
    (only,) = json.loads(python(START, "devices", "--json").stdout)
    assert (only["name"], only["default"]) == ("numpy", True)
    refused = python(START, "devices", "--adapter", "llvmpipe")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"dmlgpu: no adapter matches 'llvmpipe': {WHY}; available adapters:\n  0: NumPy")


@pytest.mark.slow
def test_doctor(python):
    finished = python(START, "doctor", "--json")
    assert (finished.returncode, finished.stderr) == (1, "")
    report = json.loads(finished.stdout)
    problems = [finding["text"] for finding in report["findings"] if finding["is_problem"]]
    assert any(text.startswith("wgpu is not installed; dmlgpu needs wgpu") for text in problems)
    assert "there is no GPU adapter: everything runs on the NumPy reference, slowly" in problems
    assert [(adapter["name"], adapter["default"], adapter["works"]) for adapter in report["adapters"]] == [
        ("numpy", True, True)
    ]


@pytest.mark.slow
def test_run(python):
    model = ROOT / "tests" / "data" / "dxdispatch" / "gather.json"
    finished = python(START, "run", str(model), "-a", "numpy")
    assert (finished.returncode, finished.stderr) == (0, "")


@pytest.mark.slow
def test_test(python, tmp_path):
    record = tmp_path / "run.jsonl"
    case = ("--suite", "chains", "-k", "chain-float32-own-12-s0")
    finished = python(START, "test", "-a", "numpy", *case, "-o", str(record))
    assert finished.returncode == 0, finished.stderr
    facts, outcome, _ = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    assert (facts["adapter"]["name"], facts["wgpu"]) == ("numpy", "not installed")
    assert outcome["status"] == "pass"
    refused = python(START, "test", "-a", "llvmpipe", *case)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"dmlgpu: no adapter matches 'llvmpipe': {WHY}; available adapters:\n  0: NumPy")


@pytest.mark.slow
def test_the_suite_of_everything_loads(python):
    code = "from dmlgpu.conformance.suites.registry import suite_by_name\nprint(suite_by_name('dmlgpu').profiles)"
    finished = python(code)
    assert (finished.stdout, finished.stderr) == ("('quick', 'standard', 'full')\n", "")


def test_shaders_are_not_supported(python):
    finished = python(START, "test", "-a", "numpy", "--suite", "accuracy", "-k", "exp_f32-16")
    assert finished.returncode == 0, finished.stderr
    assert "not supported" in finished.stdout
