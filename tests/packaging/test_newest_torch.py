"""The newest PyTorch that the extra `torch` allows. All other tests run on the oldest."""

import os
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.conftest import ROOT, run

TESTS = "tests/unit/frontends/torch"
SLOW = [f"{TESTS}/test_torch_{name}.py" for name in ("compile", "dynamic", "versions")]
"""Tests of the code that depends most on PyTorch's internals, of which the slow ones run too."""


@pytest.fixture(scope="module")
def python(wheel: Path) -> Iterator[Path]:
    """The interpreter of an environment with the wheel and its extra; other packages are those of this interpreter."""
    with tempfile.TemporaryDirectory() as folder:  # several GB if PyTorch's package has CUDA's libraries
        venv.create(folder, symlinks=True)
        interpreter = Path(folder) / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", interpreter, "install", "--quiet", "--no-input", f"{wheel}[torch]")
        (site,) = Path(folder).glob("lib/python*/site-packages")
        paths = [path for path in sys.path if path.endswith("-packages")]
        (site / "zz_shared.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        yield interpreter


def test_the_device_works(python: Path, record_property: Any) -> None:
    environment = os.environ | {"DMLGPU_ADAPTER": "numpy"}
    for name in ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    version = run(python, "-c", "import torch; print(torch.__version__)", cwd=ROOT, env=environment).strip()
    record_property("torch", version)
    for selection in (["-m", "not slow", TESTS], ["-m", "slow", *SLOW]):
        pytest_ = python, "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider"
        report = run(*pytest_, *selection, cwd=ROOT, env=environment)
        assert " passed" in report and " failed" not in report, report
