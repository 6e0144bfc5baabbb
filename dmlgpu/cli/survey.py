"""``dmlgpu survey``: test and measure every adapter in a few minutes, and write one file about them."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, TypeVar

from dmlgpu.bench import machine_load
from dmlgpu.bench import records as bench_records
from dmlgpu.bench.ceilings import Ceilings, known_ceilings
from dmlgpu.bench.predicting import Prediction, predict, prediction_facts
from dmlgpu.bench.records import Measurement, measurement_of
from dmlgpu.bench.samples import Patience, measure
from dmlgpu.bench.specs import BenchSpec
from dmlgpu.bench.worker import Remote, ceilings_of, child_of
from dmlgpu.bench.workload import Workload
from dmlgpu.cli import tables
from dmlgpu.cli.devices import ALL, as_json_of, choose_adapters, with_pages
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.cli.survey_file import NAME, write_survey
from dmlgpu.cli.test import ConformanceRequest
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.common.files import PARTIAL_SUFFIX, file_stem, growing_file
from dmlgpu.compiler.cards import card_of
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.running.exercised import RunNotes
from dmlgpu.conformance.running.expectations import with_expectation
from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.pool import WorkerProcess, map_unordered, run_repeatedly
from dmlgpu.conformance.running.records import facts, machine, read_file, write_run
from dmlgpu.conformance.suites.registry import DEFAULT, suite_by_name
from dmlgpu.runtime.adapters import check_variables
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

COMMAND = ("dmlgpu", "survey")
PATIENCE = Patience(precision=0.05, budget=1.0)
PART_FOLDER = "parts"
"""Folder of the records of each part, from which a survey continues."""

TIME_IS_UP = "the time was up"
INTERRUPTED = "interrupted"


class TimeUpError(Exception):
    """The deadline of a part has passed."""


@dataclass
class PartResult:
    """Progress and failures of a part on an adapter.

    Attributes:
        part: Name of the part.
        adapter: Label of the adapter.
        done, total: Number of cases or workloads.
        failures: Number of failures and wrong results.
        why: Why something was not run; empty if everything was.
        seconds: Time that it took in this run.
    """

    part: str
    adapter: str
    done: int = 0
    total: int = 1
    failures: int = 0
    why: str = ""
    seconds: float = 0.0


@dataclass
class Survey:
    """Records of a survey.

    Attributes:
        folder: Folder of the records of parts.
        ceilings: Measured ceilings by adapter.
        files: Files of records, by part, then by adapter.
        predictions: Records of predictions by adapter.
    """

    folder: Path
    ceilings: dict[str, Ceilings] = field(default_factory=dict)
    files: dict[str, dict[str, Path]] = field(default_factory=dict)
    predictions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def file(self, part: str, adapter: LocatedAdapter) -> Path:
        """Return the file of a part's records."""
        digest = zlib.crc32(str(adapter.info).encode())
        path = self.folder / f"{file_stem(f'{part} {adapter.label}')}-{digest:08x}.jsonl"
        self.files.setdefault(part, {})[adapter.label] = path
        return path

    def records(self, parts: Iterable[str]) -> list[list[dict[str, Any]]]:
        """Return the records of parts, a list per adapter with records."""
        paths = [path for part in parts for path in self.files.get(part, {}).values()]
        return [records for records in map(_records, paths) if len(records) > 1]  # a header, and something


def _partial(path: Path) -> Path:
    return path if path.exists() else path.with_name(path.name + PARTIAL_SUFFIX)


