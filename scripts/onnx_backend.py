"""Run ONNX's backend test suite on dmlgpu, and list the models that fail or are not supported, with reasons.

    python scripts/onnx_backend.py --adapter numpy -k conv --failures
    python scripts/onnx_backend.py --kind node simple --workers 2 --output results.json
    python scripts/onnx_backend.py --write docs/onnx-backend.md     # write the page

Models run in child processes with a time limit, many models per process. A model that crashes or hangs counts as
failed, and the others continue in a new process. Models without data on this machine count as absent; nothing is
downloaded.
``dmlgpu test --suite onnx`` runs the same models as test cases.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import re
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

import dmlgpu
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.files import whole_file
from dmlgpu.conformance.running.outcome import Status
from dmlgpu.conformance.suites.onnx_backend import KINDS, OnnxBackendSuite, data_of, find, model_of, models, outside

PATIENCE = 30.0
STATES = ("passed", "failed", "refused", "absent")


@dataclass(frozen=True)
class Result:
    """The state of one model and the reason; ``outside`` names data types that DirectML does not have."""

    kind: str
    name: str
    state: str
    reason: str = ""
    outside: str = ""


def cases(kinds: list[str], pattern: str) -> list[tuple[str, str]]:
    """Return kind and name of every model of the suite whose name has the pattern."""
    return [(kind, name) for kind in kinds for name in sorted(models(kind)) if re.search(pattern, name)]


def work(adapter: str, pipe: Any) -> None:
    """Run models by name, as the parent asks, until it asks no more."""
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    device = dmlgpu.Device(adapter)
    while True:
        try:
            kind, name = pipe.recv()
        except EOFError:
            return
        pipe.send(run(kind, name, device))


def run(kind: str, name: str, device: Any) -> Result:
    """Run one model on its data and compare."""
    case = find(f"{kind}-{name}")
    if not list(data_of(case)):
        return Result(kind, name, "absent", "its data are not on this machine")
    result = Result(kind, name, "passed", outside=outside(model_of(case)))
    try:
        outcome = OnnxBackendSuite().run(f"{kind}-{name}", device)
    except NotSupported as error:
        return replace(result, state="refused", reason=str(error))
    except Exception as error:
        return replace(result, state="failed", reason=f"{type(error).__name__}: {error}"[:400])
    return result if outcome.status is Status.PASS else replace(result, state="failed", reason=outcome.message)


class Worker:
    """A child process that runs models, started again when one kills it."""

    def __init__(self, adapter: str):
        self._adapter = adapter
        self._process: Any = None

    def __call__(self, case: tuple[str, str]) -> Result:
        """Run one model."""
        if self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=work, args=(self._adapter, other), daemon=True)
            self._process.start()
            other.close()
        kind, name = case
        try:
            self._pipe.send(case)
            limit = time.monotonic() + PATIENCE * (1 if kind == "node" else 4)
            if self._pipe.poll(limit - time.monotonic() + PATIENCE):
                return self._pipe.recv()
            reason = "it takes too long"
        except (EOFError, OSError):
            reason = "the process ended"
        self.end()
        return Result(kind, name, "failed", reason)

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                self._pipe.close()
            self._process.kill()
            self._process.join()
            self._process = None


def run_all(listed: list[tuple[str, str]], adapter: str, workers: int) -> list[Result]:
    """Run models in several processes, and return results in order."""
    shares = [listed[index::workers] for index in range(workers)]

    def share(assigned: list[tuple[str, str]]) -> list[Result]:
        worker = Worker(adapter)
        try:
            return [worker(named) for named in assigned]
        finally:
            worker.end()

    with ThreadPoolExecutor(workers) as pool:
        results = [result for part in pool.map(share, shares) for result in part]
    return sorted(results, key=lambda result: (KINDS.index(result.kind), result.name))


def summary(results: list[Result]) -> str:
    """Return counts by kind, and what is refused by reason."""
    lines = []
    for kind in KINDS:
        of = [result for result in results if result.kind == kind]
        counts = collections.Counter(result.state for result in of)
        if counts:
            within = [result for result in of if not result.outside and result.state != "absent"]
            listed = ", ".join(f"{counts[state]} {state}" for state in STATES)
            passed = sum(result.state == "passed" for result in within)
            lines.append(f"{kind}: {len(of)} models: {listed}; of DirectML's types {passed} of {len(within)} passed")
    reasons = collections.Counter(_general(result.reason) for result in results if result.state == "refused")
    lines += ["", "refused:"] + [f"  {count:4} {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _general(reason: str) -> str:
    """Return a reason without the names and numbers of one model."""
    if reason.strip().startswith("Not equal to tolerance"):
        return "outputs differ from the expected values"
    reason = re.sub(r"^model '[^']*': | \(\d+, first '[^']*'\)| \(\S+\.py:\d+\)", "", reason)
    reason = re.sub(r"'[^']*'", "...", reason)
    return re.sub(r"\[[^\]]*\]|(?<![\w.])-?\d+(\.\d+)?(e-?\d+)?\b", "#", reason)[:160]


def page(results: list[Result], adapter: str) -> str:
    """Return the page with counts and the models that do not pass."""
    lines = [
        "# ONNX backend tests",
        "",
        f"Results of the backend test suite of onnx {onnx.__version__} on the adapter `{adapter}`, and the models that"
        " do not pass. The last column counts models that need only what DirectML has: no strings, float8,"
        " integers of 2 bits or arithmetic on float64.",
        "",
        "    python scripts/onnx_backend.py --write docs/onnx-backend.md",
        "",
        "| models | passed | failed | not supported | data missing | with DirectML's data types |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for kind in KINDS:
        of = [result for result in results if result.kind == kind]
        if of:
            counts = collections.Counter(result.state for result in of)
            within = [result for result in of if not result.outside and result.state != "absent"]
            passed = sum(result.state == "passed" for result in within)
            share = f"{passed} of {len(within)} ({100 * passed / max(len(within), 1):.1f}%)"
            lines.append(f"| {kind} | {' | '.join(str(counts[state]) for state in STATES)} | {share} |")
    left = [result for result in results if result.state in ("failed", "refused")]
    lines += ["", "## Not passed, with DirectML's data types", ""]
    lines += _listed([result for result in left if not result.outside], lambda result: _general(result.reason))
    lines += ["", "## Not passed, with other data types, values or domains", ""]
    lines += _listed([result for result in left if result.outside], lambda result: result.outside)
    return "\n".join(lines) + "\n"


def _listed(results: Sequence[Result], key: Any) -> list[str]:
    """Return lines with the names of models by what they have in common."""
    groups: dict[str, list[str]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result.name.removeprefix("test_"))
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    return [f"- **{_plain(reason)}** ({len(names)}): {', '.join(sorted(names))}" for reason, names in ordered]


def _plain(text: str) -> str:
    return re.sub(r"([*_<>|])", r"\\\1", text)


def main() -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--adapter", default="numpy")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=["node", "simple", "light"])
    parser.add_argument("-k", dest="pattern", default="", help="only models whose names match this regular expression")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--failures", action="store_true", help="print what failed or is not supported, with reasons")
    parser.add_argument("--output", type=Path, help="write all results as JSON")
    parser.add_argument("--write", type=Path, help="write the page with the results")
    options = parser.parse_args()
    results = run_all(cases(options.kind, options.pattern), options.adapter, options.workers)
    if options.failures:
        for result in results:
            if result.state in ("failed", "refused"):
                print(f"{result.state} {result.name}: {result.reason}")
    print(summary(results))
    if options.output:
        options.output.write_text(json.dumps([result.__dict__ for result in results], indent=1))
    if options.write:
        with whole_file(options.write) as stream:
            stream.write(page(results, options.adapter).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
