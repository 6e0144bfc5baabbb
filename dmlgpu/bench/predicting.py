"""Predicted times of workloads on described GPUs, by the cost model of schedules; nothing runs.

Kernels are those that the compiler chooses for the card. Bytes come from the schedule. Instructions and registers come
from RADV's compiler if it is installed, for the card's family or else for RDNA 3, and otherwise from the tile of a
product or the kernel's source. docs/predicting.md lists what was checked and what was not.
"""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dmlgpu.bench.compiled import CompiledKernel, has_loop
from dmlgpu.bench.counting import MULTIPLYING, Counts, count, kernel_counts
from dmlgpu.bench.kernel_text import KernelText, read_kernel_text
from dmlgpu.bench.radv import compile_workloads, missing_parts
from dmlgpu.bench.workload import OwnKernel, Workload
from dmlgpu.common.errors import DmlError, ModelError, NotSupported
from dmlgpu.common.files import first_record, whole_file
from dmlgpu.compiler.cards import GpuCard
from dmlgpu.compiler.explain import ExplainedKernel, Explanation, explain_graph, explain_operator
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.plan import Lookup, PlanTensor, Role, parts
from dmlgpu.compiler.rewrites.packing import UNIT
from dmlgpu.compiler.rewrites.sources import leaves, nodes
from dmlgpu.compiler.schedule.cost import (
    PAIR_VECTOR,
    PAIR_WAITS,
    Estimate,
    Work,
    estimate,
    matrix_work,
    slab_loop,
    slab_work,
    stream_work,
)
from dmlgpu.compiler.schedule.steps.base import KernelStep
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperative, ScheduledCooperativeAttend
from dmlgpu.compiler.schedule.steps.maps import ScheduledMap
from dmlgpu.compiler.schedule.steps.products import (
    AttentionTile,
    ProductSchedule,
    ScheduledAttend,
    ScheduledContract,
)
from dmlgpu.compiler.schedule.steps.reductions import ScheduledReduce, ScheduledScan
from dmlgpu.compiler.target import (
    Division,
    Float16Conversions,
    Float16Encoding,
    Matrices,
    MatrixDialect,
    Policies,
    Profile,
    Target,
)
from dmlgpu.conformance.running import fields
from dmlgpu.conformance.running.records import machine
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.shader_source import without_comments, workgroup_size

UNIT_BYTES = 16
"""Bytes of a load."""

PRODUCT_SHARE = 0.4
"""Estimated share of multiply-adds in the instructions of a product without slabs, for kernels that are not
compiled."""

PER_WAIT = 16
"""Multiply-adds of such a product per exposed load: four units by one."""

HIT = 0.25
"""Latency of a cache hit, relative to that of memory."""

STAND_IN = "navi31"
"""GPU family whose instructions represent GPUs that RADV does not compile for."""

RECORD, FORMAT = "predicted", 1

_FEATURES = frozenset({"immediates", "shader-f16", "shader-f64", "shader-int64", "subgroup"})
_PROFILES = {"discrete": Profile.DISCRETE, "integrated": Profile.INTEGRATED}


@dataclass(frozen=True)
class PredictedKernel:
    """The predicted time of a kernel.

    Attributes:
        label: Name of the kernel.
        times: Executions.
        seconds: Seconds of one execution, launch included.
        limit: The limiting resource (``cost.Estimate``).
        compiled: Whether instructions and registers are those of a compiler.
    """

    label: str
    times: int
    seconds: float
    limit: str
    compiled: bool


