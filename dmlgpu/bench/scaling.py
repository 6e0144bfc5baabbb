"""How times grow with sizes: measurements of one kind in the order of their sizes, and where one overtakes another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dmlgpu.bench.measurement import Measurement

NUMPY = "NumPy"
"""What plain NumPy is called where an adapter's name stands; ``REFERENCE`` where there is no formula for it."""
REFERENCE = "the reference"


@dataclass(frozen=True)
class Sweep:
    """Measurements that differ in sizes alone.

    Attributes:
        title: what was measured, without the sizes that change.
        size: the names of what changes, ``m=k=n``; ``bytes`` where several change and not together.
        adapter, schedule: where, and how.
        points: of each size the number and the measurement, ascending.
    """

    title: str
    size: str
    adapter: str
    schedule: str
    points: tuple[tuple[int, Measurement], ...]

    @property
    def label(self) -> str:
        """Where, and how."""
        return " ".join(filter(None, (self.adapter, self.schedule)))


def sweeps(measurements: Sequence[Measurement]) -> tuple[Sweep, ...]:
    """Return the measurements that belong together and differ in sizes; those of one size belong to none."""
    kinds: dict[tuple[str, str, str, frozenset[str]], list[Measurement]] = {}
    for one in measurements:
        if one.median and one.sizes:
            kinds.setdefault((one.operator, one.data_type, one.layout, frozenset(one.sizes)), []).append(one)
    found = []
    for (operator, data_type, layout, _), alike in kinds.items():
        names = [name for name in alike[0].sizes if len({one.sizes[name] for one in alike}) > 1]
        if not names:
            continue
        tied = all(len({one.sizes[name] for name in names}) == 1 for one in alike)
        fixed = [f"{name}={size}" for name, size in alike[0].sizes.items() if name not in names and size > 1]
        title = " ".join(filter(None, [operator, *fixed, data_type, "" if layout == "packed" else layout]))
        curves: dict[tuple[str, str], dict[int, Measurement]] = {}
        for one in alike:
            place = one.sizes[names[0]] if tied else one.counts.get("bytes", 0)
            curves.setdefault((one.adapter, one.schedule), {})[place] = one
        size = "=".join(names) if tied else "bytes"
        for (adapter, schedule), points in curves.items():
            found.append(Sweep(title, size, adapter, schedule, tuple(sorted(points.items(), key=lambda at: at[0]))))
    return tuple(one for one in found if len(one.points) > 1)


def break_even(sweep: Sweep, other: Sweep) -> int | None:
    """Return the smallest size from which on a sweep is faster than another, at every size that both have; None where
    it is slower at the largest. The host's time counts, submission included: it is what somebody waits for."""
    times = {place: one.wall for place, one in other.points}
    found = None
    for place, one in reversed(sweep.points):
        theirs = times.get(place)
        if theirs is None or one.wall is None:
            continue
        if one.wall > theirs:
            break
        found = place
    return found


def faster_at(sweep: Sweep, other: Sweep) -> list[int]:
    """Return the sizes at which a sweep is faster than another, by the host's time."""
    times = {place: one.wall for place, one in other.points}
    return [place for place, one in sweep.points if one.wall is not None and one.wall <= (times.get(place) or 0.0)]


def break_evens(found: Sequence[Sweep]) -> list[str]:
    """Return in a sentence each from where on sweeps are faster than NumPy, where that was measured beside."""
    said = []
    for one in found:
        others = [other for other in found if other.title == one.title and other.adapter.startswith((NUMPY, REFERENCE))]
        if not others or one in others:
            continue
        place = break_even(one, others[0])
        first, last = one.points[0][0], one.points[-1][0]
        faster = faster_at(one, others[0])
        if place is None and faster:
            where = ", ".join(f"{size:,}" for size in faster)
            said.append(
                f"{one.title}: {one.label} is faster than {others[0].adapter} at {one.size}={where}, but slower at"
                f" {last:,}"
            )
        elif place is None:
            said.append(f"{one.title}: {one.label} is slower than {others[0].adapter} up to {one.size}={last:,}")
        elif place == first:
            said.append(f"{one.title}: {one.label} is faster than {others[0].adapter} from {one.size}={first:,} on")
        else:
            said.append(
                f"{one.title}: {one.label} breaks even with {others[0].adapter} at {one.size}={place:,}; it is slower"
                " at the next smaller size"
            )
    return said
