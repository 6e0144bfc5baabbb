"""DxDispatch's JSON models of DirectML operators: load, run, see what they print and write.

The format is documented in DxDispatch's guide (github.com/microsoft/DirectML, DxDispatch/doc/Guide.md). Shaders are
WGSL in place of HLSL; docs/dxdispatch.md says what else differs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from dmlgpu.frontends.dxdispatch.execution import execute
from dmlgpu.frontends.dxdispatch.files import MissingFile
from dmlgpu.frontends.dxdispatch.loading import load
from dmlgpu.frontends.dxdispatch.model import DxModel as Model
from dmlgpu.frontends.dxdispatch.onnx_models import OnnxOptions
from dmlgpu.frontends.dxdispatch.result import (
    Dispatched,
    Event,
    Initialized,
    OnnxBound,
    Printed,
    TimingOptions,
    Written,
    report,
)
from dmlgpu.frontends.dxdispatch.result import DxResult as Result
from dmlgpu.runtime.device import Device

__all__ = [
    "Dispatched",
    "Event",
    "Initialized",
    "MissingFile",
    "Model",
    "OnnxBound",
    "OnnxOptions",
    "Printed",
    "Result",
    "TimingOptions",
    "Written",
    "execute",
    "load",
    "report",
    "run",
]


def run(
    model: Model | Mapping[str, Any] | str | os.PathLike[str],
    device: Device | None = None,
    *,
    output_directory: str | os.PathLike[str] | None = None,
    allow_paths: bool = False,
) -> dict[str, NDArray[Any]]:
    """Run a model; return its results.

    Args:
        model: Path of a JSON or ONNX file, the content of a JSON file as a Python mapping, or a loaded model.
        device: Device to run on; None opens the default adapter.
        output_directory: Folder for files; None means the current directory.
        allow_paths: Whether the model may read and write any regular file; see ``load``.

    Returns:
        A DxResult with every resource named by a print or writeFile command, as of the last such command: with the
            dtype of its initial values, and the sizes given by a writeFile, else those of the tensor that was last
            written, else those of its .npy file, else those of its first tensor, else flat. The sizes of a tensor apply
            if it covers the whole resource.

    Raises:
        ModelError, MissingFile: As ``load``.
        ModelError, BindingError, NotSupported, OutOfMemory: As ``execute``.
    """
    loaded = model if isinstance(model, Model) else load(model, allow_paths=allow_paths)
    return dict(execute(loaded, device, output_directory=output_directory).resources)