def _records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, without an incomplete last line."""
    try:
        lines = _partial(path).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


Run = Callable[[Survey, LocatedAdapter, float, PartResult], None]
"""Runs a part on an adapter until a deadline, fills in the result, and raises TimeUpError after the deadline."""


@dataclass(frozen=True)
class SurveyPart:
    """A part of a survey.

    Attributes:
        name: Name.
        share: Share of the time, relative to the parts that follow.
        run: Runs it on an adapter.
    """

    name: str
    share: float
    run: Run


def survey(
    output: Path,
    adapters: Sequence[str],
    drivers: Sequence[str],
    budget: float,
    *,
    only: Sequence[str] = (),
    pages: int = 0,
) -> None:
    """Test and measure adapters, print what was done, and write the file of the survey.

    Args:
        output: Folder of the survey.
        adapters, drivers: As for ``dmlgpu test``; neither selects every driver of the machine, without ``numpy``.
        budget: Seconds.
        only: Names of parts; empty runs all.
        pages: Number of browser pages to wait for and survey.

    Raises:
        AdapterNotFound, InvalidArgument: If an adapter, driver or part does not exist.
        OSError: If a file cannot be written.
        KeyboardInterrupt: If it was interrupted; the file has what was done.
    """
    end = time.monotonic() + budget
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if unknown := [name for name in only if name not in PARTS]:
        raise InvalidArgument(f"--part must be one of {', '.join(PARTS)}, got {unknown[0]!r}")
    check_variables()
    chosen = choose_adapters(adapters, drivers or (() if adapters else (ALL,)))
    if pages:
        chosen = with_pages(chosen, pages, bool(adapters))
    if not adapters and len(chosen) > 1:
        chosen = tuple(adapter for adapter in chosen if adapter.info != NUMPY_ADAPTER)
    chosen = tuple(sorted(chosen, key=lambda adapter: adapter.info.is_software))
    (output / PART_FOLDER).mkdir(parents=True, exist_ok=True)
    state, results, interrupted = Survey(output / PART_FOLDER), [], False
    with tempfile.TemporaryDirectory(prefix="dmlgpu-") as folder:
        parts = [part for part in survey_parts(Path(folder)) if not only or part.name in only]
        for position, part in enumerate(parts):
            now = time.monotonic()
            share = part.share / sum(other.share for other in parts[position:])
            part_end = end if position == len(parts) - 1 else now + max(0.0, end - now) * share
            for index, adapter in enumerate(chosen):
                now = time.monotonic()
                deadline = now + max(0.0, part_end - now) / (len(chosen) - index)
                result = PartResult(part.name, adapter.label)
                results.append(result)
                interrupted = _run(part, state, adapter, deadline, result, interrupted=interrupted)
                print(_line(result), flush=True)
    header = {
        **machine(),
        "started": started,
        "budget": budget,
        "adapters": [{"label": adapter.label, **as_json_of(adapter.index, adapter.info)} for adapter in chosen],
        "ceilings": {label: ceilings.to_json() for label, ceilings in state.ceilings.items()},
        "parts": [asdict(result) for result in results],
    }
    records = {
        "conformance": state.records(part for part, _, _ in SUITES),
        "benchmark": state.records((BENCHMARK, LANGUAGE_MODEL)),
        "predictions": state.predictions,
    }
    write_survey(output / NAME, header, records)
    _print_summary(output, results)
    if interrupted:
        raise KeyboardInterrupt


def _run(
    part: SurveyPart, state: Survey, adapter: LocatedAdapter, deadline: float, result: PartResult, *, interrupted: bool
) -> bool:
    """Run a part on an adapter; return whether the survey was interrupted."""
    start = time.monotonic()
    try:
        part.run(state, adapter, start if interrupted else deadline, result)
    except TimeUpError:
        result.why = INTERRUPTED if interrupted else TIME_IS_UP
    except KeyboardInterrupt:
        result.why, interrupted = INTERRUPTED, True
    except DmlError as error:
        result.why = str(error)
    result.seconds = round(time.monotonic() - start, 1)
    return interrupted


def _line(result: PartResult) -> str:
    failures = f", {result.failures:,} failed" if result.failures else ""
    why = f": {result.why}" if result.why else ""
    done = f"{result.done:,} of {result.total:,}{failures} in {result.seconds:.0f} s{why}"
    return f"{result.part} on {result.adapter}: {done}"


def _print_summary(output: Path, results: Sequence[PartResult]) -> None:
    rows = [(result.part, result.adapter, f"{result.done:,}", f"{result.total:,}", result.why) for result in results]
    if missing := [row for row in rows if row[-1]]:
        print("\nNot run, or not completely:")
        tables.table(("part", "adapter", "done", "of", "why"), missing, right=(2, 3))
    if any(result.why in (TIME_IS_UP, INTERRUPTED) for result in results):
        print("The same command continues.")
    print(f"\n{output / NAME}")


def _check_time(deadline: float) -> None:
    """Raise TimeUpError after the deadline."""
    if time.monotonic() >= deadline:
        raise TimeUpError


@contextlib.contextmanager
def _stopping(deadline: float, stops: Iterable[Callable[[], None]]) -> Iterator[None]:
    """Call functions from another thread if the block is still running at the deadline."""

    def stop() -> None:
        for call in stops:
            call()

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


Result = TypeVar("Result", Outcome, Measurement)


def _continue(
    path: Path,
    header: Mapping[str, Any],
    earlier: Sequence[Result],
    fresh: Iterator[Result],
    write: Callable[[TextIO, Any, Iterable[Result]], Iterator[Result]],
) -> Iterator[Result]:
    """Write and yield earlier and fresh results; the file keeps its partial suffix if the iteration does not end."""
    with growing_file(path) as file:
        yield from write(file, dict(header), itertools.chain(earlier, fresh))


# ---- test suites


SUITES = (("driver", "driver", 15), ("conformance", DEFAULT, 45))
"""Parts that run a test suite, without the cases of earlier parts: name of the part, suite, share of the time."""


_SAME = ("dmlgpu", "commit", "shaders", "adapter", "adapters", "suite", "profile", "case_list")
"""Facts that must be the same to continue a run."""


def _is_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    text = json.loads(json.dumps(now))
    return all(before.get(name) == text.get(name) for name in _SAME)


def _run_suite(
    suites: Sequence[str], state: Survey, adapter: LocatedAdapter, deadline: float, result: PartResult
) -> None:
    """Run the quick cases of the last of some suites, without those of the others."""
    *earlier_suites, suite = suites
    request, others = ConformanceRequest(suite=suite), [suite_by_name(name) for name in earlier_suites]
    names = tuple(name for name in request.names if not any(other.has(name) for other in others))
    result.total = len(names)
    path, job = state.file(result.part, adapter), request.job(adapter)
    selection = {**request.selection, "names": names}
    header = facts(adapter.info, environment=tuple(job.environment.items()), index=adapter.index, **selection)
    earlier = _earlier_outcomes(path, header)
    remaining = [name for name in names if name not in earlier]
    # The kernels of an earlier run of the command are unknown.
    notes = None if earlier else RunNotes()

    def fresh() -> Iterator[Outcome]:
        if not remaining:
            return
        _check_time(deadline)
        workers = [WorkerProcess(job, notes=notes) for _ in range(min(request.workers_on(adapter), len(remaining)))]
        with _stopping(deadline, [worker.interrupt for worker in workers]):
            for outcome in map_unordered(workers, remaining, run_repeatedly):
                _check_time(deadline)
                yield with_expectation(outcome, adapter.info, request.expected)

    progress = tables.Progress(sys.stderr, len(names), f"{result.part} on {adapter.label}")
    known = tuple(earlier.values())
    is_recorded = not remaining and path.exists()
    for outcome in known if is_recorded else _continue(path, header, known, fresh(), partial(write_run, notes=notes)):
        result.done += 1
        result.failures += not outcome.status.is_good
        if outcome.case not in earlier:
            progress.show(result.done, result.failures)


def _earlier_outcomes(path: Path, header: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return the results of an earlier run of the same cases, by case."""
    with contextlib.suppress(DmlError, FileNotFoundError):
        for run in read_file(_partial(path)).runs:
            if _is_same(run.facts, header):
                return {outcome.case: outcome for outcome in run.outcomes}
    return {}


