"""Prepared workloads: compiled, checked, with several sets of buffers, run in rounds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dmlgpu import reference
from dmlgpu.bench.counting import Counts, count
from dmlgpu.bench.workload import Array, Arrays, Contents, Workload, fill
from dmlgpu.catalog.enums import DataType, ExecutionFlags
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.common.memory import host_budget
from dmlgpu.compiler.explain import Explanation, explain_graph, explain_operator
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.cases.tolerance import Bound, GivenBound
from dmlgpu.conformance.running.outcome import Verdict, compare
from dmlgpu.conformance.running.runner import nearest, run_graph
from dmlgpu.conformance.samples import SAMPLES, TensorMaker
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.executor import Dispatch, Executable, Range, Resources, measure
from dmlgpu.runtime.numpy import NUMPY_ADAPTER

MAX_OPERATIONS = 2e10
"""Maximum operations that the reference recomputes: they take about ten seconds."""

SLICES: Mapping[str, tuple[str, int, int, int]] = {
    "GEMM": ("m", 0, -2, -2),
    "MATRIX_MULTIPLY_INTEGER": ("m", 0, -2, -2),
    "CONVOLUTION": ("filters", 1, 0, 1),
    "MULTIHEAD_ATTENTION": ("queries", 0, 1, 1),
}
"""Operators too large for the reference, of which a part is checked: name of the size, index and axis of the input,
axis of the output."""

SHARES = {2: 2e-2, 4: 1e-4, 8: 1e-9}
"""Tolerance of floats by element size, relative to the largest result. Sums of any length stay well below; wrong
results do not."""


@dataclass(frozen=True)
class ResultCheck:
    """Comparison of results with the reference.

    Attributes:
        status: ``right``, ``wrong`` or ``unchecked``.
        text: Error, number of elements compared, or why nothing was compared.
    """

    status: str
    text: str = ""


def check(workload: Workload, inputs: Arrays, outputs: Sequence[Array], operations: float) -> ResultCheck:
    """Compare the outputs of an operator with the reference.

    Args:
        workload: Has the description of the operator.
        inputs: Its inputs.
        outputs: Its present outputs.
        operations: Approximate number of arithmetic operations.
    """
    desc = workload.desc
    assert isinstance(desc, OperatorDesc)
    with np.errstate(all="ignore"):
        if workload.is_map:
            case = case_by_name(workload.case)
            place = np.linspace(0, outputs[0].size - 1, case.desc.outputs[0].tensor.element_count).astype(np.int64)  # type: ignore[union-attr]
            sampled = tuple(None if array is None else _at(array, place, case) for array in inputs)
            return verdict_of(_by_case(case, sampled, [_at(output, place, case) for output in outputs]))
        if operations > MAX_OPERATIONS:
            return _check_part(workload, inputs, outputs, operations)
        if workload.case:
            return verdict_of(_by_case(case_by_name(workload.case), inputs, outputs))
        return verdict_of(compare_all(expected_outputs(desc, inputs), outputs))


def expected_outputs(desc: OperatorDesc, inputs: Arrays) -> list[Array]:
    """Return the results of the reference for the present outputs."""
    computed = reference.evaluate(desc, inputs)
    pairs = zip(desc.outputs, computed, strict=True)
    return [array for slot, array in pairs if slot.tensor is not None and array is not None]


def _check_part(workload: Workload, inputs: Arrays, outputs: Sequence[Array], operations: float) -> ResultCheck:
    """Compare a sample of the output of a product with the reference."""
    if workload.operator not in SLICES or workload.operator not in SAMPLES or workload.sizes.get("groups", 1) > 1:
        return ResultCheck("unchecked", "the reference would take too long")
    name, index, axis, output_axis = SLICES[workload.operator]
    size = workload.sizes[name]
    count = int(size * MAX_OPERATIONS / operations)
    if not count:
        return ResultCheck("unchecked", "the reference would take too long")
    place = np.linspace(0, size - 1, count).astype(np.int64)
    maker = TensorMaker(DataType[workload.data_type.upper()])
    desc = SAMPLES[workload.operator].build({**workload.sizes, name: count}, maker)
    part = [
        None if array is None else array.take(place, axis) if at == index else array for at, array in enumerate(inputs)
    ]
    expected = reference.evaluate(desc, tuple(part))
    result = verdict_of(compare_all(expected[:1], [outputs[0].take(place, output_axis)]))
    return ResultCheck(result.status, f"{result.text}; of {size:,} {name}, {count:,} were compared")


def _at(array: Array, place: Any, case: Case) -> Array:
    """Return elements of a map's tensor, in the shape of its case."""
    tensor = case.desc.outputs[0].tensor
    assert tensor is not None
    return np.ascontiguousarray(array).reshape(-1)[place].reshape(tensor.sizes)


