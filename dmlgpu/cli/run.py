"""``dmlgpu run``: a DxDispatch model, or an ONNX model on arrays from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dmlgpu.cli.adapter import choose_adapter
from dmlgpu.cli.dispatching import DispatchOptions
from dmlgpu.cli.run_onnx import OnnxOptions, run_onnx
from dmlgpu.device.device import Device
from dmlgpu.errors import InvalidArgument
from dmlgpu.frontends import dxdispatch


def run(
    model: Path,
    output_dir: Path | None,
    adapter: str | None,
    *,
    precise: bool = False,
    allow_paths: bool = False,
    dispatching: DispatchOptions | None = None,
    **options: Any,
) -> None:
    """Run a model and print what happens: for DxDispatch's in its words, for ONNX the outputs.

    Args:
        model: its path.
        output_dir: where files are written.
        adapter: part of an adapter's name, or its number; None chooses.
        precise: whether the device is ``Device(precise=True)``.
        allow_paths: whether a DxDispatch model may read and write files anywhere.
        dispatching: how often and how long it runs, in DxDispatch's way; None for once. A model in ONNX runs in that
            way where anything of it is asked for.
        options: what is asked of a model in ONNX beyond that: the attributes of ``OnnxOptions``.

    Raises:
        ModelError, MissingFile: the model is malformed or missing.
        InvalidArgument: an option that is not for the kind of model; an input that is no ``name=file.npy``.
        AdapterNotFound: no adapter matches.
        DmlError: the device refuses the model.
    """
    onnx, dispatch = OnnxOptions(**options), dispatching or DispatchOptions()
    if onnx != OnnxOptions() and (model.suffix.lower() != ".onnx" or dispatch != DispatchOptions()):
        wrong = model.name if model.suffix.lower() != ".onnx" else "options of DxDispatch's beside them"
        ours = "--input, --check, --profile, --profile-json, --trace and --repeat"
        raise InvalidArgument(f"run: {ours} are for models in ONNX, got {wrong}")
    if model.suffix.lower() == ".onnx" and dispatch == DispatchOptions():
        run_onnx(model, output_dir, adapter, onnx, precise=precise)
        return
    loaded = dxdispatch.load(model, allow_paths=allow_paths, onnx=dispatch.onnx)
    device = Device(choose_adapter(adapter), precise=precise)
    print(f"Running on '{device.adapter}'", flush=True)

    def tell(event: dxdispatch.Event) -> None:
        text = dxdispatch.report(event, dispatch.verbosity)
        if text is not None:
            print(text.rstrip(), flush=True)

    dxdispatch.execute(
        loaded,
        device,
        output_directory=output_dir,
        on_event=tell,
        timing=dispatch.timing,
        print_onnx_bindings=dispatch.print_bindings,
    )
