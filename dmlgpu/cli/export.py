"""``dmlgpu export``: write a model, a graph or a test suite as a static web page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dmlgpu import export
from dmlgpu.cli import tables
from dmlgpu.cli.run import frontend, read_array
from dmlgpu.cli.subjects import find_subjects
from dmlgpu.common.errors import InvalidArgument

DEMO = "demo"
"""Name that selects the graph of the demo."""

DEMO_SIDE = 256
"""Height and width of the photographs that the demo takes, in pixels."""

_MODEL = re.compile(r"(?P<file>.+\.json)(?::(?P<name>.+))?", re.IGNORECASE)


@dataclass(frozen=True)
class Options:
    """Options of an exported model.

    Attributes:
        shapes: Shapes of inputs of ONNX models, each ``name=1x3``, ``name=1x3,4`` or ``name=1x160..640/32``.
        weights: Values of inputs of graphs and operators, each ``name=file.npy``.
        schedules: ``gpu`` or ``cpu``.
        half_precision: Use float16 arithmetic.
        without: Disabled passes of the graph compiler.
        matrices: Size of the matrices of products.
    """

    shapes: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    schedules: str = "gpu"
    half_precision: bool = False
    without: tuple[str, ...] = ()
    matrices: str = ""


def export_model(what: str, folder: Path, options: Options) -> None:
    """Export a model and print a summary.

    Args:
        what: Path of a model, ``demo``, or anything that ``dmlgpu show`` takes.
        folder: Output folder.
        options: Options of the export.

    Raises:
        InvalidArgument: If `what` names nothing or several things, or an option does not apply to it.
        DmlError: As ``dmlgpu.export.write``, ``write_onnx`` and ``write_dxdispatch``.
        OSError: If a file cannot be read or written.
    """
    written = _written(what, folder, options)
    loaded = sum(written.files.values())
    features = ", ".join(written.features) or "none beyond the WebGPU defaults"
    tables.facts(
        str(folder),
        [
            ("files", f"{len(written.files)}, {loaded:,} bytes, of which {written.weight_bytes:,} are weights"),
            *([("sizes", f"{written.sizes} combinations")] if written.sizes > 1 else []),
            ("dispatches", f"{written.kernels}"),
            ("kernels", f"{written.shaders}"),
            ("memory", f"{written.memory_bytes:,} bytes on the device"),
            ("features", features),
        ],
    )
    print(f"serve the folder and open it: python -m http.server --directory {folder}")


def _written(what: str, folder: Path, options: Options) -> export.Exported:
    schedules, half, matrices = options.schedules, options.half_precision, options.matrices
    if what == DEMO:
        from dmlgpu.demo.palette import NAMES, palette_graph  # noqa: PLC0415 - needs Pillow, other exports do not

        _reject(options, what, "shapes", "weights")
        return export.write(
            palette_graph(DEMO_SIDE, DEMO_SIDE),
            folder,
            outputs=NAMES,
            half_precision=half,
            disabled_passes=options.without,
            schedules=schedules,
            matrices=matrices,
        )
    if what.lower().endswith(".onnx"):
        _reject(options, what, "weights", "without")
        frontend()
        shapes = dict(map(parse_sizes, options.shapes))
        return export.write_onnx(
            Path(what), folder, shapes, half_precision=half, schedules=schedules, matrices=matrices
        )
    model = _MODEL.fullmatch(what)
    if model is not None:
        _reject(options, what, "shapes", "weights", "without", "half_precision", "matrices")
        return export.write_dxdispatch(model["file"], folder, model["name"], schedules=schedules)
    _reject(options, what, "shapes")
    subjects = find_subjects(what)
    if len(subjects) != 1:
        names = ", ".join(subject.title for subject in subjects)
        raise InvalidArgument(f"export takes one graph or operator, but {what} has {len(subjects)}: {names}")
    return export.write(
        subjects[0].desc,
        folder,
        weights=dict(read_array("export: --weights", weight) for weight in options.weights),
        half_precision=half or subjects[0].half_precision,
        disabled_passes=options.without,
        schedules=schedules,
        matrices=matrices,
    )


def parse_sizes(text: str) -> tuple[str, tuple[int | tuple[int, ...], ...]]:
    """Return name and sizes of ``name=1x3``, where a dimension may have several: ``1,2,4`` or ``160..640/32``.

    Raises:
        InvalidArgument: If the text is malformed.
    """
    name, _, sizes = text.rpartition("=")
    try:
        return name, tuple(_parse_dimension(size) for size in sizes.split("x") if sizes)
    except ValueError:
        raise InvalidArgument(
            f"--shape must be name=1x3x192, or with several sizes name=1x3x160..640/32 or name=1,2x3, got {text!r}"
        ) from None


def _parse_dimension(text: str) -> int | tuple[int, ...]:
    if ".." in text:
        limits, _, step = text.partition("/")
        first, last = map(int, limits.split(".."))
        return tuple(range(first, last + 1, int(step or 1)))
    return tuple(map(int, text.split(","))) if "," in text else int(text)


def _reject(options: Options, what: str, *names: str) -> None:
    """Reject options that do not apply to the exported subject."""
    flags = {"shapes": "shape", "half_precision": "half"}
    for name in names:
        if getattr(options, name):
            raise InvalidArgument(f"export: --{flags.get(name, name)} does not apply to {what}")


def export_suite(profile: str, patterns: Sequence[str], folder: Path, schedules: str) -> None:
    """Export a page that runs test cases in a browser, and print a summary.

    Raises:
        InvalidArgument: If the profile is unknown, or no case matches.
        OSError: If a file cannot be written.
    """
    from dmlgpu.export.conformance import write_suite  # noqa: PLC0415  it loads all suites

    written = write_suite(folder, profile, patterns, schedules=schedules)
    tables.facts(
        str(folder),
        [
            ("files", f"{len(written.files)}, {sum(written.files.values()):,} bytes"),
            ("cases", f"{len(written.cases)}, and {len(written.left_out)} that only dmlgpu test can run"),
        ],
    )
    print(f"serve the folder and open it: python -m http.server --directory {folder}")
    print("files that visitors save can be passed to dmlgpu report")
