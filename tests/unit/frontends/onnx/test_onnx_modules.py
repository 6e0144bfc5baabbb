"""The docstring of the package is a map of its modules."""

from __future__ import annotations

import re
from pathlib import Path

from dmlgpu.frontends import onnx


def test_the_map_names_every_module() -> None:
    folder = Path(onnx.__file__).parent
    modules = {path.stem for path in folder.iterdir() if path.name != "__init__.py" and not path.name.startswith("__")}
    _, _, path = (onnx.__doc__ or "").partition("From a model to its results:")
    assert {name.rstrip("/") for name in re.findall(r"``([a-z_]+/?)``", path)} == modules
