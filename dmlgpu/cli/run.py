"""``dmlgpu run``: a DxDispatch model, or an ONNX model on arrays from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dmlgpu.cli.adapter import choose_adapter
from dmlgpu.cli.dispatching import DispatchOptions
from dmlgpu.device.device import Device
from dmlgpu.errors import InvalidArgument
from dmlgpu.files import whole_file
from dmlgpu.frontends import dxdispatch


def run(
    model: Path,
    output_dir: Path | None,
    adapter: str | None,
    *,
    allow_paths: bool = False,
    inputs: Sequence[str] = (),
    dispatching: DispatchOptions | None = None,
) -> None:
    """Run a model and print what happens: for DxDispatch's in its words, for ONNX the outputs.

    Raises:
        ModelError, MissingFile: the model is malformed or missing.
        InvalidArgument: an input that is no ``name=file.npy``, or not the model's.
        AdapterNotFound: no adapter matches.
        DmlError: the device refuses the model.
    """
    options = dispatching or DispatchOptions()
    if model.suffix.lower() == ".onnx" and (inputs or options == DispatchOptions()):
        _run_onnx(model, output_dir, adapter, inputs)
        return
    if inputs:
        raise InvalidArgument(f"run: --input is for models in ONNX, got {model.name}")
    loaded = dxdispatch.load(model, allow_paths=allow_paths, onnx=options.onnx)
    device = Device(choose_adapter(adapter))
    print(f"Running on '{device.adapter}'", flush=True)

    def tell(event: dxdispatch.Event) -> None:
        text = dxdispatch.report(event, options.verbosity)
        if text is not None:
            print(text.rstrip(), flush=True)

    dxdispatch.execute(
        loaded,
        device,
        output_directory=output_dir,
        on_event=tell,
        timing=options.timing,
        print_onnx_bindings=options.print_bindings,
    )


def _run_onnx(model: Path, output_dir: Path | None, adapter: str | None, inputs: Sequence[str]) -> None:
    """Run an ONNX model once, print its outputs, and write them where a folder is given."""
    try:
        from dmlgpu.frontends import onnx  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InvalidArgument(f"run: models in ONNX need the extra `dmlgpu[onnx]`: {error}") from None
    arrays = dict(_read(one) for one in inputs)
    device = Device(choose_adapter(adapter))
    print(f"Running on '{device.adapter}'", flush=True)
    for name, array in onnx.load(model, device).run(arrays).items():
        print(f"{name}: {array.dtype} {list(array.shape)}")
        print(np.array2string(array, threshold=64))
        if output_dir is not None:
            output_dir.mkdir(parents=True, exist_ok=True)
            with whole_file(output_dir / f"{name.replace('/', '_')}.npy") as stream:
                np.save(stream, array)


def _read(text: str) -> tuple[str, np.ndarray]:
    """Return name and array of ``name=file.npy``."""
    name, _, path = text.partition("=")
    if not name or not path:
        raise InvalidArgument(f"run: --input must be name=file.npy, got {text!r}")
    try:
        return name, np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"run: --input {name}: {path} cannot be read: {error}") from None
