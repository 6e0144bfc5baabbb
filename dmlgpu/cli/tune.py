"""``dmlgpu tune``: find the fastest schedules and tile sizes for an adapter."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dmlgpu.bench import machine_load, specs, tuning
from dmlgpu.bench.ceilings import known_ceilings, measure_ceilings
from dmlgpu.bench.specs import combinations, parse_sizes
from dmlgpu.bench.tuning import TuningRecording, race_on
from dmlgpu.bench.workload import Workload
from dmlgpu.cli import tables
from dmlgpu.cli.devices import choose_adapter
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.cli.tables import BenchProgress
from dmlgpu.common.errors import DmlError, InvalidArgument, NotSupported
from dmlgpu.common.files import whole_file
from dmlgpu.compiler.cards import MEASURED
from dmlgpu.compiler.target import AdapterInfo, Profile, Target, Tuned
from dmlgpu.compiler.tuned_files import tuned_file, tuned_folder
from dmlgpu.runtime.adapters import target_of
from dmlgpu.runtime.device import Device

DEFAULT_SUITE = "tune"


def find_requested(what: Sequence[str], sizes: Sequence[str], types: Sequence[str]) -> list[Workload]:
    """Return the workloads to tune.

    Args:
        what: Operators, cases, models, suites; empty selects the default suite.
        sizes, types: Sizes and data types of operators.

    Raises:
        InvalidArgument: If a name, size or type is unknown.
    """
    ranges = tuple(combinations(parse_sizes(sizes))), specs.parse_types(tuple(types))
    return [
        workload.workload
        for workload in find_workloads([specs.BenchSpec(workload, *ranges) for workload in what or (DEFAULT_SUITE,)])
    ]


def tune(
    workloads: Sequence[Workload], adapter: str | None, budget: float, record: Path | None = None
) -> list[tuning.TuningFinding]:
    """Tune workloads on an adapter, store faster choices, and print each result.

    Args:
        workloads: Operators and graphs.
        adapter: Part of its name, or its index.
        budget: Seconds to compare the last two candidates of each choice.
        record: File for the times of all candidates.

    Raises:
        AdapterNotFound: If there is no such adapter.
        NotSupported: If the adapter compiles nothing, or is not on this machine.
        OSError: If a file cannot be written.
    """
    info = choose_adapter(adapter)
    target, kept_in = _target(info), tuned_file(info)
    before = machine_load.measure_load()
    device = Device(info, specialize="always")
    if target.profile is not Profile.CPU:  # the cost model of GPUs chooses by them
        ceilings = _ceilings(info, device, before)
        tuning.save_choices(info, [], ceilings=ceilings)
        target = target.with_overrides(tuned=Tuned.of(dict(target.overrides.tuned.answers), ceilings))
    findings: list[tuning.TuningFinding] = []
    records: list[dict[str, Any]] = []
    for workload, finding in _findings(workloads, device, target, budget):
        findings.append(finding)
        records.append(TuningRecording.of(workload, finding).to_json())
        tuning.save_choices(info, [finding])
        print(_line(finding), flush=True)
    after = machine_load.measure_load()
    print(tuning.summary(findings))
    for warning in machine_load.load_warnings(before, after, 0.0):
        print(f"dmlgpu: {warning}", file=sys.stderr)
    print(f"stored in {kept_in}")
    if record is not None:
        content = {"adapter": str(info), "profile": target.profile, "features": sorted(target.features)}
        with whole_file(record) as stream:
            stream.write((json.dumps(content | {"recordings": records}, indent=1) + "\n").encode())
    return findings


def _ceilings(info: AdapterInfo, device: Device, before: machine_load.MachineLoad) -> dict[str, float]:
    """Return the measured rates of an adapter."""
    measured = known_ceilings(info, partial(measure_ceilings, device), before).ceilings
    return {name: getattr(measured, name) for name in MEASURED}


def _target(info: AdapterInfo) -> Target:
    if info.backend.lower() == "browser":
        raise NotSupported(
            "the GPU of a browser's page cannot be tuned: its choices would be stored on another machine"
        )
    target = target_of(info)
    if target is None:
        raise NotSupported(f"{info} compiles nothing, so there is nothing to tune")
    return target


def _findings(
    workloads: Sequence[Workload], device: Device, target: Target, budget: float
) -> Iterator[tuple[Workload, tuning.TuningFinding]]:
    """Yield the result of each choice, once for all workloads that share it."""
    progress, race = BenchProgress(sys.stderr, len(workloads)), race_on(device, budget)
    known: dict[str, str] = {}
    for index, workload in enumerate(workloads):

        def tell(text: str, index: int = index, name: str = workload.name) -> None:
            progress.show(index, name, text)

        try:
            for finding in tuning.Search(workload, target, race, tell).findings(known):
                known[finding.question] = finding.answer
                progress.clear()
                yield workload, finding
        except DmlError as error:
            progress.clear()
            print(f"dmlgpu: {workload.name}: {error}", file=sys.stderr)
    progress.finish()


def _line(finding: tuning.TuningFinding) -> str:
    if finding.ratio is None:
        return f"{finding.question}: {finding.built_in}"
    ratio = f"{finding.ratio.median:.2f} [{finding.ratio.low:.2f}, {finding.ratio.high:.2f}]"
    if finding.gains:
        return f"{finding.question}: {finding.answer} takes {ratio} of {finding.built_in}"
    return f"{finding.question}: {finding.built_in}; the best other choice takes {ratio} of its time"


def print_kept() -> None:
    """Print the stored choices of all adapters."""
    files = tuning.list_choices()
    if not files:
        print(f"there are no tuned choices in {tuned_folder()}")
    for path, content, why in files:
        print(path)
        if content is None:
            print(f"  not used: {why}")
            continue
        adapter = content.adapter
        print(
            f"  {adapter.get('backend')}: {adapter.get('device')} ({adapter.get('driver')}), dmlgpu {content.version}"
        )
        rows = [
            (question, answer, f"{content.ratios[question]:.2f}" if question in content.ratios else "")
            for question, answer in content.answers.items()
        ]
        tables.table(("choice", "fastest", "time / built-in"), rows, right=(2,))


def clear(adapter: str | None) -> None:
    """Delete the choices stored for an adapter."""
    info = choose_adapter(adapter)
    print(f"{info}: {'choices deleted' if tuning.clear_choices(info) else 'there were no tuned choices'}")


def share(adapter: str | None, path: Path) -> None:
    """Export the choices of an adapter. Raises InvalidArgument if there are none."""
    info = choose_adapter(adapter)
    content = tuning.load_choices(info)
    if not content.answers:
        raise InvalidArgument(f"there are no tuned choices for {info}; run dmlgpu tune first")
    tuning.write_choices(path, content)
    print(f"{info}: choices written: {len(content.answers)}")


def take(adapter: str | None, path: Path) -> None:
    """Import choices for an adapter from a file, which must be for the same adapter."""
    info = choose_adapter(adapter)
    taken = tuning.import_choices(info, path)
    print(f"{info}: choices imported: {len(taken.answers)}")
