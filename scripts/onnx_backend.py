"""Run ONNX's backend test suite on dmlgpu: what passes, what fails, what is refused, and why.

    python scripts/onnx_backend.py --adapter numpy -k conv --failures
    python scripts/onnx_backend.py --kind node simple --workers 2 --output results.json

A model runs in a child process with a time limit, many models per process; one that crashes or hangs counts as failed,
and the rest go on in a new process. Models whose data are not on this machine count as absent: nothing is downloaded.
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
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.model import collect_testcases as collect_models
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests

import dmlgpu
from dmlgpu.errors import NotSupported
from dmlgpu.frontends.onnx.backend import DmlBackend

KINDS = ("node", "simple", "real", "pytorch-operator", "pytorch-converted", "light")
PATIENCE = 30.0


@dataclass(frozen=True)
class Result:
    """What became of one model: passed, failed, refused or absent, and why."""

    kind: str
    name: str
    state: str
    reason: str = ""


def cases(kinds: list[str], pattern: str) -> list[tuple[str, str]]:
    """Return kind and name of every model of the suite whose name has the pattern."""
    return [(kind, name) for kind in kinds for name in sorted(_models(kind)) if re.search(pattern, name)]


def _models(kind: str) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # the suite's own arithmetic overflows
    if kind == "node":
        return {one.name: one for one in collect_testcases("")}
    found = {one.name: one for one in load_model_tests(kind=kind)}
    if kind == "simple":
        found |= {one.name: one for one in collect_models()}
    return found


def work(adapter: str, pipe: Any) -> None:
    """Run models by name, as the parent asks, until it asks no more."""
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    device = dmlgpu.Device(adapter)
    models = {}
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        kind, name = asked
        if kind not in models:
            models[kind] = _models(kind)
        pipe.send(run(models[kind][name], kind, device))


def run(case: Any, kind: str, device: Any) -> Result:
    """Run one model on its data and compare."""
    data = list(_data(case))
    if not data:
        return Result(kind, case.name, "absent", "its data are not on this machine")
    try:
        model = _model(case)
        prepared = DmlBackend.prepare(model, dml_device=device)
        for inputs, expected in data:
            found = list(prepared.run(inputs))
            for given, wanted in zip(found, expected, strict=True):
                _compare(given, wanted, case.rtol, case.atol)
    except NotSupported as error:
        return Result(kind, case.name, "refused", str(error))
    except AssertionError as error:
        return Result(kind, case.name, "failed", " ".join(str(error).split())[:400])
    except Exception as error:
        return Result(kind, case.name, "failed", f"{type(error).__name__}: {error}"[:400])
    return Result(kind, case.name, "passed")


def _model(case: Any) -> Any:
    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def _data(case: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Return inputs and outputs of every set of a model's data."""
    if case.data_sets is not None:
        yield from ((_arrays(inputs), _arrays(outputs)) for inputs, outputs in case.data_sets)
        return
    folder = Path(case.model_dir) if case.model_dir else None
    if folder is None or not (folder / "model.onnx").exists():
        return
    for part in sorted(folder.glob("test_data_set_*")):
        sets = []
        for which in ("input", "output"):
            arrays = []
            for file in sorted(part.glob(f"{which}_*.pb"), key=lambda one: int(one.stem.split("_")[1])):
                tensor = onnx.TensorProto()
                tensor.ParseFromString(file.read_bytes())
                arrays.append(numpy_helper.to_array(tensor))
            sets.append(arrays)
        yield sets[0], sets[1]


def _arrays(given: Iterable[Any]) -> list[Any]:
    return [numpy_helper.to_array(one) if isinstance(one, onnx.TensorProto) else one for one in given]


def _compare(given: Any, wanted: Any, rtol: float, atol: float) -> None:
    wanted = np.asarray(wanted)
    if wanted.dtype.name in ("int4", "uint4"):
        wanted = wanted.astype(np.int8 if wanted.dtype.name == "int4" else np.uint8)
    assert given.dtype == wanted.dtype, f"type {given.dtype}, expected {wanted.dtype}"
    assert given.shape == wanted.shape, f"shape {given.shape}, expected {wanted.shape}"
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(given, wanted)
    else:
        np.testing.assert_allclose(given, wanted, rtol=rtol, atol=atol)


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


def run_all(asked: list[tuple[str, str]], adapter: str, workers: int) -> list[Result]:
    """Run models in several processes, and return results in order."""
    shares = [asked[number::workers] for number in range(workers)]

    def share(given: list[tuple[str, str]]) -> list[Result]:
        worker = Worker(adapter)
        try:
            return [worker(one) for one in given]
        finally:
            worker.end()

    with ThreadPoolExecutor(workers) as pool:
        found = [one for part in pool.map(share, shares) for one in part]
    return sorted(found, key=lambda one: (KINDS.index(one.kind), one.name))


def summary(results: list[Result]) -> str:
    """Return counts by kind, and what is refused by reason."""
    lines = []
    for kind in KINDS:
        counts = collections.Counter(one.state for one in results if one.kind == kind)
        if counts:
            listed = ", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "refused", "absent"))
            lines.append(f"{kind}: {sum(counts.values())} models: {listed}")
    reasons = collections.Counter(_general(one.reason) for one in results if one.state == "refused")
    lines += ["", "refused:"] + [f"  {count:4} {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _general(reason: str) -> str:
    """Return a reason without the names and numbers of one model."""
    reason = re.sub(r"'[^']*'", "...", reason)
    return re.sub(r"\[[^\]]*\]|\d+", "#", reason)[:160]


def main() -> int:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--adapter", default="numpy")
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=["node", "simple", "light"])
    parser.add_argument("-k", dest="pattern", default="", help="a regular expression that names must have")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--failures", action="store_true", help="print what failed or was refused, with reasons")
    parser.add_argument("--output", type=Path, help="write all results as JSON")
    given = parser.parse_args()
    results = run_all(cases(given.kind, given.pattern), given.adapter, given.workers)
    if given.failures:
        for one in results:
            if one.state in ("failed", "refused"):
                print(f"{one.state} {one.name}: {one.reason}")
    print(summary(results))
    if given.output:
        given.output.write_text(json.dumps([one.__dict__ for one in results], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
