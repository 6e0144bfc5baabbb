"""``dmlgpu demo palette``: reduce a photograph to a palette."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer

from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.tables import status
from dmlgpu.common.files import whole_file
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.demo.palette import Observation, Workbench, compose, load_photo, reduce_to_palette
from dmlgpu.runtime.device import Device


def demo(
    photo: Path | None, target: Path, adapter: str | None, *, size: int, colors: int, iterations: int, seed: int
) -> None:
    """Write the image; print, per operator, adapter, time and error against the reference.

    Raises:
        OSError: If the photograph cannot be read, or the output not written.
        AdapterNotFound: If no adapter matches.
        typer.Exit: With code 1 if a dispatch differs from the reference.
    """
    start = time.perf_counter()
    image = load_photo(photo, size)
    device = Device(choose_adapter(adapter))
    bench = Workbench(device)
    with status() as show:
        reduction = reduce_to_palette(bench, image, colors=colors, iterations=iterations, seed=seed, progress=show)
    wrong = [seen for seen in bench.observations if not seen.verdict.ok]
    with whole_file(target) as stream:
        compose(reduction, _subtitle(device.adapter, bench, wrong)).save(stream, "PNG", optimize=True)
    _report(device.adapter, bench, wrong)
    print(f"{target}: {time.perf_counter() - start:.1f} s in all, checks included")
    if wrong:
        raise typer.Exit(1)


def _subtitle(adapter: AdapterInfo, bench: Workbench, wrong: list[Observation]) -> str:
    checked = "all checked against NumPy" if not wrong else f"{len(wrong)} of them wrong"
    count = len(bench.observations)
    name = adapter.name.partition(" (")[0]
    return f"{count} dispatches of DirectML operators on {name} ({adapter.backend}), {checked}"


def _report(adapter: AdapterInfo, bench: Workbench, wrong: list[Observation]) -> None:
    rows = []
    for operator in dict.fromkeys(seen.operator for seen in bench.observations):
        seen = [each for each in bench.observations if each.operator == operator]
        ran = dict.fromkeys(kernel for each in seen for kernel in each.kernels)
        source = ", ".join(ran) or "NumPy reference"
        rows.append(_row(operator, seen, source))
    columns = ("operator", "dispatches", "elements", "ms", "largest error", "check", "ran as")
    print(f"adapter: {adapter}")
    tables.table(columns, rows, right=(1, 2, 3))
    seconds = sum(seen.seconds for seen in bench.observations)
    print(
        f"{len(bench.observations)} dispatches in {seconds * 1e3:.1f} ms (wall clock, each from submission to fence); "
        f"compiling took {bench.compile_seconds * 1e3:.0f} ms"
    )
    if adapter.backend == "NumPy":
        print("note: the numpy adapter is the reference itself, so its checks cannot fail")
    for failure in wrong[:5]:
        print(f"WRONG: {failure.operator}: {failure.verdict}", file=sys.stderr)


def _row(operator: str, seen: list[Observation], source: str) -> tuple[str, ...]:
    failures = sum(not each.verdict.ok for each in seen)
    difference = max(each.difference for each in seen)
    error = "none" if difference == 0 else f"{difference:.2g} ({max(each.verdict.max_ulp for each in seen):g} ULP)"
    return (
        operator,
        str(len(seen)),
        f"{sum(each.elements for each in seen):,}",
        f"{sum(each.seconds for each in seen) * 1e3:.1f}",
        error,
        "ok" if not failures else f"{failures} WRONG",
        source,
    )