# ---- measurements

CEILINGS, BENCHMARK, LANGUAGE_MODEL, PREDICTIONS = "ceilings", "benchmark", "language model", "predictions"
PARTS = (*(part for part, _, _ in SUITES), CEILINGS, BENCHMARK, LANGUAGE_MODEL, PREDICTIONS)
"""Names of all parts."""

SUITE = "families"
"""Suite of the benchmark."""


def _run_ceilings(state: Survey, adapter: LocatedAdapter, deadline: float, result: PartResult) -> None:
    """Measure the ceilings of an adapter, or take the cached ones."""
    child = child_of(adapter, max(1.0, deadline - time.monotonic()))

    def measure_now() -> Ceilings:
        _check_time(deadline)
        return ceilings_of(child)

    try:
        with _stopping(deadline, [child.interrupt]):
            load = machine_load.measure_load()
            state.ceilings[adapter.label] = known_ceilings(adapter.info, measure_now, load).ceilings
    except DmlError:
        _check_time(deadline)
        raise
    finally:
        child.close()
    result.done = 1


def _run_benchmark(
    workloads: Sequence[Workload], state: Survey, adapter: LocatedAdapter, deadline: float, result: PartResult
) -> None:
    """Measure workloads."""
    result.total = len(workloads)
    path, ceilings = state.file(result.part, adapter), state.ceilings.get(adapter.label)
    known = {} if ceilings is None else {adapter.label: ceilings}
    header = bench_records.facts([adapter], known, COMMAND, asdict(PATIENCE))
    earlier = _earlier_measurements(path, header)
    remaining = [workload for workload in workloads if workload.name not in earlier]
    again = [measurement.with_ceilings(ceilings) for measurement in earlier.values()]
    fresh = _measurements(remaining, adapter, ceilings, deadline)
    for measurement in _continue(path, header, again, fresh, bench_records.write_run):
        result.done += 1
        result.failures += not measurement.is_good


