"""The built wheel: what is in it, and that it works away from the checkout."""

import json
import os
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

from dmlgpu import __version__
from tests.packaging.conftest import run

ROOT = Path(__file__).parents[2]

USE = """
import importlib.resources, json, sys
import numpy as np
import dmlgpu
from dmlgpu.compiler import operators
from dmlgpu.catalog.descs import Slice1
from dmlgpu.catalog.enums import DataType

vector = dmlgpu.TensorDesc(DataType.INT32, (4,))
desc = Slice1(
    input_tensor=vector, output_tensor=vector,
    input_window_offsets=(0,), input_window_sizes=(4,), input_window_strides=(-1,),
)
results = []
for adapter in dmlgpu.adapters():
    (result,) = dmlgpu.evaluate(desc, [np.arange(4, dtype=np.int32)], dmlgpu.Device(adapter))
    results.append(result.tolist())
shaders = importlib.resources.files("dmlgpu") / "shaders"
missing = [
    file for name in sorted(operators.implemented()) for file in operators.shader_files(name)
    if not (shaders / (file + ".wgsl")).is_file()
]
print(json.dumps({"file": dmlgpu.__file__, "results": results, "missing": missing}))
"""


def run_installed(installed, *command):
    # PYTHONPATH comes before site-packages, and so before an editable install of the checkout.
    return run(
        *command, cwd=installed.parent, env=os.environ | {"PYTHONPATH": str(installed), "PYTHONWARNINGS": "ignore"}
    )


def test_contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = Parser().parsestr(archive.read(next(name for name in names if name.endswith("/METADATA"))).decode())
    shaders = {f"dmlgpu/shaders/{path.relative_to(ROOT / 'shaders')}" for path in (ROOT / "shaders").rglob("*.wgsl")}
    assert shaders
    assert shaders <= names
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "dmlgpu").rglob("*.py")}
    assert modules <= names
    assert {
        "dmlgpu/py.typed",
        "dmlgpu/bench/radv_layer.c",
        "dmlgpu/catalog/descs.pyi",
        "dmlgpu/onnxruntime.pyi",
        "dmlgpu/ops/directml.pyi",
        "dmlgpu/catalog/operators.json",
        "dmlgpu/catalog/enums.json",
        "dmlgpu/catalog/synonyms.toml",
    } <= names
    pages = ROOT / "dmlgpu" / "export" / "pages"
    assert {f"dmlgpu/export/pages/{path.name}" for path in pages.iterdir()} <= names
    assert {name.split("/")[0] for name in names} == {"dmlgpu", f"dmlgpu-{metadata['Version']}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_operators_run_on_every_adapter_from_the_wheel(installed):
    report = json.loads(run_installed(installed, sys.executable, "-c", USE))
    assert Path(report["file"]).is_relative_to(installed)
    assert report["missing"] == []
    assert len(report["results"]) >= 1
    assert all(result == [3, 2, 1, 0] for result in report["results"])


def test_the_command_from_the_wheel(installed):
    command = installed / "bin" / "dmlgpu"
    version = run_installed(installed, sys.executable, command, "--version")
    assert version == f"dmlgpu {__version__}\n"
    assert "GATHER_ND1" in run_installed(installed, sys.executable, command, "ops", "--implemented")