def _by_case(case: Case, inputs: Arrays, outputs: Sequence[Array]) -> list[Verdict]:
    """Return a verdict per output, by the tolerance of the case."""
    outcomes, magnitudes = case.outcomes(inputs), case.magnitudes(inputs)
    there = [index for index, slot in enumerate(case.desc.outputs) if slot.tensor is not None]
    verdicts = []
    for index, got in zip(there, outputs, strict=True):
        expected = nearest([outcome[index] for outcome in outcomes], got, case.tolerance, magnitudes[index])
        verdicts.append(compare(expected, got, case.tolerance, magnitudes[index]))
    return verdicts


def compare_all(expected: Sequence[Array], outputs: Sequence[Array], share: float | None = None) -> list[Verdict]:
    """Return a verdict per output: floats relative to the largest one, by default of ``SHARES``; integers must be
    equal."""
    return [
        compare(reference_array, got, GivenBound(), _bound(reference_array, share))
        for reference_array, got in zip(expected, outputs, strict=True)
    ]


def _bound(expected: Array, share: float | None) -> Bound:
    if expected.dtype.kind != "f":
        return np.zeros(expected.shape)
    finite = expected[np.isfinite(expected)]
    largest = float(np.abs(finite).max(initial=0))
    return np.full(expected.shape, (SHARES[expected.dtype.itemsize] if share is None else share) * largest)


def verdict_of(verdicts: Sequence[Verdict], names: Sequence[str] = ()) -> ResultCheck:
    """Return the worst verdict of all outputs, with the name of the output if there are several, or ``unchecked``."""
    if not verdicts:
        return ResultCheck("unchecked", "there is no output")
    worst = max(range(len(verdicts)), key=lambda index: (not verdicts[index].ok, verdicts[index].of_bound))
    prefix = f"{names[worst]}: " if len(names) > 1 else ""
    return ResultCheck("right" if verdicts[worst].ok else "wrong", f"{prefix}{verdicts[worst]}")


MAX_SETS = 8
COLD_BYTES = 256 << 20
"""Total size of all sets of buffers, limited by MAX_SETS: exceeds CPU caches."""
MAX_COLD_SETS = 1024
"""Limit of the sets of a workload with cold caches."""


@dataclass(frozen=True)
class Sample:
    """Times of a round, per dispatch.

    Attributes:
        gpu: Seconds between GPU timestamps; None if there are no valid ones.
        wall: Seconds until the host had submitted the round and waited.
        cpu: CPU seconds of this thread for submission.
    """

    gpu: float | None
    wall: float
    cpu: float

    @property
    def seconds(self) -> float:
        """GPU time, or wall-clock time if there is none."""
        return self.wall if self.gpu is None else self.gpu


@dataclass(frozen=True)
class Init:
    """Seconds of preparation.

    Attributes:
        total: Until everything is compiled, including the driver.
        planning, rendering, driver, upload: Stages, as in ``Timings``; 0 if unknown.
    """

    total: float
    planning: float = 0.0
    rendering: float = 0.0
    driver: float = 0.0
    upload: float = 0.0


