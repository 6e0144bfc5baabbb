"""``dmlgpu run``."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.cli_process import dmlgpu, run_here

MODEL = {
    "resources": {
        "input": {"initialValuesDataType": "FLOAT32", "initialValues": [1, 2, 3, 4]},
        "output": {"initialValuesDataType": "FLOAT32", "initialValues": {"valueCount": 4, "value": 0}},
    },
    "dispatchables": {
        "reverse": {
            "type": "DML_OPERATOR_SLICE1",
            "desc": {
                "InputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
                "OutputTensor": {"DataType": "FLOAT32", "Sizes": [4]},
                "DimensionCount": 1,
                "InputWindowOffsets": [0],
                "InputWindowSizes": [4],
                "InputWindowStrides": [-1],
            },
        }
    },
    "commands": [
        {
            "type": "dispatch",
            "dispatchable": "reverse",
            "bindings": {"InputTensor": "input", "OutputTensor": "output"},
        },
        {"type": "print", "resource": "output"},
        {"type": "writeFile", "resource": "output", "targetPath": "out/reversed.npy"},
    ],
}


@pytest.fixture
def model(tmp_path):
    def write(**changes):
        path = tmp_path / "model.json"
        path.write_text(json.dumps(MODEL | changes))
        return path

    return write


@pytest.mark.slow
def test_prints_times_and_writes(model, tmp_path):
    done = dmlgpu("run", model(), "--output-dir", tmp_path, "--adapter", "numpy")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    file = tmp_path / "out" / "reversed.npy"
    assert re.fullmatch(r"Running on 'NumPy: numpy \(.*\)'", lines[0])
    assert re.fullmatch(r"Dispatch 'reverse': 1 iterations, [\d.]+ ms median \(CPU\)", lines[1])
    assert lines[2:] == ["Resource 'output': 4, 3, 2, 1", f"Resource 'output' written to '{file}'"]
    np.testing.assert_array_equal(np.load(file), np.float32([4, 3, 2, 1]))


def test_dxdispatchs_options_by_both_spellings(model, tmp_path):
    options = ("--dispatch_iterations", "3", "--warmup-samples", "2", "-v", "2")
    done = run_here("run", model(), "--output-dir", tmp_path, "--adapter", "numpy", *options)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [re.sub(r"[\d.]+ ms", "T", line) for line in done.stdout.splitlines()[1:8]]
    assert lines == [
        "Initialize 'reverse': T",
        "Dispatch 'reverse': 3 iterations",
        "CPU Timings (Cold) : 2 samples, T average, T min, T median, T max",
        "CPU Timings (Hot)  : 1 samples, T average, T min, T median, T max",
        "The timings of each iteration:",
        "iteration 0: T (CPU)",
        "iteration 1: T (CPU)",
    ]


def test_an_onnx_model_with_an_option_runs_on_zeros():
    file = Path(__file__).parents[3] / "examples" / "add.onnx"
    done = run_here("run", file, "--adapter", "numpy", "-f", "columns:3", "-b", "x:2,3", "-p")
    assert (done.returncode, done.stderr) == (0, "")
    assert "  Shape     = [2,3]" in done.stdout.splitlines()
    assert "Dispatch 'add.onnx': 1 iterations, " in done.stdout


@pytest.mark.parametrize("override", ["columns", ":3", "columns:0", "columns:1.5", "columns:4294967296"])
def test_an_override_of_another_form_is_2(override):
    done = run_here("run", "x.onnx", "-f", override)
    assert done.returncode == 2
    assert "--onnx_free_dim_name_override must be a name, a colon and sizes" in done.stderr


def test_a_missing_file_is_2():
    done = run_here("run", "nonesuch.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dmlgpu: nonesuch.json: there is no such model file\n"


def test_a_malformed_model_is_2_and_names_the_key(model):
    done = run_here("run", model(commands=[{"type": "print"}]), "--adapter", "numpy")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"dmlgpu: \S*commands\[0\].*\n", done.stderr), done.stderr


def test_an_operator_that_is_not_implemented_is_1_and_named(model, unregister):
    unregister("SLICE1")
    done = run_here("run", model(), "--adapter", "numpy")
    assert done.returncode == 1
    assert "SLICE1: dmlgpu does not implement this operator yet" in done.stderr
    assert "Traceback" not in done.stderr
