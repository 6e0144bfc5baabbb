"""``dmlgpu run MODEL.onnx --inputs 'pictures/*.png'``: run a model on many files, on several adapters or a cluster."""

from __future__ import annotations

import contextlib
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dmlgpu.cli.devices import ALL, choose_adapters
from dmlgpu.common.errors import InvalidArgument, InvalidState
from dmlgpu.common.files import whole_file, write_array
from dmlgpu.frontends.onnx import model as onnx_model
from dmlgpu.frontends.onnx.input_files import PictureOptions, check_options, find_files, read_inputs
from dmlgpu.frontends.onnx.mapping import (
    Batch,
    MapAdapter,
    MapOptions,
    Outputs,
    map_adapters,
    map_cluster,
    named_error,
)
from dmlgpu.runtime.adapters import environment_choice
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

INTERVAL = 10.0
"""Seconds between two lines of progress if standard error is no terminal."""


@dataclass(frozen=True)
class ManyInputs:
    """``--inputs`` and the options that go with it.

    Attributes:
        patterns: Values of ``--inputs``.
        adapters: Names or numbers, or ``all``; empty selects the default adapter.
        scheduler: Address of a Dask cluster; None for this machine.
        strict: Stop at the first file that fails.
        size: ``HEIGHTxWIDTH`` of images.
        scale, mean, std: Conversion of pixels; numbers separated by commas.
    """

    patterns: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    scheduler: str | None = None
    strict: bool = False
    size: str | None = None
    scale: float | None = None
    mean: str | None = None
    std: str | None = None

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> ManyInputs:
        """Return the options of the command line; None marks an omitted one."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in options.items()
            if value is not None
        }
        return cls(**fields)

    @property
    def pictures(self) -> PictureOptions:
        """Return the conversion of images to inputs.

        Raises:
            InvalidArgument: If an option is malformed.
        """
        options = PictureOptions()
        return PictureOptions(
            None if self.size is None else _size(self.size),
            options.scale if self.scale is None else self.scale,
            options.mean if self.mean is None else _numbers("--mean", self.mean),
            options.std if self.std is None else _numbers("--std", self.std),
        )


def run(model: Path, output_dir: Path | None, adapter: str | None, many: ManyInputs, *, precise: bool = False) -> None:
    """Run a model on files; write the outputs to files, or print them.

    Args:
        model: Path of the model.
        output_dir: Folder for one .npz file per input; None prints the outputs.
        adapter: The only adapter, used instead of ``many.adapters``.
        many: Input files, and where to run.
        precise: Whether devices are ``Device(precise=True)``.

    Raises:
        InvalidArgument: If an option is invalid.
        InvalidState: If files failed; each was printed with its reason.
        DmlError: If the model is rejected, or no worker is left.
    """
    if not many.patterns:
        raise InvalidArgument(
            "run: --adapters, --scheduler, --strict, --size, --scale, --mean and --std need --inputs 'FOLDER/*.png'"
        )
    if model.suffix.lower() != ".onnx":
        raise InvalidArgument(f"run: --inputs needs an ONNX model, got {model.name}")
    from_environment = many.scheduler is not None and adapter == environment_choice()  # which is about this machine
    adapters = many.adapters or (() if adapter is None or from_environment else (adapter,))
    loaded = onnx_model.read(model)
    onnx_model.check_supported(loaded, False)
    pictures = many.pictures
    check_options(pictures, loaded.inputs)
    files = find_files(many.patterns)
    batches = [Batch(str(file), partial(read_inputs, file, loaded.inputs, pictures)) for file in files]
    names = output_names(files)
    options = MapOptions(precise=precise)
    if many.scheduler is None:
        local = _local_adapters(adapters)
        print(f"Running on {', '.join(chosen.text for chosen in local)}", file=sys.stderr)
        results = map_adapters(loaded, batches, local, options, ordered=output_dir is None, warn=_warn)
    else:
        ordered = output_dir is None
        results = map_cluster(loaded, batches, many.scheduler, adapters or None, options, ordered=ordered, warn=_warn)
    done, failed, by_worker, start = 0, 0, Counter[str](), time.monotonic()
    try:
        with closing(results), _progress(len(files)) as show:
            for result in results:
                if result.value is None:
                    failed += 1
                    _warn(str(named_error(result)))
                    if many.strict:
                        break
                else:
                    _keep(result.item.name, result.value, output_dir, names[result.index])
                    done += 1
                    by_worker[result.worker] += 1
                show(done + failed, failed)
    finally:
        if done or failed:
            _summarize(done, len(files), time.monotonic() - start, by_worker, output_dir)
    if failed:
        raise InvalidState(f"run: {failed} of {len(files)} files failed" + ("; the others were not run" * many.strict))


def output_names(files: Sequence[Path]) -> list[str]:
    """Return the names of the output files: those of the inputs, with their folders if names collide."""
    stems = Counter(file.stem for file in files)
    return [f"{file.stem if stems[file.stem] == 1 else '_'.join(file.parts).strip('/_')}.npz" for file in files]


def write_outputs(path: Path, outputs: Outputs) -> None:
    """Write arrays to an .npz file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, array in outputs.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_array(member, array)  # type: ignore[arg-type]


