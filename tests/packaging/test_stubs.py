"""Generated modules, as users, editors and type checkers see them in a wheel and in an editable install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("dmlgpu", "shaders", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
ALIASES = ("descs", "directmlx", "enums", "errors", "onnx", "onnxruntime", "random", "torch")
STUBS = sorted(
    [
        "__init__.pyi",
        "catalog/descs.pyi",
        "ops/directml.pyi",
        "tensors/directmlx.pyi",
        *(f"{alias}.pyi" for alias in ALIASES),
    ]
)

BUILD = {
    "wheel": "from hatchling.build import build_wheel as build; import sys; build(sys.argv[1])",
    "editable": "from hatchling.build import build_editable as build; import sys; build(sys.argv[1])",
}

CORRECT = """
import numpy as np
from collections.abc import Callable
from pathlib import Path

import dmlgpu.onnx
from dmlgpu import DataType, Graph, TensorDesc, descs, directmlx, ops
from dmlgpu.descs import Gemm
from dmlgpu.directmlx import max_pooling
from dmlgpu.errors import DmlError
from dmlgpu.onnx import Session, load
from dmlgpu.onnxruntime import InferenceSession, SessionOptions
from dmlgpu.catalog.enums import MatrixTransform
from dmlgpu.ops import directml

x = np.ones((2, 2), np.float32)
y = directml.gemm(x, x, alpha=2.0, trans_b=MatrixTransform.TRANSPOSE)
top = ops.directml.top_k1(x, axis=1, k=1)
values = top.output_value
graph = Graph()
z = directml.gemm(graph.input((2, 2)), graph.input((2, 2)), name="product")
sizes: tuple[int, ...] = z.sizes
matrix = TensorDesc(DataType.FLOAT32, (2, 2))
desc = descs.Gemm(a_tensor=matrix, b_tensor=matrix, output_tensor=matrix)
scale: float = desc.alpha
cls: type[descs.Gemm] = descs.Gemm
same: type[Gemm] = descs.Gemm
loads: Callable[[Path], Session] = load
session: Callable[[Path, SessionOptions], InferenceSession] = InferenceSession
pooled = max_pooling(np.ones((1, 1, 4, 4), np.float32), (2, 2), strides=(2, 2)).output
total = directmlx.add(directmlx.identity(x), x, fused_activation="relu")
assert dmlgpu.onnx.load is load is dmlgpu.load
assert issubclass(DmlError, Exception)
"""

WRONG = """
import numpy as np
from dmlgpu import descs, directmlx, ops
from dmlgpu.onnxruntime import InferenceSession

x = np.ones((2, 2), np.float32)
InferenceSession("model.onnx").run(3)
ops.directml.gemm(x, x, alpha="2")
ops.directml.gemm(x)
ops.no_such_operator(x)
ops.directml.gemm("x", x)
descs.Gemm(a_tensor=3)
descs.NoSuchOperator()
directmlx.max_pooling(x)
"""

ERRORS = [
    'wrong.py:7: error: Missing positional argument "input_feed" in call to "run" of "InferenceSession"  [call-arg]',
    'wrong.py:7: error: Argument 1 to "run" of "InferenceSession" has incompatible type "int"',
    'wrong.py:8: error: Argument "alpha" to "gemm" has incompatible type "str"; expected "float"  [arg-type]',
    'wrong.py:9: error: Missing positional argument "b" in call to "gemm"  [call-arg]',
    'wrong.py:10: error: Module has no attribute "no_such_operator"  [attr-defined]',
    'wrong.py:11: error: Argument 1 to "gemm" has incompatible type "str"',
    'wrong.py:12: error: Missing named argument "b_tensor" for "Gemm"  [call-arg]',
    'wrong.py:12: error: Missing named argument "output_tensor" for "Gemm"  [call-arg]',
    'wrong.py:12: error: Argument "a_tensor" to "Gemm" has incompatible type "int"; expected "TensorDesc"  [arg-type]',
    'wrong.py:13: error: Module has no attribute "NoSuchOperator"  [attr-defined]',
    'wrong.py:14: error: Missing positional argument "window_size" in call to "max_pooling"  [call-arg]',
]


def run(*command: object, cwd: Path, code: int = 0) -> str:
    # Neither a checkout on the path nor an adapter of the machine plays a part.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=variables | {"DMLGPU_ADAPTER": "numpy", "PAGER": "cat"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=BUILD)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with dmlgpu, built from a checkout without stubs."""
    folder = tmp_path_factory.mktemp(request.param)
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("*.pyi", "__pycache__"))
        else:
            shutil.copy(ROOT / name, checkout / name)
    run(sys.executable, "-c", BUILD[request.param], folder, cwd=checkout)
    (wheel,) = folder.glob("*.whl")

    environment = folder / "environment"
    venv.EnvBuilder(symlinks=os.name != "nt").create(environment)
    (packages,) = environment.glob("[Ll]ib/**/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "dmlgpu" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    (interpreter,) = environment.glob("*/python")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", interpreter, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=folder)
    where = checkout if request.param == "editable" else packages
    imported = run(interpreter, "-c", "import dmlgpu; print(dmlgpu.__file__)", cwd=folder)
    assert Path(imported.strip()) == where / "dmlgpu" / "__init__.py"
    assert [path.relative_to(where / "dmlgpu").as_posix() for path in sorted(where.rglob("dmlgpu/**/*.pyi"))] == STUBS
    return interpreter


