"""``dmlgpu run MODEL.onnx --profile``: time per kernel, node, operator and module, and the device's ceilings."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dmlgpu.bench import machine_load
from dmlgpu.bench.ceilings import Ceilings, Share, known_ceilings, measure_ceilings
from dmlgpu.bench.profiles import ProfileRow, ProfileTables
from dmlgpu.bench.records import ceilings_text
from dmlgpu.cli import tables
from dmlgpu.common.errors import DmlError
from dmlgpu.common.files import whole_file
from dmlgpu.runtime.device import Device

_MAX_ROWS = 40


def device_ceilings(
    device: Device,
    measure: Callable[[Device], Ceilings] = measure_ceilings,
    clock: Callable[[], float] = time.perf_counter,
) -> Ceilings | None:
    """Return the ceilings of a device, cached or measured now. A measurement is announced on standard error.

    Returns:
        None if they cannot be measured, which is reported as well.
    """

    def measured() -> Ceilings:
        start = clock()
        ceilings = measure(device)
        print(f"dmlgpu: measured the ceilings of {device.adapter} in {clock() - start:.1f} s", file=sys.stderr)
        return ceilings

    try:
        cached = known_ceilings(device.adapter, measured, machine_load.measure_load())
    except DmlError as error:
        print(f"dmlgpu: the ceilings of {device.adapter} could not be measured: {error}", file=sys.stderr)
        return None
    if cached.doubt:
        print(f"dmlgpu: ceilings: {cached.doubt}; `dmlgpu bench --ceilings` measures them again", file=sys.stderr)
    return cached.ceilings


def print_profile(profile: ProfileTables, ceilings: Ceilings | None) -> None:
    """Print kernels, nodes, operators and modules, the slowest first."""
    total = profile.total
    times = sum(row.times for row in profile.kernels)
    of_ceiling = "" if total.share is None else f", {100 * total.share.share:.0f} % of the device's ceilings"
    print(f"\n{times} kernels took {total.seconds * 1e3:.2f} ms, each timed by itself{of_ceiling}")
    if ceilings is not None:
        print(f"  {ceilings_text(ceilings)}")
    rows = [(*_cells(row), str(row.times), row.name, ", ".join(row.nodes[:4])) for row in profile.kernels[:_MAX_ROWS]]
    tables.table((*_HEADINGS, "times", "kernel", "nodes"), rows, right=(0, 1, 2, 4))
    for heading in ("node", "operator", "module"):
        named: Sequence[ProfileRow] = getattr(profile, f"{heading}s")
        if named:  # no kernels are known on numpy; no modules, which exporters write into names with slashes
            print()
            shown = [(*_cells(row), row.name) for row in named[:_MAX_ROWS]]
            tables.table((*_HEADINGS, heading), shown, right=(0, 1, 2))


_HEADINGS = ("ms", "%", "ceiling %", "of")


def _cells(row: ProfileRow) -> tuple[str, str, str, str]:
    return (f"{row.seconds * 1e3:.3f}", f"{100 * row.part:.1f}", *_share_cells(row.share))


def _share_cells(share: Share | None) -> tuple[str, str]:
    return ("", "") if share is None else (f"{100 * share.share:.0f}", share.bound_by)


def write_profile(profile: ProfileTables, ceilings: Ceilings | None, device: Device, path: Path) -> None:
    """Write a profile as JSON.

    Raises:
        OSError: If the file cannot be written.
    """
    record = {"adapter": str(device.adapter), "ceilings": ceilings and ceilings.to_json(), **profile.to_json()}
    with whole_file(path) as stream:
        stream.write(json.dumps(record, indent=2, ensure_ascii=False).encode())
    print(f"profile written to {path}")
