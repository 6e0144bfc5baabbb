"""Test cases for web pages: programs, initial tensors, expected results, and rules to check results.

Each tolerance becomes a rule for all elements, with at most one number per element. ``pages/judge.js`` applies rules as
``conformance.running.outcome.compare`` does; a test lets both judge the same results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import TensorSlot
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.passes import PASSES
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.conformance.cases.case import Array, Arrays, Case
from dmlgpu.conformance.cases.families.activation import FlushedWithin
from dmlgpu.conformance.cases.families.reduction import LogarithmOfSum
from dmlgpu.conformance.cases.families.resampling import RoundedSum
from dmlgpu.conformance.cases.tolerance import (
    Accumulated,
    Bound,
    CorrectlyRounded,
    Exact,
    GivenBound,
    Tolerance,
    Ulp,
)
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.running.runner import POISON, TAIL, digest, tensor_offset
from dmlgpu.conformance.suites.attributes import AttributeSuite, SameKind
from dmlgpu.conformance.suites.graphs import WITHIN, GraphExpectation, GraphSuite
from dmlgpu.conformance.suites.operators import CaseSuite
from dmlgpu.conformance.suites.programs import EQUAL, LocatedTensor, ProgramSuite, expected
from dmlgpu.conformance.suites.registry import Suite
from dmlgpu.export.compiling import WEB
from dmlgpu.export.layout import Document, Uploads, add_program
from dmlgpu.runtime.rendered import check_limits


@dataclass(frozen=True)
class JudgingRule:
    """Rule for results: a result is correct if it meets any condition.

    Attributes:
        bits: Same bits.
        nan: Any NaN for a NaN.
        ulps: At most this many ULP away, including infinities, and two NaN; None disables the condition.
        near: Finite, and at most the element's number away.
        kind: Same infinity, or any NaN for a NaN.
        signs: Whether ``near`` requires zeros of the same sign.
        flush: Zero if a subnormal of 32 or 64 bits, or the smallest normal number, is expected.
        factor: Zero if less than four times float32's smallest normal number is expected.
        error: Measure of an element's error relative to the tolerance: ``ulps``, by ``ulps``; ``share``, by the
            element's number; ``none``: 0 if right, else infinite.
        capped: Whether errors of right results are limited to 1.
        bound: Reported largest allowed difference: ``ulps``, ``number``, the larger of both (``either``), ``none``.
    """

    bits: bool = False
    nan: bool = False
    ulps: float | None = None
    near: bool = False
    kind: bool = False
    signs: bool = False
    flush: bool = False
    factor: bool = False
    error: str = "none"
    capped: bool = False
    bound: str = "none"

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in vars(self).items() if value is not False and value is not None}


def rule_of(tolerance: Tolerance, expected: Array) -> JudgingRule:
    """Return the rule of a tolerance, for results of a type.

    Raises:
        NotSupported: If no rule expresses the tolerance.
    """
    is_float = expected.dtype.kind == "f"
    known: list[tuple[type[Tolerance] | tuple[type[Tolerance], ...], JudgingRule]] = [
        (Exact, JudgingRule(bits=True)),
        (CorrectlyRounded, JudgingRule(bits=True, nan=is_float, flush=is_float)),
        (GivenBound, JudgingRule(ulps=0, near=True, flush=True, error="share", bound="number")),
        (RoundedSum, JudgingRule(near=True)),
    ]
    if isinstance(tolerance, SameKind):
        signs = is_float and not tolerance.is_sum
        known.append((SameKind, JudgingRule(near=True, kind=is_float, signs=signs, flush=is_float, bound="number")))
    if isinstance(tolerance, LogarithmOfSum):
        rule = JudgingRule(ulps=tolerance.count, near=True, flush=True, error="ulps", capped=True, bound="either")
        known.append((LogarithmOfSum, rule))
    if not is_float:
        known.append(((Ulp, Accumulated), JudgingRule(ulps=0)))
    elif isinstance(tolerance, Ulp):
        error, factor = "ulps" if tolerance.count else "none", isinstance(tolerance, FlushedWithin)
        known.append((Ulp, JudgingRule(ulps=tolerance.count, flush=True, factor=factor, error=error, bound="ulps")))
    else:
        known.append((Accumulated, JudgingRule(ulps=0, near=True, flush=True, error="share", bound="number")))
    make_rule = next((rule for kind, rule in known if isinstance(tolerance, kind)), None)
    if make_rule is None:
        raise NotSupported(f"pages cannot judge by {type(tolerance).__name__}")
    return make_rule


def numbers_of(tolerance: Tolerance, rule: JudgingRule, expected: Array, magnitude: Bound | None) -> Bound | None:
    """Return the parameter of the rule for each element; None if it needs none."""
    if not rule.near:
        return None
    if isinstance(tolerance, LogarithmOfSum):
        return np.broadcast_to(tolerance.lost(magnitude), expected.shape)
    if isinstance(tolerance, RoundedSum):
        assert magnitude is not None
        return np.broadcast_to(np.where(magnitude < 1e-4, 1.0, 0.0), expected.shape)
    return np.broadcast_to(tolerance.bound(expected, magnitude), expected.shape).astype(np.float64)


MAX_BYTES: Final = 4 << 20
"""Maximum size of the tensors of a case, to limit downloads."""

MAX_PROGRAM_BYTES: Final = 64 << 10
"""Maximum size of the buffers of a program, whose contents do not compress."""

Entry: TypeAlias = dict[str, Any]
"""JSON content of an entry."""

Place: TypeAlias = tuple[int, int]
"""Index of a buffer, and an offset in bytes."""

Step: TypeAlias = tuple[Program, Sequence[Place | None], Sequence[Place | None]]
"""A program with the locations of its inputs and outputs."""


@dataclass
class Blob:
    """Bytes of a part; equal ones are stored once."""

    uploads: Uploads = field(default_factory=Uploads)

    def range(self, data: bytes) -> list[int]:
        """Return offset and size of bytes."""
        return [self.uploads.place(data), len(data)]

    def numbers(self, bound: Bound | None) -> float | list[int] | None:
        """Return the location of numbers; a number for all elements is returned itself."""
        if bound is None or not bound.size:
            return None
        first = float(bound.flat[0])
        if np.isfinite(first) and np.all(bound == first):
            return first
        return self.range(np.ascontiguousarray(bound, "<f8").tobytes())


def can_be_exported(suite: Suite, name: str) -> bool:
    """Return whether a page can run a case: an operator with small tensors, or a graph."""
    if isinstance(suite, AttributeSuite) and suite.is_rejected(name):
        return False
    if isinstance(suite, CaseSuite):
        desc = suite.case(name).desc
        tensors = [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]
        return sum(tensor.byte_size for tensor in tensors) <= MAX_BYTES
    if isinstance(suite, ProgramSuite):
        return sum(content.nbytes for content in suite.program(name).buffers) <= MAX_PROGRAM_BYTES
    return isinstance(suite, GraphSuite)


def case_entry(suite: Suite, name: str, target: Target, blob: Blob, info: AdapterInfo = WEB) -> Entry:
    """Return an exportable case; an unsupported one as its result.

    Args:
        suite: Its suite.
        name: Its name.
        target: Compile target, without immediates.
        blob: Target of bytes.
        info: Adapter named in messages.
    """
    if isinstance(suite, GraphSuite):
        return _graph_entry(name, target, blob, info)
    if isinstance(suite, ProgramSuite):
        return _program_entry(suite, name, target, blob)
    assert isinstance(suite, CaseSuite)
    with np.errstate(all="ignore"):  # special values cause these warnings
        case = suite.case(name)
        # Features that browsers lack are rejected by the device layer when it checks a description.
        rejected = _rejection(case, target, info)
        return rejected or _operator_entry(case, target, blob)


def _rejection(case: Case, target: Target, info: AdapterInfo) -> Entry | None:
    try:
        check_limits(compile_operator(case.desc, target.exact), target, info)
    except NotSupported as error:
        known = case.needs is not None
        message = str(error) if known else f"every adapter must run it, but: {error}"
        status = Status.NOT_SUPPORTED if known else Status.FAIL
        outcome = Outcome(case.name, status, str(case.tolerance), message=message, missing=case.needs or "")
        return {"name": case.name, "outcome": outcome.to_json()}
    return None


@dataclass
class _Tensors:
    """Tensors of a run, each in a buffer of its own; those without data are poisoned.

    Attributes:
        blob: Target of their data.
        document: Document with their buffers.
        entries: Data for the page.
    """

    blob: Blob
    document: Document = field(default_factory=Document)
    entries: list[Entry] = field(default_factory=list)

    def add(self, label: str, tensor: TensorDesc, data: bytes | None, offset: int = 0, tail: int = 0) -> Place:
        """Add a tensor at an offset in its buffer, with bytes after it."""
        buffer = self.document.buffer(label, offset + tensor.byte_size + tail)
        initial = {} if data is None else {"data": self.blob.range(data)}
        self.entries.append({"buffer": buffer, "offset": offset, "bytes": tensor.byte_size, "label": label, **initial})
        return buffer, offset

    def number(self, place: Place) -> int:
        """Return the index of the tensor at a location."""
        return [(entry["buffer"], entry["offset"]) for entry in self.entries].index(place)

    def run(self, *steps: Step) -> Entry:
        """Return the run of programs one after the other, with a shared temporary resource; initializations come
        first."""
        document, initialization, dispatches = self.document, list[Entry](), list[Entry]()
        size = max(program.temporary_size for program, _, _ in steps)
        temporary = document.buffer("temporary", size) if size else None
        for program, inputs, outputs in steps:
            once, then = add_program(document, self.blob.uploads, program, inputs, outputs, temporary=temporary)
            initialization += once
            dispatches += then
        return {
            "buffers": document.buffers,
            "uploads": document.uploads,
            "parameters": document.parameters,
            "shaders": document.shaders,
            "initialization": initialization,
            "dispatches": dispatches,
            "tensors": self.entries,
            "poisoned": [] if temporary is None else [temporary],
            "kernels": list(dict.fromkeys(text for program, _, _ in steps for text in program.summaries)),
        }


def _operator_entry(case: Case, target: Target, blob: Blob) -> Entry:
    """Return the case of an operator, which runs between sentinels, as in ``running.runner``."""
    program, arrays, tensors = compile_operator(case.desc, target.exact), case.inputs(), _Tensors(blob)

    def place(index: int, slot: TensorSlot, array: Array | None) -> Place | None:
        if slot.tensor is None:
            return None
        data = None if array is None else slot.tensor.encode(array, POISON).tobytes()
        return tensors.add(slot.label, slot.tensor, data, tensor_offset(case, index), TAIL)

    inputs = [place(index, slot, arrays[index]) for index, slot in enumerate(case.desc.inputs)]
    shared = None if case.in_place is None else inputs[case.in_place]
    outputs = [
        shared if shared is not None and index == 0 else place(len(arrays) + index, slot, None)
        for index, slot in enumerate(case.desc.outputs)
    ]
    judged = [
        {**_judged(case, arrays, index, slot.tensor, blob), "label": slot.label, "tensor": tensors.number(at)}
        for index, (slot, at) in enumerate(zip(case.desc.outputs, outputs, strict=True))
        if slot.tensor is not None and at is not None
    ]
    seen = [
        {"tensor": tensors.number(at), **described(slot.tensor)}
        for slot, at in zip(case.desc.inputs, inputs, strict=True)
        if slot.tensor is not None and at is not None
    ]
    run = {**tensors.run((program, inputs, outputs)), "guarded": True, "inputs": seen, "outputs": judged}
    digests = {} if case.alternatives is None else {"digest": ""}  # the order of invocations may decide
    return {"name": case.name, "tolerance": str(case.tolerance), **digests, "runs": [run]}


def _judged(case: Case, arrays: Arrays, index: int, tensor: TensorDesc, blob: Blob) -> Entry:
    """Return an output of a case with its expected result."""
    outcomes = [outcome[index] for outcome in case.outcomes(arrays)]
    return {
        **described(tensor),
        **_outcomes(case.tolerance, outcomes, case.magnitudes(arrays)[index], blob),
    }


def _outcomes(tolerance: Tolerance, outcomes: Sequence[Array], magnitude: Bound | None, blob: Blob) -> Entry:
    rule = rule_of(tolerance, outcomes[0])
    entries: list[Entry] = []
    for outcome in outcomes:
        numbers = blob.numbers(numbers_of(tolerance, rule, outcome, magnitude))
        known = {} if numbers is None else {"numbers": numbers}
        entry = {"expected": blob.range(np.ascontiguousarray(outcome).tobytes()), **known}
        if entry not in entries:
            entries.append(entry)
    return {"rule": rule.to_json(), "outcomes": entries}


def _graph_entry(name: str, target: Target, blob: Blob, info: AdapterInfo) -> Entry:
    """Return the case of a graph: a run with all passes, and one with none."""
    due = GraphExpectation.of(name)
    network = resolve(due.example.graph)
    runs = []
    for how, disabled in (("fused", ()), ("compiled without passes", PASSES)):
        program = compile_network(network, target.exact, disabled).program
        check_limits(program, target, info)
        tensors = _Tensors(blob)
        inputs = [
            None
            if tensor is None
            else tensors.add(f"graph input {index}", tensor, _repeated(content, tensor.byte_size))
            for index, (tensor, content) in enumerate(zip(network.inputs, due.example.inputs, strict=True))
        ]
        outputs = [
            tensors.add(f"graph output {index}", tensor, None) for index, tensor in enumerate(network.output_tensors)
        ]
        known = zip(network.output_tensors, outputs, due.outputs, due.bounds, strict=True)
        judged = [
            {
                **described(tensor),
                **_outcomes(WITHIN, [array], bounds, blob),
                "label": f"graph output {index}, {how}",
                "tensor": tensors.number(place),
            }
            for index, (tensor, place, array, bounds) in enumerate(known)
        ]
        runs.append({**tensors.run((program, inputs, outputs)), "outputs": judged})
    return {"name": name, "tolerance": str(WITHIN), "digest": digest(due.outputs), "runs": runs}


def _program_entry(suite: ProgramSuite, name: str, target: Target, blob: Blob) -> Entry:
    """Return the case of dispatches over buffers, all of which are compared with the reference."""
    program_case, tensors = suite.program(name), _Tensors(blob)
    target = target.exact.with_policies(deterministic=program_case.deterministic)
    compiled = {desc: compile_operator(desc, target) for desc in program_case.descs}
    for index, content in enumerate(program_case.buffers):
        desc = TensorDesc(DataType.from_numpy(content.dtype), content.shape)
        tensors.add(f"buffer {index}", desc, content.tobytes())

    def places(bound: Sequence[LocatedTensor | None]) -> list[Place | None]:
        return [
            None if binding is None else (tensors.entries[binding[1].buffer]["buffer"], binding[1].offset)
            for binding in bound
        ]

    run = tensors.run(
        *((compiled[step.desc], places(step.sources), places(step.targets)) for step in program_case.order)
    )
    judged = [
        {
            **described(TensorDesc(DataType.from_numpy(array.dtype), array.shape)),
            **_outcomes(EQUAL, [array], None, blob),
            "label": f"buffer {index}",
            "tensor": index,
        }
        for index, array in enumerate(expected(program_case))
    ]
    return {"name": name, "tolerance": str(EQUAL), "runs": [{**run, "outputs": judged}]}


def _repeated(content: Array, size: int) -> bytes:
    return np.resize(content.view(np.uint8), size).tobytes()


def described(tensor: TensorDesc) -> Entry:
    """Return the layout of a tensor for the page."""
    strides = {} if tensor.is_packed else {"strides": list(tensor.element_strides)}
    return {"type": tensor.data_type.name, "sizes": list(tensor.sizes), "bytes": tensor.byte_size, **strides}
