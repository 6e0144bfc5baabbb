"""A model in ONNX made ready on a device. Its times are the host's, since it may look at results in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.bench.checking import Check, compare_all, verdict_of
from dmlgpu.bench.counting import Counts, count
from dmlgpu.bench.prepared import Init, Readiness, Sample
from dmlgpu.bench.workload import Array, Contents, Workload, fill
from dmlgpu.device.device import Device
from dmlgpu.eager.tensor import Tensor
from dmlgpu.errors import NotSupported
from dmlgpu.host.adapter import NUMPY_ADAPTER
from dmlgpu.tensor import TensorDesc

SETS = 2


class PreparedModel:
    """A model and inputs for it, on the device. Raises as ``frontends.onnx.load`` and ``Session.run``."""

    def __init__(
        self,
        device: Device,
        workload: Workload,
        *,
        clock: Callable[[], float] = time.perf_counter,
        checked: bool = True,
    ):
        try:
            from dmlgpu.frontends import onnx  # noqa: PLC0415 - an extra
            from dmlgpu.frontends.onnx.preview import preview  # noqa: PLC0415 - likewise
        except ImportError as error:
            raise NotSupported(f"models in ONNX need the extra `dmlgpu[onnx]`: {error}") from None
        self._device, self._clock = device, clock
        path = Path(workload.model)
        made = preview(path, device, workload.shapes or None)
        start = clock()
        self._session: Any = onnx.load(path, device)
        loaded = clock() - start
        rng = np.random.default_rng(1)
        given = [self._drawn(rng, made.shapes) for _ in range(SETS)]
        self._inputs = [{name: Tensor(array, device=device) for name, array in one.items()} for one in given]
        self._number = 0
        start = clock()
        found = self._session.run(self._inputs[0])
        first = clock() - start
        start = clock()
        self._session.run_tensors(self._inputs[0])
        self._wait()
        warm = clock() - start
        counts, kernels = _counted(made)
        self.readiness = Readiness(
            # A session compiles when it first runs.
            Init(loaded + max(0.0, first - warm)),
            warm,
            self._check(path, given[0], found) if checked else Check("unchecked"),
            counts,
            kernels,
            SETS,
            SETS * sum(one.nbytes for one in given[0].values()),
        )

    def round(self, calls: int) -> Sample:
        """Run it so many times, and wait for the last one."""
        cpu, start = time.thread_time(), self._clock()
        for _ in range(calls):
            self._session.run_tensors(self._inputs[self._number % SETS])
            self._number += 1
        cpu = time.thread_time() - cpu
        self._wait()
        return Sample(None, (self._clock() - start) / calls, cpu / calls)

    def close(self) -> None:
        """Forget the model."""
        self._inputs.clear()
        self._session = None

    def _wait(self) -> None:
        backend = self._device.backend
        backend.wait(backend.submit(()))

    def _drawn(self, rng: np.random.Generator, shapes: Any) -> dict[str, Array]:
        """Random inputs: floats of a normal distribution; integers that are small enough to be indices."""
        found = {}
        for one in self._session.inputs:
            sizes = shapes[one.name]
            tensor = TensorDesc(one.data_type, sizes or (1,))
            contents = Contents() if tensor.data_type.is_float else Contents(below=2)
            array = fill(rng, tensor, contents).reshape(sizes)
            found[one.name] = array.astype(np.bool_) if one.is_bool else array
        return found

    def _check(self, path: Path, given: dict[str, Array], found: dict[str, Array]) -> Check:
        """Compare with what the reference computes node by node."""
        from dmlgpu.frontends import onnx  # noqa: PLC0415 - an extra

        with np.errstate(all="ignore"):
            expected = onnx.load(path, Device(NUMPY_ADAPTER)).run(given)
        names = [name for name, array in found.items() if isinstance(array, np.ndarray) and array.size]
        return verdict_of(compare_all([expected[name] for name in names], [found[name] for name in names]))


def _counted(made: Any) -> tuple[Counts, tuple[str, ...]]:
    """What the graphs of a model move and compute, as far as they are known before it runs, and their kernels."""
    counts, kernels = [], []
    for segment in made.segments:
        explanation = segment.kernels.explanation
        desc = segment.graph.desc(segment.all_outputs) if explanation is None else explanation.desc
        counts.append(count(desc, explanation))
        if explanation is not None:
            kernels += list(explanation.program.summaries)

    def total(field: str) -> int | None:
        known = [getattr(one, field) for one in counts]
        return None if not known or None in known else sum(known)

    return Counts(
        total("bytes") or 0,
        total("operations") or 0,
        total("plan_bytes"),
        total("plan_operations"),
        total("unfused_bytes"),
        total("kernels") or 0,
        max((one.temporary_bytes for one in counts), default=0),
        max((one.least_temporary_bytes for one in counts), default=0),
        total("persistent_bytes") or 0,
    ), tuple(kernels)
