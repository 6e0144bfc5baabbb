"""The public face: what ``import dmlgpu`` offers and what it loads."""

import subprocess
import sys

import pytest

import dmlgpu

PROGRAM = """
import sys
import dmlgpu
heavy = [name for name in ("wgpu", "numpy", "jinja2") if name in sys.modules]
print(heavy, [name for name in sys.modules if name.startswith("dmlgpu.")])
"""


def test_importing_loads_nothing_else():
    loaded = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[] []"


@pytest.mark.parametrize("name", dmlgpu.__all__)
def test_every_public_name_is_there(name):
    assert getattr(dmlgpu, name) is not None
    assert name in dir(dmlgpu)


def test_dir_is_the_public_surface():
    assert dir(dmlgpu) == sorted([*dmlgpu.__all__, "__version__"])


def test_the_onnx_front_end_is_imported_on_use():
    loaded = "import dmlgpu; print(dmlgpu.onnx.load.__module__.startswith('dmlgpu.frontends.onnx'))"
    printed = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "True"


ALIASES = """
import sys
import dmlgpu.onnx, dmlgpu.descs, dmlgpu.onnx.checking as checking
from dmlgpu.onnx import load
from dmlgpu.onnxruntime import InferenceSession
from dmlgpu.errors import DmlError
import dmlgpu.frontends.onnx, dmlgpu.frontends.onnx.checking as home, dmlgpu.frontends.onnxruntime
assert sys.modules["dmlgpu.onnx"] is dmlgpu.onnx is dmlgpu.frontends.onnx
assert dmlgpu.onnxruntime is dmlgpu.frontends.onnxruntime and checking is home
assert dmlgpu.load is load and dmlgpu.DmlError is DmlError and dmlgpu.errors.DmlError is DmlError
assert dmlgpu.onnx.__spec__.name == dmlgpu.onnx.__name__ == "dmlgpu.frontends.onnx"
assert "onnx.reference" not in sys.modules  # it takes memory, and few need it
import onnx
assert onnx.__name__ == "onnx"
for name in ("dmlgpu.nothing", "dmlgpu.onnx.nothing"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        print(error)
"""


@pytest.mark.slow
def test_modules_are_imported_by_their_short_names():
    printed = subprocess.run([sys.executable, "-c", ALIASES], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [
        "No module named 'dmlgpu.nothing'",
        "No module named 'dmlgpu.frontends.onnx.nothing'",
    ]


def test_unknown_names():
    with pytest.raises(AttributeError, match=r"^module 'dmlgpu' has no attribute 'Devise'; did you mean Device\?$"):
        dmlgpu.Devise  # noqa: B018