@dataclass(frozen=True)
class Prediction:
    """The predicted time of a workload on a card.

    Attributes:
        name, operator: The workload.
        card: Name of the card.
        schedule: Requested schedule; empty for the chosen one.
        status: ``predicted``, ``refused`` or ``failed``.
        message: Reason why it was not predicted.
        seconds: Seconds of one execution.
        limits: Seconds of the kernels with each limit.
        counts: Bytes and operations of the description, as in ``Counts``.
        kernels: The kernels.
    """

    name: str
    operator: str
    card: str
    schedule: str = ""
    status: str = "predicted"
    message: str = ""
    seconds: float = 0.0
    limits: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[PredictedKernel, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Workload, card and schedule, which identify it across runs."""
        return self.name, self.card, self.schedule

    @property
    def limit(self) -> str:
        """The limit of the kernels that take most of the time; empty if nothing was predicted."""
        return max(self.limits, key=lambda name: self.limits[name], default="")

    @property
    def compiled(self) -> str:
        """Source of instructions and registers: ``compiled``, ``estimated`` or ``both``."""
        sources = {kernel.compiled for kernel in self.kernels}
        return "both" if len(sources) > 1 else "compiled" if sources == {True} else "estimated"

    def to_json(self) -> dict[str, Any]:
        """Return the non-empty fields as JSON."""
        return {name: value for name, value in asdict(self).items() if value not in ("", 0.0, (), {})}

    @classmethod
    def from_json(cls, record: Any) -> Prediction:
        """Read the result of ``to_json``; kernels are dropped.

        Raises:
            ValueError: If a field is missing, unknown or malformed.
        """
        values = fields.read_known(record, _READERS, "name", "operator", "card")
        return cls(**{name: value for name, value in values.items() if name in _READERS})


_READERS: Mapping[str, fields.Reader[Any]] = {
    **dict.fromkeys(("name", "operator", "card", "schedule", "status", "message"), fields.text),
    "seconds": fields.seconds,
    "limits": fields.mapping_of(fields.seconds),
    "counts": fields.mapping_of(fields.count),
}


def target_of_card(card: GpuCard) -> Target:
    """Return the compile target of a card, as its driver is likely to offer it through wgpu; through Dawn, with matrix
    units, if the variable DMLGPU_MATRICES is ``always``."""
    encoding = Float16Encoding.F16 if card.family else Float16Encoding.PACK
    uses_matrices = os.environ.get("DMLGPU_MATRICES") == "always" and card.matrix > 0
    return Target(
        f"{card.name} (RADV {card.family.upper()})" if card.family else card.name,
        _PROFILES[card.kind],
        _FEATURES,
        float16=Float16Conversions(True, encoding),
        division=Division.FUSED,
        matrices=_matrices(card) if uses_matrices else None,
        max_storage_buffers=64,
        max_workgroup_invocations=1024,
        max_workgroup_storage=(64 if card.family else 32) << 10,
        max_binding_size=(2 << 30) - 4,
        # Vulkan drivers limit accesses of buffers by themselves.
        policies=Policies(checked=card.name.startswith("Apple")),
    )


def _matrices(card: GpuCard) -> Matrices:
    """Return the matrix units of a card, as Dawn lists them."""
    is_of_intel = card.wave < 2 * UNIT * UNIT
    is_of_nvidia = not (is_of_intel or card.family)
    return Matrices(8 if is_of_intel else 16, lanes=card.wave, dialect=MatrixDialect.TINT, turns=not is_of_nvidia)


def predict(workloads: Sequence[Workload], card: GpuCard) -> Iterator[Prediction]:
    """Yield the predicted time of each workload on a card, each under its own schedule.

    Args:
        workloads: Workloads to predict.
        card: The GPU.
    """
    compiled = () if missing_parts() else compile_workloads(workloads, [card.family or STAND_IN], listings=True)[1]
    statistics = {kernel.wgsl: kernel.statistics for kernel in compiled if kernel.status == "compiled" and kernel.wgsl}
    for workload in workloads:
        plain = Prediction(workload.name, workload.operator, card.name, workload.schedule)
        try:
            if workload.kernel is None:
                yield _prediction(plain, _explanations(workload, card), statistics, card)
            else:
                own = next((kernel for kernel in compiled if kernel.workload == workload.name), None)
                yield _prediction_of_own(plain, workload.kernel, own, card)
        except NotSupported as error:
            yield replace(plain, status="refused", message=str(error))
        except DmlError as error:
            yield replace(plain, status="failed", message=str(error))


def _explanations(workload: Workload, card: GpuCard) -> list[Explanation]:
    """Return the compiled graphs of a model, or the compiled operator or graph, for a card."""
    target = target_of_card(card).for_operators(workload.half_precision).with_overrides(schedule=workload.schedule)
    if workload.model:
        from dmlgpu.frontends.onnx.preview import preview  # noqa: PLC0415 - an extra

        model = preview(workload.model, Device("numpy"), workload.shapes)
        if model.unsupported or model.fails:
            raise NotSupported(model.stopped or f"{workload.name} has operators that are not supported")
        return [explain_graph("graph", segment.desc, target) for segment in model.segments]
    assert workload.desc is not None
    if isinstance(workload.desc, GraphDesc):
        return [explain_graph(workload.name, workload.desc, target)]
    return [explain_operator(workload.name, workload.desc, target)]


def _prediction(
    plain: Prediction,
    explanations: Sequence[Explanation],
    statistics: Mapping[str, Mapping[str, int]],
    card: GpuCard,
) -> Prediction:
    limits: dict[str, float] = defaultdict(float)
    kernels = []
    for explanation in explanations:
        for explained, counts in zip(explanation.kernels, _counts(explanation), strict=True):
            compiled = statistics.get(explained.kernel.wgsl)
            predicted = _estimate(explained, counts, compiled, card)
            kernels.append(
                PredictedKernel(
                    explained.kernel.label,
                    explained.times,
                    predicted.seconds,
                    predicted.limit,
                    compiled is not None,
                )
            )
            limits[predicted.limit] += explained.times * predicted.seconds
    seconds = sum(kernel.times * kernel.seconds for kernel in kernels)
    return replace(
        plain,
        seconds=_rounded(seconds),
        limits={name: _rounded(limit) for name, limit in limits.items()},
        counts=_total_counts(explanations),
        kernels=tuple(replace(kernel, seconds=_rounded(kernel.seconds)) for kernel in kernels),
    )


def _prediction_of_own(plain: Prediction, own: OwnKernel, compiled: CompiledKernel | None, card: GpuCard) -> Prediction:
    """Return the predicted time of a kernel in WGSL. Loads that caches serve count as instructions only.

    Raises:
        NotSupported: If it was not compiled, or the number of iterations of its loop is unknown.
    """
    if compiled is None:
        raise NotSupported(
            f"times of kernels in WGSL are predicted from compiled code, which needs {missing_parts()[0]}"
        )
    if compiled.status != "compiled":
        raise NotSupported(compiled.message)
    statistics, groups = compiled.statistics, math.prod(own.grid)
    size = workgroup_size(without_comments(own.source), own.entry_point, own.constants)
    if size is None:
        raise NotSupported(
            "times of kernels whose workgroup size depends on constants without a value are not predicted"
        )
    products = own.operations / 2 / (groups * math.prod(size))
    if has_loop(compiled.listing) and not (products and statistics["loop_multiply_adds"]):
        raise NotSupported(
            "times of kernels with loops are predicted from the multiply-adds of the busiest loop, of which there are"
            f" {statistics['loop_multiply_adds']}, and of a dispatch: --flops '2*m*n*k'"
        )
    moved = sum(buffer.tensor.byte_size for buffer in own.buffers)
    work = Work(groups, math.prod(size), moved, loaded=moved, multiply_adds=products)
    predicted = estimate(_compiled(work, statistics, 1.0), card)
    seconds = _rounded(predicted.seconds)
    return replace(
        plain,
        seconds=seconds,
        limits={predicted.limit: seconds},
        counts={"bytes": moved, "operations": own.operations, "kernels": 1},
        kernels=(PredictedKernel(own.entry_point, 1, seconds, predicted.limit, compiled=True),),
    )


def _counts(explanation: Explanation) -> Iterator[Counts]:
    """Yield bytes and operations of one execution of each kernel."""
    for _, counts in kernel_counts(explanation):
        yield Counts(counts.bytes // counts.kernels, counts.operations // counts.kernels)


def _total_counts(explanations: Sequence[Explanation]) -> dict[str, int]:
    """Return bytes and operations of the descriptions."""
    counts = [count(explanation.desc, explanation) for explanation in explanations]
    return {name: sum(getattr(each, name) for each in counts) for name in ("bytes", "operations", "kernels")}


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


# ---- from a kernel to its work


def _estimate(
    explained: ExplainedKernel, counts: Counts, statistics: Mapping[str, int] | None, card: GpuCard
) -> Estimate:
    """Return the estimated time of one execution of a kernel."""
    work = work_of(explained, counts, statistics, card)
    return estimate(replace(work, cached=min(work.moved, _cached(explained, card))), card)


def work_of(explained: ExplainedKernel, counts: Counts, statistics: Mapping[str, int] | None, card: GpuCard) -> Work:
    """Return the work of one execution of a kernel.

    Args:
        explained: The kernel.
        counts: Its bytes and operations.
        statistics: Statistics of the compiled kernel (``CompiledKernel``); None if it was not compiled.
        card: The GPU.
    """
    scheduled, kernel = explained.scheduled, explained.kernel
    groups = math.prod(kernel.grid)
    if isinstance(scheduled, ScheduledContract) and scheduled.tile.depth:
        is_streamed = scheduled.schedule is ProductSchedule.STREAMED
        return (_stream_work if is_streamed else _slab_work)(scheduled, counts, statistics, card)
    if isinstance(scheduled, ScheduledCooperative):
        depth = scheduled.slabs[0].depth
        return matrix_work(_size(scheduled), scheduled.matrices, scheduled.parts, depth=depth, moved=counts.bytes)
    text = read_kernel_text(kernel.wgsl)
    workgroup = 256 if scheduled is None else scheduled.launch.workgroup
    invocations = groups * workgroup
    products = counts.operations / 2 / invocations if isinstance(scheduled, MULTIPLYING) else 0.0
    unused = _not_looked_up(scheduled)
    trips = 1.0 if scheduled is None or unused else _trips(scheduled, invocations)
    moved = counts.bytes - unused
    plain = Work(
        groups,
        workgroup,
        moved,
        loaded=moved,
        multiply_adds=products,
        barriers=text.barriers,
        shared=text.shared_bytes,
        waits=trips / _in_flight(scheduled),
    )
    if isinstance(scheduled, ScheduledCooperativeAttend):
        plain = replace(plain, multiply_adds=0, matrix=products)
        # The text has each operation on matrices of a block of keys once; invocations read and weight scores.
        return _estimated(plain, text, -(-math.prod(scheduled.key.own) // scheduled.block))
    return _estimated(plain, text, trips) if statistics is None else _compiled(plain, statistics, trips)


def _not_looked_up(scheduled: KernelStep | None) -> int:
    """Return the bytes of lookup tables that cannot be read, because fewer elements are looked up."""
    if not isinstance(scheduled, ScheduledMap):
        return 0
    return sum(
        max(0, tensor.distinct_bytes - math.prod(body.sizes) * tensor.unit_bits // 8)
        for body in nodes(scheduled.body)
        if isinstance(body, Lookup)
        for tensor in leaves(body.inputs[0][1])
    )


def _trips(scheduled: KernelStep, invocations: int) -> float:
    """Return the iterations of an invocation: its loads from the largest tensor that it reads, some of them at once."""
    tensors = [tensor for tensor in parts.tensors(scheduled) if tensor is not scheduled.output]
    loads = max([0.0, *(tensor.distinct_bytes / UNIT_BYTES / invocations for tensor in tensors)])
    match scheduled:
        case ScheduledReduce():
            loads /= scheduled.ahead
        case ScheduledScan():
            loads /= scheduled.held
    return max(1.0, loads)


def _in_flight(scheduled: KernelStep | None) -> int:
    """Return the loads that an invocation issues before it waits for them, if the schedule decides it."""
    is_streamed = isinstance(scheduled, ScheduledAttend) and scheduled.tile.is_streamed
    return AttentionTile.values_at_once if is_streamed else 1


def _estimated(work: Work, text: KernelText, trips: float) -> Work:
    """Add instructions, counted in the source of a kernel."""
    if work.multiply_adds:
        others = text.instructions + work.multiply_adds * (1 / PRODUCT_SHARE - 1)
        work = replace(work, waits=work.waits + HIT * work.multiply_adds / PER_WAIT)
    else:
        others = text.instructions * (trips if text.has_loop else 1)
    return replace(work, vector=others / 2, others=others / 2)


def _compiled(work: Work, statistics: Mapping[str, int], trips: float) -> Work:
    """Add instructions and registers of the compiled kernel, its loop as often as its products or loads require."""
    products, waits = statistics["loop_multiply_adds"], work.waits
    if work.multiply_adds and products:
        trips = max(1.0, work.multiply_adds / products)
        waits += HIT * trips
    return replace(
        work,
        **_instructions(statistics, trips, work.multiply_adds),
        registers=statistics["vgprs"],
        shared=statistics["shared_bytes"],
        barriers=statistics["barriers"],
        waits=waits,
    )


def _slab_work(step: ScheduledContract, counts: Counts, statistics: Mapping[str, int] | None, card: GpuCard) -> Work:
    """Return the work of a product in slabs of workgroup memory."""
    element = 1 if step.schedule is ProductSchedule.PACKED else _element(step)
    work = slab_work(
        _size(step), step.tile, step.parts, card, element=element, moved=counts.bytes, packed=_packed(step)
    )
    if not step.accumulator.is_float and not work.dot:
        work = replace(work, integers=work.multiply_adds, multiply_adds=0)
    if statistics is None or not statistics["loop_multiply_adds"]:
        return work
    pairs = work.barriers / 2
    loop = statistics["loop_instructions"] * slab_loop(step.tile).multiply_adds / statistics["loop_multiply_adds"]
    others = max(0.0, loop - PAIR_WAITS - PAIR_VECTOR - slab_loop(step.tile).multiply_adds)
    around = max(0, statistics["instructions"] - statistics["loop_instructions"])
    return replace(
        work,
        vector=pairs * PAIR_VECTOR + around / 2,
        others=pairs * others + around / 2,
        registers=statistics["vgprs"],
        shared=statistics["shared_bytes"],
    )


def _stream_work(step: ScheduledContract, counts: Counts, statistics: Mapping[str, int] | None, card: GpuCard) -> Work:
    """Return the work of a product of few rows, whose columns are read once."""
    work = stream_work(_size(step), step.tile, step.parts, step.steps, element=_element(step), moved=counts.bytes)
    if statistics is None or not statistics["loop_multiply_adds"]:
        return work
    return replace(
        work,
        **_instructions(statistics, work.multiply_adds / statistics["loop_multiply_adds"], work.multiply_adds),
        registers=statistics["vgprs"],
        shared=statistics["shared_bytes"],
    )


def _instructions(statistics: Mapping[str, int], trips: float, multiply_adds: float) -> dict[str, Any]:
    """Return other vector instructions, and all others, of a compiled kernel whose loop has that many iterations."""
    once = statistics["instructions"] - statistics["waits"]
    instructions = once + (max(1.0, trips) - 1) * statistics["loop_instructions"]
    vector = instructions * statistics["valu"] / once
    return {"vector": max(0.0, vector - multiply_adds), "others": instructions - vector}


def _size(step: ScheduledContract | ScheduledCooperative) -> tuple[int, int, int, int]:
    """Return batch, rows, columns and inner size of a product."""
    space = step.space
    return math.prod(space.batch), math.prod(space.rows), math.prod(space.columns), math.prod(space.inner)


def _element(step: ScheduledContract) -> int:
    """Return the bytes of an element of the operands."""
    bits = [operand.source.data_type.bits for operand in (step.a, step.b) if isinstance(operand.source, PlanTensor)]
    return max(bits, default=32) // 8


def _packed(step: ScheduledContract) -> int:
    """Return the multiply-adds of an instruction."""
    return UNIT if step.schedule is ProductSchedule.PACKED else 2 if step.in_float16 else 1


def _cached(explained: ExplainedKernel, card: GpuCard) -> float:
    """Return the bytes that a cache holds: temporary tensors that fit, and everything in steps that repeat."""
    if explained.scheduled is None:
        return 0.0
    sizes = {
        (tensor.binding, tensor.offset): tensor.distinct_bytes
        for tensor in parts.tensors(explained.scheduled)
        if explained.times > 1 or tensor.binding.role is Role.TEMPORARY
    }
    cached = sum(sizes.values())
    return cached if cached <= card.cache else 0.0


# ---- files


def write_predictions(path: Path, card: GpuCard, command: Sequence[str], predictions: Sequence[Prediction]) -> None:
    """Write predictions as JSON Lines, with a header.

    Raises:
        OSError: If the file cannot be written.
    """
    header = {"record": RECORD, **prediction_facts(card, command)}
    with whole_file(path) as file:
        for record in (header, *({"record": "prediction", **each.to_json()} for each in predictions)):
            file.write(json.dumps(record, ensure_ascii=False).encode(errors="replace") + b"\n")


def prediction_facts(card: GpuCard, command: Sequence[str]) -> dict[str, Any]:
    """Return the header of predictions: versions, card, command."""
    return {"format": FORMAT, **machine(), "card": asdict(card), "command": list(command)}


def is_prediction_file(path: Path) -> bool:
    """Return whether a file starts as ``write_predictions`` writes it; False if it cannot be read."""
    return first_record(path).get("record") == RECORD


def read_predictions(path: Path) -> tuple[Prediction, ...]:
    """Read a file of ``write_predictions``.

    Raises:
        ModelError: If it is malformed; the message names the line.
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        return read_lines(str(path), file)


def read_lines(name: str, lines: Iterable[bytes]) -> tuple[Prediction, ...]:
    """Read the lines of a file. Raises ModelError as ``read_predictions``.

    Args:
        name: Name of the file, for messages.
        lines: Its lines.
    """
    predictions = []
    for line_number, line in enumerate(lines, start=1):
        where = f"{name}, line {line_number}"
        try:
            record = json.loads(line)
            if line_number == 1 and record.get("format") != FORMAT:
                raise ValueError(f"format must be {FORMAT}, got {record.get('format')!r}")
            if line_number > 1:
                predictions.append(Prediction.from_json(record))
        except (ValueError, AttributeError, RecursionError) as error:
            raise ModelError(where, f"is not a prediction: {error}") from error
    return tuple(predictions)


# ---- comparison ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PredictionChange:
    """A prediction before and after.

    Attributes:
        kind: ``slower``, ``faster``, ``lost``, ``missing``, ``new`` or ``same``.
        before, after: The prediction; None if missing.
    """

    kind: str
    before: Prediction | None
    after: Prediction | None

    @property
    def prediction(self) -> Prediction:
        """The prediction after, or before if it is missing."""
        prediction = self.after or self.before
        assert prediction is not None
        return prediction

    @property
    def ratio(self) -> float | None:
        """Time after divided by time before; None if one is unknown."""
        if self.before is None or self.after is None or not (self.before.seconds and self.after.seconds):
            return None
        return self.after.seconds / self.before.seconds

    @property
    def is_worse(self) -> bool:
        """Whether it is slower or no longer predicted."""
        return self.kind in ("slower", "lost", "missing")


def compare_predictions(
    before: Sequence[Prediction], after: Sequence[Prediction], threshold: float
) -> tuple[PredictionChange, ...]:
    """Return the changes of all predictions. Equal programs have equal predictions, so there is no noise.

    Args:
        before, after: Predictions of two files.
        threshold: Smallest relative change that counts.
    """
    old, new = ({prediction.key: prediction for prediction in side} for side in (before, after))
    return tuple(_prediction_change(old.get(key), new.get(key), threshold) for key in dict.fromkeys((*old, *new)))


def _prediction_change(before: Prediction | None, after: Prediction | None, threshold: float) -> PredictionChange:
    change = PredictionChange("same", before, after)
    if before is None or after is None:
        return replace(change, kind="new" if before is None else "missing")
    if change.ratio is None:
        return replace(change, kind="lost" if before.seconds else "new" if after.seconds else "same")
    if max(change.ratio, 1 / change.ratio) <= 1 + threshold:
        return change
    return replace(change, kind="slower" if change.ratio > 1 else "faster")