def _measurements(
    workloads: Sequence[Workload], adapter: LocatedAdapter, ceilings: Ceilings | None, deadline: float
) -> Iterator[Measurement]:
    if not workloads:
        return
    child = child_of(adapter, 300.0)
    progress = tables.BenchProgress(sys.stderr, len(workloads))
    try:
        with _stopping(deadline, [child.interrupt]):
            for index, workload in enumerate(workloads):
                _check_time(deadline)
                progress.show(index, workload.name, f"on {adapter.label}")
                before = machine_load.measure_load()
                (measured,) = measure([Remote(child, adapter.label, workload)], PATIENCE)
                if measured.status == "failed":
                    _check_time(deadline)
                measurement = measurement_of(workload, measured).with_ceilings(ceilings)
                yield measurement.with_load(before, machine_load.measure_load())
    finally:
        progress.finish()
        child.close()


def _earlier_measurements(path: Path, header: Mapping[str, Any]) -> dict[str, Measurement]:
    """Return the measurements of an earlier run on the same adapter, by workload."""
    with contextlib.suppress(DmlError, FileNotFoundError):
        for run in bench_records.read_file(_partial(path)):
            if _is_same(_without_ceilings(run.facts), _without_ceilings(header)):
                return {measurement.name: measurement for measurement in run.measurements}
    return {}


def _without_ceilings(header: Mapping[str, Any]) -> dict[str, Any]:
    adapters = {
        label: {name: value for name, value in record.items() if name != "ceilings"}
        for label, record in header["adapters"].items()
    }
    return {**header, "adapters": adapters}


def _run_language_model(
    folder: Path, state: Survey, adapter: LocatedAdapter, deadline: float, result: PartResult
) -> None:
    """Measure a token of a small language model with random 4-bit weights."""
    missing = [package for package in ("onnx", "tokenizers") if find_spec(package) is None]
    if missing:
        result.why = f"{' and '.join(missing)} not installed: pip install 'dmlgpu[llm]'"
        return
    from dmlgpu.demo.language_model import DecoderSizes, write  # noqa: PLC0415 - extras

    sizes = DecoderSizes()
    if not folder.exists():
        write(folder, sizes)
    name = f"token of a decoder, {sizes.layers} layers of {sizes.hidden}"
    workload = Workload(name, "MODEL", model=str(folder))
    _run_benchmark([workload], state, adapter, deadline, result)


# ---- predictions


def _run_predictions(
    workloads: Sequence[Workload], state: Survey, adapter: LocatedAdapter, deadline: float, result: PartResult
) -> None:
    """Predict the times of the benchmark on the adapter, if its card is described."""
    result.total = len(workloads)
    profile = Profile.INTEGRATED if adapter.info.kind == "integrated" else Profile.DISCRETE
    card = card_of(Target(adapter.info.name, profile))
    if card.is_generic:
        result.why = "no card of this name is described (dmlgpu bench --predict list)"
        return
    predictions: list[Prediction] = []
    try:
        for workload in workloads:
            _check_time(deadline)
            predictions += predict([workload], card)
            result.done += 1
    finally:
        header = {"record": "predicted", **prediction_facts(card, COMMAND)}
        state.predictions[adapter.label] = [header, *(prediction.to_json() for prediction in predictions)]


def survey_parts(folder: Path) -> list[SurveyPart]:
    """Return the parts of a survey in order.

    Args:
        folder: Folder of temporary files.
    """
    workloads = [subject.workload for subject in find_workloads([BenchSpec(SUITE)])]
    return [
        *(
            SurveyPart(name, share, partial(_run_suite, [suite for _, suite, _ in SUITES[: index + 1]]))
            for index, (name, _, share) in enumerate(SUITES)
        ),
        SurveyPart(CEILINGS, 10, _run_ceilings),
        SurveyPart(BENCHMARK, 20, partial(_run_benchmark, workloads)),
        SurveyPart(LANGUAGE_MODEL, 7, partial(_run_language_model, folder / "model")),
        SurveyPart(PREDICTIONS, 3, partial(_run_predictions, workloads)),
    ]