@dataclass(frozen=True)
class Readiness:
    """Facts about a prepared workload.

    Attributes:
        init: Time of preparation.
        cold: Seconds of the first dispatch, including the wait.
        check: Comparison with the reference.
        counts: Bytes and operations.
        kernels: Kernels.
        sets: Number of sets of buffers that dispatches use in turn.
        footprint: Bytes of all sets.
    """

    init: Init
    cold: float
    check: ResultCheck
    counts: Counts
    kernels: tuple[str, ...] = ()
    sets: int = 1
    footprint: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON."""
        return {**asdict(self), "counts": self.counts.to_json(), "kernels": list(self.kernels)}


class PreparedWorkload(Protocol):
    """A workload ready to be measured."""

    readiness: Readiness

    def round(self, calls: int) -> Sample:
        """Run the workload a number of times; return the time per run."""

    def close(self) -> None:
        """Free the memory of the workload."""


@contextlib.contextmanager
def retargeted(device: Device, **changes: Any) -> Iterator[None]:
    """Make the device compile for a target with these overrides, in this context."""
    backend = device.backend
    before = backend.target
    backend.target = before.with_overrides(**changes)
    try:
        yield
    finally:
        backend.target = before


class BufferSets:
    """Work bound to several sets of buffers, which dispatches cycle through.

    Args:
        device: Device to run on.
        clock: Returns seconds.
    """

    def __init__(self, device: Device, clock: Callable[[], float] = time.perf_counter):
        self._device, self._clock = device, clock
        self._buffers: list[Any] = []
        self._work: list[Sequence[Dispatch]] = []
        self._number = 0

    def round(self, calls: int) -> Sample:
        """Run the work a number of times, each on the next set of buffers; twice if the device has timestamps."""
        work = [self._work[(self._number + call) % len(self._work)] for call in range(calls)]
        self._number += calls
        backend = self._device.backend
        cpu, start = time.thread_time(), self._clock()
        serial = backend.submit(*work)
        cpu = time.thread_time() - cpu
        backend.wait(serial)
        wall = self._clock() - start
        timed = measure(backend, *work).device if hasattr(backend, "time") else None
        return Sample(timed / calls if timed else None, wall / calls, cpu / calls)

    def run(self, index: int) -> None:
        """Run the work once on the set of buffers with this index, modulo their count, and wait; for
        ``ratios.ratio``."""
        backend = self._device.backend
        backend.wait(backend.submit(self._work[index % len(self._work)]))

    def close(self) -> None:
        """Free the buffers."""
        self._work.clear()
        for buffer in self._buffers:
            self._device.backend.destroy_buffer(buffer)
        self._buffers.clear()

    def _first(self) -> float:
        """Run the work for the first time; return the seconds."""
        start = self._clock()
        self.run(0)
        return self._clock() - start

    def _filled(self, raw: Array) -> Range[Any]:
        buffer = self._empty(raw.size)
        self._device.backend.write(buffer.buffer, 0, raw)
        return buffer

    def _empty(self, size: int) -> Range[Any]:
        buffer = self._device.backend.create_buffer(size, "benchmark")
        self._buffers.append(buffer)
        return Range(buffer, 0, size)


class PreparedOperator(BufferSets):
    """An operator or a graph with its buffers.

    Args:
        device: Device to run on.
        workload: The workload.
        clock: Returns seconds.
        checked: Whether results are compared with the reference.

    Raises:
        DmlError: If it cannot be compiled, or there is no memory.
    """

    def __init__(
        self,
        device: Device,
        workload: Workload,
        *,
        clock: Callable[[], float] = time.perf_counter,
        checked: bool = True,
    ):
        super().__init__(device, clock)
        desc = workload.desc
        assert desc is not None
        start = clock()
        flags = ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION if workload.half_precision else ExecutionFlags.NONE
        with retargeted(device, schedule=workload.schedule or device.backend.target.overrides.schedule):
            if isinstance(desc, GraphDesc):
                compiled = device.compile_graph(desc, flags)
            else:
                compiled = device.compile_operator(device.create_operator(desc), flags)
            timings = compiled.timings
            total = clock() - start
            explanation = _explained(workload, device)
        self._inputs = [port.desc for port in compiled.inputs]
        self._outputs = [port.desc for port in compiled.outputs]
        self._compiled = compiled  # which holds constants of a graph
        arrays = workload.inputs()
        raw = [_raw(tensor, array) for tensor, array in zip(self._inputs, arrays, strict=True)]
        executable: Executable = compiled._executable
        set_size = sum(tensor.byte_size for tensor in (*self._inputs, *self._outputs) if tensor is not None)
        set_size += executable.temporary_size
        sets = set_count(set_size, workload.cache)
        outputs = [self._bind(executable, raw) for _ in range(sets)]
        cold = self._first()
        counts = count(desc, explanation)
        self.readiness = Readiness(
            Init(total, **({} if timings is None else {stage: getattr(timings, stage) for stage in timings.STAGES})),
            cold,
            self._check(workload, arrays, outputs[0], counts) if checked else ResultCheck("unchecked"),
            counts,
            () if compiled.program is None else compiled.program.summaries,
            sets,
            set_size * sets,
        )

    def _bind(self, executable: Executable, raw: Sequence[Array | None]) -> list[Range[Any] | None]:
        """Bind a set of buffers of its own; return the outputs."""
        backend = self._device.backend
        inputs = [None if data is None else self._filled(data) for data in raw]
        outputs = [None if tensor is None else self._empty(tensor.byte_size) for tensor in self._outputs]
        temporary = self._empty(executable.temporary_size) if executable.temporary_size else None
        persistent = self._empty(executable.persistent_size) if executable.persistent_size else None
        resources = Resources(tuple(inputs), tuple(outputs), temporary, persistent)
        if persistent is not None:
            backend.submit(executable.bind_initialization(resources))
        self._work.append(backend.record(executable.bind(resources)))
        return outputs

    def _check(
        self, workload: Workload, arrays: Arrays, outputs: Sequence[Range[Any] | None], counts: Counts
    ) -> ResultCheck:
        """Compare the outputs of the first set with the reference."""
        results = [
            tensor.decode(self._device.backend.read(output.buffer, 0, output.size))
            for tensor, output in zip(self._outputs, outputs, strict=True)
            if tensor is not None and output is not None
        ]
        if isinstance(workload.desc, GraphDesc):
            host = Device(NUMPY_ADAPTER)
            reference_inputs = [np.zeros(0) if array is None else array for array in arrays]
            with np.errstate(all="ignore"):
                return verdict_of(compare_all(run_graph(host.compile_graph(workload.desc), reference_inputs), results))
        return check(workload, arrays, results, counts.operations)


def _raw(tensor: TensorDesc | None, array: Array | None) -> Array | None:
    """Return a tensor's bytes; an array of one dimension is already in the tensor's layout and may be shorter."""
    if tensor is None or array is None:
        return None
    if array.ndim == 1 and array.shape != tensor.sizes:
        return np.resize(array.view(np.uint8), tensor.byte_size)
    return tensor.encode(array)


def _explained(workload: Workload, device: Device) -> Explanation | None:
    """Return the compiled form of the workload; None if nothing is compiled."""
    if device.adapter == NUMPY_ADAPTER or workload.desc is None:
        return None
    target = device.backend.target.for_operators(workload.half_precision)
    if isinstance(workload.desc, GraphDesc):
        return explain_graph(workload.name, workload.desc, target)
    return explain_operator(workload.name, workload.desc, target)


def set_count(size: int, cache: str = "") -> int:
    """Return the number of sets of buffers of this size; at least two if the host has memory for them.

    Args:
        size: Bytes of a set.
        cache: As in ``Workload``; one set keeps caches warm.
    """
    if cache == "warm":
        return 1
    room = (host_budget() or 4 << 30) // 4
    cold_count = -(-COLD_BYTES // max(size, 1))
    limit = MAX_COLD_SETS if cache == "cold" else MAX_SETS
    return int(max(1, min(limit, max(2, cold_count), room // max(size, 1))))


MODEL_SETS = 2


class PreparedOnnxModel:
    """A model and its inputs on the device. Raises as ``frontends.onnx.load`` and ``Session.run``."""

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
            from dmlgpu.tensors.tensor import Tensor  # noqa: PLC0415 - only models need it
        except ImportError as error:
            raise NotSupported(f"models in ONNX need the extra `dmlgpu[onnx]`: {error}") from None
        self._device, self._clock = device, clock
        path = Path(workload.model)
        model = preview(path, device, workload.shapes or None)
        start = clock()
        self._session: Any = onnx.load(path, device)
        loaded = clock() - start
        rng = np.random.default_rng(1)
        input_sets = [self._drawn(rng, model.shapes) for _ in range(MODEL_SETS)]
        self._inputs = [{name: Tensor(array, device=device) for name, array in arrays.items()} for arrays in input_sets]
        self._number = 0
        start = clock()
        outputs = self._session.run(self._inputs[0])
        first = clock() - start
        start = clock()
        self._session.run_tensors(self._inputs[0])
        self._wait()
        warm = clock() - start
        counts, kernels = _count_model(model)
        self.readiness = Readiness(
            # A session compiles when it first runs.
            Init(loaded + max(0.0, first - warm)),
            warm,
            self._check(path, input_sets[0], outputs) if checked else ResultCheck("unchecked"),
            counts,
            kernels,
            MODEL_SETS,
            MODEL_SETS * sum(arrays.nbytes for arrays in input_sets[0].values()),
        )

    def round(self, calls: int) -> Sample:
        """Run it a number of times, and wait for the last run."""
        cpu, start = time.thread_time(), self._clock()
        for _ in range(calls):
            self._session.run_tensors(self._inputs[self._number % MODEL_SETS])
            self._number += 1
        cpu = time.thread_time() - cpu
        self._wait()
        return Sample(None, (self._clock() - start) / calls, cpu / calls)

    def close(self) -> None:
        """Release the model."""
        self._inputs.clear()
        self._session = None

    def _wait(self) -> None:
        backend = self._device.backend
        backend.wait(backend.submit(()))

    def _drawn(self, rng: np.random.Generator, shapes: Any) -> dict[str, Array]:
        """Draw random inputs: floats of a normal distribution, integers small enough to be indices."""
        arrays = {}
        for model_input in self._session.inputs:
            sizes = shapes[model_input.name]
            tensor = TensorDesc(model_input.data_type, sizes or (1,))
            contents = Contents() if tensor.data_type.is_float else Contents(below=2)
            array = fill(rng, tensor, contents).reshape(sizes)
            arrays[model_input.name] = array.astype(np.bool_) if model_input.is_bool else array
        return arrays

    def _check(self, path: Path, inputs: dict[str, Array], outputs: dict[str, Array]) -> ResultCheck:
        """Compare the outputs with those of the reference, node by node."""
        from dmlgpu.frontends import onnx  # noqa: PLC0415 - an extra

        with np.errstate(all="ignore"):
            expected = onnx.load(path, Device(NUMPY_ADAPTER)).run(inputs)
        names = [name for name, array in outputs.items() if isinstance(array, np.ndarray) and array.size]
        return verdict_of(compare_all([expected[name] for name in names], [outputs[name] for name in names]))


def _count_model(model: Any) -> tuple[Counts, tuple[str, ...]]:
    """Return bytes, operations and kernels of the graphs of a model, as far as known before it runs."""
    counts, kernels = [], []
    for segment in model.segments:
        explanation = segment.kernels.explanation
        desc = segment.desc if explanation is None else explanation.desc
        counts.append(count(desc, explanation))
        if explanation is not None:
            kernels += list(explanation.program.summaries)

    def total(field: str) -> int | None:
        known = [getattr(part, field) for part in counts]
        return None if not known or None in known else sum(known)

    return Counts(
        total("bytes") or 0,
        total("operations") or 0,
        total("plan_bytes"),
        total("plan_operations"),
        total("unfused_bytes"),
        total("kernels") or 0,
        max((part.temporary_bytes for part in counts), default=0),
        max((part.least_temporary_bytes for part in counts), default=0),
        total("persistent_bytes") or 0,
    ), tuple(kernels)
