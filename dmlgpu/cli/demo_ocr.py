"""``dmlgpu demo ocr``: read the text in an image, and compare with onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from PIL import Image

from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.tables import status
from dmlgpu.common.files import load_picture, whole_file
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.demo.ocr import (
    OcrComparison,
    OcrModels,
    TextLine,
    compare,
    compose,
    on_device,
    on_onnxruntime,
    read_text,
    sample,
)
from dmlgpu.runtime.device import Device


@dataclass(frozen=True)
class _Run:
    """Seconds for one image: in total, and per stage."""

    whole: float
    stages: Mapping[str, float]


def demo(path: Path | None, target: Path, adapter: str | None, *, longest_side: int) -> None:
    """Write the image with boxes and text; print the lines, the times, and the difference from onnxruntime.

    Raises:
        OSError: If the image cannot be read, or the output not written.
        AdapterNotFound: If no adapter matches.
        NotSupported: If the models are not installed.
        typer.Exit: With code 1 if onnxruntime reads another text.
    """
    start = time.perf_counter()
    image = sample() if path is None else load_picture(path)
    device = Device(choose_adapter(adapter))
    models = on_device(device)
    with status() as show:
        show("compiling and reading")
        lines, first = _timed(image, models, longest_side)
        show("reading again")
        # numpy compiles nothing, so a second run would be no faster.
        again = first if device.adapter.backend == "NumPy" else _timed(image, models, longest_side)[1]
        show("comparing with onnxruntime")
        comparison = _compared(image, lines, models, longest_side)
    with whole_file(target) as stream:
        compose(image, lines, _subtitle(device.adapter, again)).save(stream, "PNG", optimize=True)
    print(f"adapter: {device.adapter}")
    _print_lines(lines)
    _print_times(models, first, again, comparison)
    _print_comparison(comparison)
    print(f"{target}: {time.perf_counter() - start:.1f} s in all")
    if comparison is not None and not comparison.ok:
        raise typer.Exit(1)


def _timed(image: Image.Image, models: OcrModels, longest_side: int) -> tuple[list[TextLine], _Run]:
    models.forget()
    start = time.perf_counter()
    lines = read_text(image, models, longest_side)
    whole = time.perf_counter() - start
    return lines, _Run(
        whole, {name: sum(call.seconds for call in model.calls) for name, model in models.stages.items()}
    )


def _compared(
    image: Image.Image, lines: Sequence[TextLine], models: OcrModels, longest_side: int
) -> OcrComparison | None:
    """Return the lines that onnxruntime reads; None if it is not installed."""
    try:
        others = on_onnxruntime()
    except ModuleNotFoundError:
        return None
    return compare(image, lines, models, others, longest_side)


def _subtitle(adapter: AdapterInfo, run: _Run) -> str:
    name = adapter.name.partition(" (")[0]
    return f"found and read by DirectML operators on {name} ({adapter.backend}) in {run.whole:.2f} s"


def _print_lines(lines: Sequence[TextLine]) -> None:
    rows = [(str(index), f"{line.probability:.3f}", line.text) for index, line in enumerate(lines, 1)]
    tables.table(("line", "probability", "text"), rows, right=(0, 1))


def _print_times(models: OcrModels, first: _Run, again: _Run, comparison: OcrComparison | None) -> None:
    rows = []
    for name, model in models.stages.items():
        shapes = [" x ".join(map(str, call.input.shape)) for call in model.calls]
        inputs = ", ".join(f"{shapes.count(shape)} of {shape}" for shape in dict.fromkeys(shapes))
        row = [name, inputs, _milliseconds(first.stages[name]), _milliseconds(again.stages[name])]
        if comparison is not None:
            row += [_milliseconds(comparison.seconds[name]), f"{comparison.differences[name]:.1e}"]
        rows.append(row)
    host = [_milliseconds(run.whole - sum(run.stages.values())) for run in (first, again)]
    rows.append(["boxes, crops, decoding", "on the host", *host, *([] if comparison is None else ["", ""])])
    columns = ["stage", "inputs", "first ms", "again ms"]
    if comparison is not None:
        columns += ["onnxruntime ms", "largest difference"]
    tables.table(columns, rows, right=(2, 3, 4, 5))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f}"


def _print_comparison(comparison: OcrComparison | None) -> None:
    if comparison is None:
        print("onnxruntime is not installed, so nothing was compared; install it with: pip install onnxruntime")
    elif comparison.same:
        largest = max(comparison.differences.values())
        print(
            f"onnxruntime reads the same {len(comparison.lines)} lines; probabilities differ by at most {largest:.1e}"
        )
    else:
        print("onnxruntime reads another text:")
        _print_lines(comparison.lines)