def test_help_and_signatures(python: Path, tmp_path: Path) -> None:
    text = run(python, "-c", "from dmlgpu import ops; help(ops.softmax); help(ops.directml.gemm)", cwd=tmp_path)
    assert "Help on function softmax in module dmlgpu.ops" in text
    assert "Help on function gemm in module dmlgpu.ops.directml:" in text
    assert "    Batched general matrix multiply with optional transposes, scaled addend and fused activation." in text
    assert "        a: input; 2 to 4 dimensions; FLOAT32, FLOAT16; { [BatchCount], [ChannelCount], M, K }." in text
    signature = run(
        python,
        "-c",
        "import inspect; from dmlgpu import ops; print(inspect.signature(ops.directml.gemm))",
        cwd=tmp_path,
    )
    assert signature == (
        "(a: 'Operand', b: 'Operand', c: 'Operand | None' = None, *, "
        "trans_a: 'MatrixTransform | str' = <MatrixTransform.NONE: 0>, "
        "trans_b: 'MatrixTransform | str' = <MatrixTransform.NONE: 0>, alpha: 'float' = 1.0, beta: 'float' = 1.0, "
        "fused_activation: 'OperatorDesc | str | None' = None, device: 'Device | str | None' = None, "
        "name: 'str | None' = None) -> 'Array'\n"
    )


def test_completion_in_a_repl(python: Path, tmp_path: Path) -> None:
    program = (
        "import rlcompleter\nfrom dmlgpu import descs, directmlx, ops\n"
        "completer = rlcompleter.Completer(globals())\n"
        "for text in ('ops.directml.element_wise_bit_n', 'ops.softm', 'ops.directml.gem', 'ops.directml.TopK', "
        "'descs.Gem'):\n"
        "    matches = [completer.complete(text, state) for state in range(3)]\n"
        "    print(*(match.strip('()') for match in matches if match))\n"
    )
    assert run(python, "-c", program, cwd=tmp_path).splitlines() == [
        "ops.directml.element_wise_bit_not",
        "ops.softmax",
        "ops.directml.gemm",
        "ops.directml.TopK1Outputs ops.directml.TopKOutputs",
        "descs.Gemm",
    ]


def test_mypy_on_a_users_program(python: Path, tmp_path: Path) -> None:
    (tmp_path / "correct.py").write_text(CORRECT, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    run(python, "correct.py", cwd=tmp_path)
    mypy = (python, "-m", "mypy", "--cache-dir", tmp_path / "cache", "--no-error-summary", "--hide-error-context")
    errors = [
        line for line in run(*mypy, "correct.py", "wrong.py", cwd=tmp_path, code=1).splitlines() if "error" in line
    ]
    assert len(errors) == len(ERRORS), "\n".join(errors)
    assert all(error.startswith(expected) for error, expected in zip(errors, ERRORS, strict=True)), "\n".join(errors)
