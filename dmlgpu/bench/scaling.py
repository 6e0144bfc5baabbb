"""Time against size, break-even between adapters, and plots of both and of the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.machine_load import BUSY
from dmlgpu.bench.records import Measurement, megabytes
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import whole_file

NUMPY = "NumPy"
"""Name of plain NumPy in place of an adapter; ``REFERENCE`` if it has no formula."""
REFERENCE = "the reference"
MAX_NOISE = 0.25
"""Half-width of a confidence interval, relative to the median, above which a time decides nothing."""
MAX_LISTED = 3
"""Maximum number of sizes that a sentence lists."""
MAX_TICKS = 12
"""Maximum labels of sizes on an axis."""


@dataclass(frozen=True)
class Sweep:
    """Measurements that differ only in sizes.

    Attributes:
        title: Name of the workload, without the varied sizes.
        size: Names of the varied sizes, ``m=k=n``; ``bytes`` if several vary independently.
        adapter, schedule: Adapter and schedule.
        points: Size and measurement, in ascending order.
    """

    title: str
    size: str
    adapter: str
    schedule: str
    points: tuple[tuple[int, Measurement], ...]

    @property
    def label(self) -> str:
        """Adapter and schedule."""
        return " ".join(filter(None, (self.adapter, self.schedule)))


def sweeps(measurements: Sequence[Measurement]) -> tuple[Sweep, ...]:
    """Return groups of measurements that differ only in sizes; single sizes are omitted."""
    kinds: dict[tuple[str, str, str, frozenset[str]], list[Measurement]] = {}
    for measurement in measurements:
        if measurement.median and measurement.sizes:
            kinds.setdefault(
                (measurement.operator, measurement.data_type, measurement.layout, frozenset(measurement.sizes)), []
            ).append(measurement)
    result = []
    for (operator, data_type, layout, _), alike in kinds.items():
        names = [name for name in alike[0].sizes if len({point.sizes[name] for point in alike}) > 1]
        if not names:
            continue
        tied = all(len({point.sizes[name] for name in names}) == 1 for point in alike)
        fixed = [f"{name}={size}" for name, size in alike[0].sizes.items() if name not in names and size > 1]
        title = " ".join(filter(None, [operator, *fixed, data_type, "" if layout == "packed" else layout]))
        curves: dict[tuple[str, str], dict[int, Measurement]] = {}
        for point in alike:
            place = point.sizes[names[0]] if tied else point.counts.get("bytes", 0)
            curves.setdefault((point.adapter, point.schedule), {})[place] = point
        size = "=".join(names) if tied else "bytes"
        for (adapter, schedule), points in curves.items():
            result.append(Sweep(title, size, adapter, schedule, tuple(sorted(points.items(), key=lambda at: at[0]))))
    return tuple(point for point in result if len(point.points) > 1)


def _wall_ends(measurement: Measurement) -> tuple[float, float] | None:
    """Return the confidence interval of the wall-clock time: as wide, relative to it, as that of the rounds."""
    if measurement.wall is None or not measurement.median or measurement.ends is None:
        return None
    low, high = measurement.ends
    return measurement.wall * low / measurement.median, measurement.wall * high / measurement.median


def is_faster(measurement: Measurement, other: Measurement) -> bool | None:
    """Return whether a measurement is faster than another, by wall-clock time; None if it is not decided: their
    confidence intervals overlap, or one is wider than half of its median."""
    ours, theirs = _wall_ends(measurement), _wall_ends(other)
    if ours is None or theirs is None or max(measurement.noise or 0.0, other.noise or 0.0) > MAX_NOISE:
        return None
    if ours[1] < theirs[0]:
        return True
    return False if theirs[1] < ours[0] else None


def _compared(sweep: Sweep, other: Sweep) -> list[tuple[int, bool | None]]:
    """Return the common sizes of two sweeps, and whether the first is faster there."""
    theirs = dict(other.points)
    return [(place, is_faster(point, theirs[place])) for place, point in sweep.points if place in theirs]


def break_even(sweep: Sweep, other: Sweep) -> int | None:
    """Return the smallest size from which on a sweep is faster than another, at every common size; None if it is
    slower at the largest, or something between is not decided (see ``is_faster``)."""
    first = None
    for place, faster in reversed(_compared(sweep, other)):
        if faster is None:
            return None
        if not faster:
            break
        first = place
    return first


def break_evens(curves: Sequence[Sweep]) -> list[str]:
    """Return a sentence for each sweep with the break-even size against NumPy, if that was measured and the confidence
    intervals allow to decide."""
    said = []
    for curve in curves:
        others = [
            other for other in curves if other.title == curve.title and other.adapter.startswith((NUMPY, REFERENCE))
        ]
        if others and curve not in others:
            said.append(f"{curve.title}: {_standing(curve, others[0])}")
    return said


def _standing(curve: Sweep, other: Sweep) -> str:
    """Return the conclusion about a sweep and another."""
    us, them, compared = curve.label, other.adapter, _compared(curve, other)
    undecided = [place for place, faster in compared if faster is None]
    if undecided:
        points = [point for side in (curve, other) for place, point in side.points if place in undecided]
        was_busy = any((point.taken or 0.0) > BUSY for point in points)
        is_noisy = any((point.noise or 0.0) > MAX_NOISE for point in points)
        times = "the times vary too much" if is_noisy else "the times are too close"
        reason = "the machine was busy" if was_busy else times
        sizes = _listed(curve.size, undecided, of=len(compared))
        return f"the measurements do not tell whether {us} is faster than {them} at {sizes}: {reason}"
    place, last = break_even(curve, other), compared[-1][0] if compared else curve.points[-1][0]
    faster = [size for size, is_less in compared if is_less]
    if place is None and faster:
        sizes = _listed(curve.size, faster, of=len(compared))
        return f"{us} is faster than {them} at {sizes}, but slower at {_size_text(curve.size, last)}"
    if place is None:
        return f"{us} is slower than {them} up to {_size_text(curve.size, last)}"
    if place == curve.points[0][0]:
        return f"{us} is faster than {them} from {_size_text(curve.size, place)} on"
    return f"{us} breaks even with {them} at {_size_text(curve.size, place)}; it is slower at the next smaller size"


def _size_text(name: str, size: int) -> str:
    """Return a size of a sweep: ``m=k=512``, or ``12.9 MB`` if several sizes vary independently."""
    return megabytes(size) if name == "bytes" else f"{name}={size:,}"


def _listed(name: str, sizes: Sequence[int], of: int) -> str:
    """Return ascending sizes of a sweep: a list, or the range if they are many.

    Args:
        name: Name of the varied sizes.
        sizes: The sizes.
        of: Number of measured sizes.
    """
    if len(sizes) > MAX_LISTED:
        count = "every size" if len(sizes) == of else f"{len(sizes)} sizes"
        return f"{count} from {_size_text(name, sizes[0])} to {_size_text(name, sizes[-1])}"
    return " and ".join(
        filter(None, (", ".join(_size_text(name, size) for size in sizes[:-1]), _size_text(name, sizes[-1])))
    )


FORMATS = (".png", ".svg")
_MARKERS = "osD^vP*X<>"


def check_path(path: Path) -> None:
    """Check the suffix of a plot before anything is measured.

    Raises:
        InvalidArgument: If the suffix is not one of FORMATS.
        ModuleNotFoundError: If matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InvalidArgument(f"{path}: the suffix must be one of {', '.join(FORMATS)}, got {path.suffix!r}")
    import matplotlib  # noqa: F401, PLC0415 - an extra


