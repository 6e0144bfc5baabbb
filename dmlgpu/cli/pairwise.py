"""``dmlgpu test --pairwise``: which adapter differs from the others?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dmlgpu.cli import tables
from dmlgpu.cli.adapters import ALL, choose_adapters
from dmlgpu.cli.progress import Progress
from dmlgpu.cli.request import Request
from dmlgpu.conformance.drivers.discovery import LocatedAdapter
from dmlgpu.conformance.drivers.outputs import as_output_suite
from dmlgpu.conformance.drivers.pairwise import Agreement, Comparison, Pair, expected_to_disagree, outlier
from dmlgpu.conformance.drivers.pairwise_run import run_pairwise
from dmlgpu.conformance.report.pairs import PairReport, difference, kernels_of
from dmlgpu.conformance.running.expectations import Expectation
from dmlgpu.conformance.running.records import comparison_facts, write_comparison
from dmlgpu.conformance.running.wording import bound_text
from dmlgpu.errors import InvalidArgument
from dmlgpu.target import AdapterInfo


def compare_adapters(request: Request) -> bool:
    """Run cases on several adapters, all there are where none is named, compare these, print who differs and tables.

    Returns:
        Whether no two adapters disagree, and each had a result.

    Raises:
        AdapterNotFound, InvalidArgument: for what does not exist, and for fewer than two adapters.
        ModelError, OSError: when a file is malformed, or cannot be read or written.
    """
    names, expected = request.names, request.expected
    suite = as_output_suite(request.cases, request.suite)
    adapters = choose_adapters(request.adapters or [ALL], request.drivers)
    if len(adapters) < 2:
        raise InvalidArgument(f"--pairwise compares two adapters at least, got only {adapters[0].info}")
    jobs = {adapter.label: request.job(adapter) for adapter in adapters}
    header = comparison_facts(adapters, request.pairwise_command, **request.selection)
    with request.opened() as file:
        cases = _with_expected(run_pairwise(jobs, suite, names, request.workers), adapters, expected)
        if file is not None:
            cases = write_comparison(file, header, cases)
        pairs = tuple(pair for found in _reported(cases, request) for pair in found)
    _summarize(PairReport(Comparison(header, pairs)), adapters)
    return all(pair.agreement.is_good for pair in pairs)


def _with_expected(
    cases: Iterable[tuple[Pair, ...]], adapters: Sequence[LocatedAdapter], expected: Sequence[Expectation]
) -> Iterator[tuple[Pair, ...]]:
    """The pairs, in the light of what is expected of either adapter."""
    infos = {adapter.label: adapter.info for adapter in adapters}
    for pairs in cases:
        yield tuple(_with_expectations(pair, infos, expected) for pair in pairs)


def _with_expectations(pair: Pair, infos: Mapping[str, AdapterInfo], expected: Sequence[Expectation]) -> Pair:
    for entry in expected:
        if any(entry.applies(pair.case, infos[label]) for label in pair.adapters):
            return expected_to_disagree(pair, entry.reason)
    return pair


# ---- what people see ------------------------------------------------------------------------------------------------


def _reported(cases: Iterable[tuple[Pair, ...]], request: Request) -> Iterator[tuple[Pair, ...]]:
    """Print what is wrong as it comes, and how far the run is."""
    bad, progress = 0, Progress(sys.stderr, len(request.names))
    for done, pairs in enumerate(cases, start=1):
        if not all(pair.agreement.is_good for pair in pairs):
            bad += 1
            print("\n".join(_lines(pairs, request)), flush=True)
        progress.show(done, bad)
        yield pairs


def _lines(pairs: Sequence[Pair], request: Request) -> Iterator[str]:
    """Who differs from whom on a case, by how much, and how to see it again."""
    wrong = [pair for pair in pairs if not pair.agreement.is_good]
    apart = [pair for pair in wrong if pair.agreement is Agreement.DISAGREE]
    yield f"{(apart or wrong)[0].agreement}: {wrong[0].case}"
    alone = outlier(pairs)
    if alone:
        yield f"  {alone} differs from the others, which agree"
    yield from (f"  {' / '.join(pair.adapters)}: {difference(pair)}" for pair in apart)
    yield from (f"  {text}" for text in kernels_of(apart))
    yield from dict.fromkeys(f"  {pair.message}" for pair in wrong if pair not in apart)
    yield f"  again: {shlex.join([*request.pairwise_command, '-k', wrong[0].case])}"


def _summarize(report: PairReport, adapters: Sequence[LocatedAdapter]) -> None:
    """Two tables: per adapter, on how many cases it alone differs; per pair, what came of it."""
    rows = [(adapter.label, str(report.alone[adapter.label]), str(adapter.info)) for adapter in adapters]
    tables.table(("adapter", "alone", "is"), rows, right=(1,))
    print()
    tables.table(
        ("pair", "same bits", *report.agreements, "worst"),
        [
            (
                " / ".join(row.adapters),
                str(row.same_bits),
                *(str(row.counts[one]) for one in report.agreements),
                bound_text(row.of_bound) or "-",
            )
            for row in report.rows
        ],
        right=range(1, len(report.agreements) + 3),
    )
