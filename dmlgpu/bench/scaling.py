"""Time against size, break-even between adapters, and plots of both and of the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlgpu.bench.ceilings import Ceilings
from dmlgpu.bench.records import Measurement
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import whole_file

NUMPY = "NumPy"
"""Name of plain NumPy in place of an adapter; ``REFERENCE`` if it has no formula."""
REFERENCE = "the reference"


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


def break_even(sweep: Sweep, other: Sweep) -> int | None:
    """Return the smallest size from which on a sweep is faster than another, at every common size; None if it is
    slower at the largest. Compares wall-clock time."""
    times = {place: measurement.wall for place, measurement in other.points}
    first = None
    for place, measurement in reversed(sweep.points):
        theirs = times.get(place)
        if theirs is None or measurement.wall is None:
            continue
        if measurement.wall > theirs:
            break
        first = place
    return first


def faster_at(sweep: Sweep, other: Sweep) -> list[int]:
    """Return the sizes at which a sweep is faster than another, by wall-clock time."""
    times = {place: measurement.wall for place, measurement in other.points}
    return [
        place
        for place, measurement in sweep.points
        if measurement.wall is not None and measurement.wall <= (times.get(place) or 0.0)
    ]


def break_evens(curves: Sequence[Sweep]) -> list[str]:
    """Return a sentence for each sweep with the break-even size against NumPy, if that was measured."""
    said = []
    for curve in curves:
        others = [
            other for other in curves if other.title == curve.title and other.adapter.startswith((NUMPY, REFERENCE))
        ]
        if not others or curve in others:
            continue
        place = break_even(curve, others[0])
        first, last = curve.points[0][0], curve.points[-1][0]
        faster = faster_at(curve, others[0])
        if place is None and faster:
            where = ", ".join(f"{size:,}" for size in faster)
            said.append(
                f"{curve.title}: {curve.label} is faster than {others[0].adapter} at {curve.size}={where}, but slower"
                f" at {last:,}"
            )
        elif place is None:
            said.append(f"{curve.title}: {curve.label} is slower than {others[0].adapter} up to {curve.size}={last:,}")
        elif place == first:
            said.append(
                f"{curve.title}: {curve.label} is faster than {others[0].adapter} from {curve.size}={first:,} on"
            )
        else:
            said.append(
                f"{curve.title}: {curve.label} breaks even with {others[0].adapter} at {curve.size}={place:,}; it is"
                " slower at the next smaller size"
            )
    return said


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
    axes.grid(visible=True, alpha=0.2)
    axes.legend(fontsize=8)