def plot(measurements: Sequence[Measurement], ceilings: Mapping[str, Ceilings], path: Path) -> None:
    """Plot the roofline of each adapter, and time against size.

    Args:
        measurements: Measurements; those without times are ignored.
        ceilings: Ceilings by adapter.
        path: File, .png or .svg.

    Raises:
        InvalidArgument: If the suffix is unknown, or there is nothing to plot.
        ModuleNotFoundError: If matplotlib is not installed.
        OSError: If the file cannot be written.
    """
    check_path(path)
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    known = [
        name
        for name in ceilings
        if any(measurement.adapter == name and measurement.median for measurement in measurements)
    ]
    curves = sweeps(measurements)
    titles = list(dict.fromkeys(curve.title for curve in curves))
    panels = len(known) + len(titles)
    if not panels:
        raise InvalidArgument(f"{path}: there are no measurements to plot")
    columns = min(2, panels)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(7 * columns, 5 * rows), layout="constrained")
    axes = iter(figure.subplots(rows, columns, squeeze=False).flat)
    for name in known:
        _roofline(
            next(axes),
            name,
            ceilings[name],
            [measurement for measurement in measurements if measurement.adapter == name],
        )
    for title in titles:
        _scaling(next(axes), [curve for curve in curves if curve.title == title])
    for unused in axes:
        unused.set_axis_off()
    _save(figure, path)


