"""``dmlgpu run``: a DxDispatch model."""

from __future__ import annotations

from pathlib import Path

from dmlgpu.cli.adapter import choose_adapter
from dmlgpu.device.device import Device
from dmlgpu.frontends import dxdispatch


def run(model: Path, output_dir: Path | None, adapter: str | None, *, allow_paths: bool = False) -> None:
    """Run a model and print what happens as it happens, in DxDispatch's words.

    Raises:
        ModelError, MissingFile: the model is malformed or missing.
        AdapterNotFound: no adapter matches.
        DmlError: the device refuses the model.
    """
    loaded = dxdispatch.load(model, allow_paths=allow_paths)
    device = Device(choose_adapter(adapter))
    print(f"Running on '{device.adapter}'", flush=True)
    dxdispatch.execute(
        loaded, device, output_directory=output_dir, on_event=lambda event: print(str(event).rstrip(), flush=True)
    )
