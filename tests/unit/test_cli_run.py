"""``dmlgpu run``."""

import json
import re

import numpy as np
import pytest

from tests.unit.cli_process import dmlgpu, run_here

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


def test_prints_times_and_writes(model, tmp_path):
    done = dmlgpu("run", model(), "--output-dir", tmp_path, "--adapter", "numpy")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    file = tmp_path / "out" / "reversed.npy"
    assert re.fullmatch(r"Running on 'NumPy: numpy \(.*\)'", lines[0])
    assert re.fullmatch(r"Initialize 'reverse': [\d.]+ ms", lines[1])
    assert re.fullmatch(r"Dispatch 'reverse': [\d.]+ ms \(CPU\)", lines[2])
    assert lines[3:] == ["Resource 'output': 4, 3, 2, 1", f"Resource 'output' written to '{file}'"]
    np.testing.assert_array_equal(np.load(file), np.float32([4, 3, 2, 1]))


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