def plot_sweeps(curves: Sequence[Sweep], path: Path) -> None:
    """Plot time against size for sweeps with one title.

    Raises:
        InvalidArgument: If the suffix is unknown.
        ModuleNotFoundError: If matplotlib is not installed.
        OSError: If the file cannot be written.
    """
    check_path(path)
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    _scaling(figure.subplots(), curves)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    """Write a plot. SVG text remains text, and the file contains no date."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra

    kind = path.suffix.lower().removeprefix(".")
    with whole_file(path) as stream, rc_context({"svg.fonttype": "none", "svg.hashsalt": "dmlgpu"}):
        figure.savefig(stream, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)


def _roofline(axes: Any, adapter: str, ceilings: Ceilings, measurements: Sequence[Measurement]) -> None:
    """Plot operations per second against operations per byte, with the limits of copies and multiply-adds."""
    points = [
        (
            measurement.operations_per_second / (measurement.bytes_per_second or 1),
            measurement.operations_per_second,
            measurement,
        )
        for measurement in measurements
        if measurement.operations_per_second and measurement.bytes_per_second
    ]
    ridge = ceilings.multiply_add / ceilings.copy
    low = min([ridge / 8, *(intensity / 2 for intensity, *_ in points)])
    high = max([ridge * 8, *(intensity * 2 for intensity, *_ in points)])
    axes.plot(
        [low, ridge, high],
        [low * ceilings.copy / 1e9, ceilings.multiply_add / 1e9, ceilings.multiply_add / 1e9],
        color="black",
        label=f"copy {ceilings.copy / 1e9:.3g} GB/s, multiply-add {ceilings.multiply_add / 1e9:.3g} GFLOP/s",
    )
    for index, (intensity, rate, plotted) in enumerate(points):
        label = " ".join(filter(None, (plotted.name, plotted.schedule)))
        axes.plot(intensity, rate / 1e9, _MARKERS[index // 10 % len(_MARKERS)], label=label)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s", title=f"{adapter}: roofline")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(fontsize=6 if len(points) > 8 else 8, ncols=1 + len(points) // 25)


def _scaling(axes: Any, curves: Sequence[Sweep]) -> None:
    """Plot seconds against size with intervals, and the break-even with NumPy."""
    numpy = next((curve for curve in curves if curve.adapter.startswith("NumPy")), None)
    for index, sweep in enumerate(curves):
        places = [place for place, _ in sweep.points]
        times = [point.median or 0.0 for _, point in sweep.points]
        ends = [point.ends or (0.0, 0.0) for _, point in sweep.points]
        errors = [
            [time - low for time, (low, _) in zip(times, ends, strict=True)],
            [high - time for time, (_, high) in zip(times, ends, strict=True)],
        ]
        axes.errorbar(places, times, errors, marker=_MARKERS[index % len(_MARKERS)], capsize=2, label=sweep.label)
        place = None if numpy is None or sweep is numpy else break_even(sweep, numpy)
        if place is not None and place != places[0]:
            axes.axvline(place, linestyle=":", color="gray", label=f"{sweep.label}: as fast as NumPy from {place:,} on")
    axes.set(xscale="log", yscale="log", xlabel=curves[0].size, ylabel="seconds per dispatch", title=curves[0].title)
    axes.minorticks_off()
    measured = sorted({place for sweep in curves for place, _ in sweep.points})
    ticks = measured[:: math.ceil(len(measured) / MAX_TICKS)]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=30)
    axes.grid(visible=True, alpha=0.2)
    axes.legend(fontsize=8)