def _keep(name: str, outputs: Outputs, folder: Path | None, file: str) -> None:
    if folder is not None:
        write_outputs(folder / file, outputs)
        return
    for output, array in outputs.items():
        elements = " ".join(np.array2string(array.reshape(-1), threshold=8, edgeitems=3).split())
        print(f"{name}: {output} {array.dtype} {list(array.shape)} {elements}", flush=True)


def _summarize(done: int, count: int, seconds: float, by_worker: Counter[str], folder: Path | None) -> None:
    where = "" if folder is None or not done else f", outputs in {folder}"
    rate = f" ({done / seconds:.1f} per second)" if done and seconds > 0 else ""
    print(f"{done} of {count} files in {seconds:.1f} s{rate}{where}", file=sys.stderr)
    if len(by_worker) > 1:
        for worker, files in by_worker.most_common():
            print(f"  {files} by {worker}", file=sys.stderr)


def _local_adapters(requested: Sequence[str]) -> list[MapAdapter]:
    """Return the requested adapters of this machine; ``all`` excludes the reference if there are others."""
    chosen = choose_adapters(requested)
    if list(requested) == [ALL]:
        chosen = tuple(adapter for adapter in chosen if adapter.info != NUMPY_ADAPTER) or chosen
    return [MapAdapter(adapter.index, str(adapter.info), dict(adapter.environment)) for adapter in chosen]


def _warn(text: str) -> None:
    print(f"dmlgpu: {text}", file=sys.stderr)


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes the number of files done and failed, and shows a bar on a terminal, else a line
    now and then."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns: Sequence[Any] = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        redirects = sys.stdout.isatty()
        with Progress(*columns, TimeRemainingColumn(), console=console, redirect_stdout=redirects) as progress:
            task = progress.add_task("", total=count)
            yield lambda done, failed: progress.update(
                task, completed=done, description=f"{failed} failed" if failed else ""
            )
        return
    last_report = time.monotonic()

    def show(done: int, failed: int) -> None:
        nonlocal last_report
        if time.monotonic() - last_report >= INTERVAL:
            last_report = time.monotonic()
            print(f"{done} of {count} files, {failed} failed", file=sys.stderr, flush=True)

    yield show


def _size(text: str) -> tuple[int, int]:
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise InvalidArgument(f"run: --size must be HEIGHTxWIDTH, such as 224x224, got {text!r}")
    return int(height), int(width)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InvalidArgument(
            f"run: {option} must be one number or one per channel, such as 0.485,0.456,0.406, got {text!r}"
        ) from None
