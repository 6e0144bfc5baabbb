"""Whether what is measured is right: results beside the reference's. ``dmlgpu test`` judges more closely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu import reference
from dmlgpu.bench.workload import Array, Arrays, Workload
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.samples import SAMPLES, TensorMaker
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.registry import case_by_name
from dmlgpu.conformance.cases.tolerance import Bound, GivenBound
from dmlgpu.conformance.running.comparison import Verdict, compare
from dmlgpu.conformance.running.runner import nearest

MOST_OPERATIONS = 2e10
"""Of what the reference computes again: it takes about ten seconds for them."""

SLICES: Mapping[str, tuple[str, int, int, int]] = {
    "GEMM": ("m", 0, -2, -2),
    "MATRIX_MULTIPLY_INTEGER": ("m", 0, -2, -2),
    "CONVOLUTION": ("filters", 1, 0, 1),
    "MULTIHEAD_ATTENTION": ("queries", 0, 1, 1),
}
"""Of operators too large for that, along what a part of the output depends on a part of one input: the size's name, the
input's number and axis, the output's axis."""

SHARES = {2: 2e-2, 4: 1e-4, 8: 1e-9}
"""How far floats of so many bytes may lie from the reference's, as a share of the largest one of the result: sums of
whatever length, multiplied in whatever way, stay well below, and what is computed wrong does not."""


@dataclass(frozen=True)
class Check:
    """What came of comparing results with the reference.

    Attributes:
        status: ``right``, ``wrong``, or ``unchecked``.
        text: by how much, on how many elements, or why nothing was compared.
    """

    status: str
    text: str = ""


def check(workload: Workload, inputs: Arrays, outputs: Sequence[Array], operations: float) -> Check:
    """Compare the outputs of an operator with what the reference computes.

    Args:
        workload: with the description of an operator.
        inputs: what it was given.
        outputs: those that are there.
        operations: about how many arithmetic operations it computes.
    """
    desc = workload.desc
    assert isinstance(desc, OperatorDesc)
    with np.errstate(all="ignore"):
        if workload.is_map:
            case = case_by_name(workload.case)
            place = np.linspace(0, outputs[0].size - 1, case.desc.outputs[0].tensor.element_count).astype(np.int64)  # type: ignore[union-attr]
            sampled = tuple(None if array is None else _at(array, place, case) for array in inputs)
            return verdict_of(_by_case(case, sampled, [_at(output, place, case) for output in outputs]))
        if operations > MOST_OPERATIONS:
            return _check_part(workload, inputs, outputs, operations)
        if workload.case:
            return verdict_of(_by_case(case_by_name(workload.case), inputs, outputs))
        return verdict_of(compare_all(expected_outputs(desc, inputs), outputs))


def expected_outputs(desc: OperatorDesc, inputs: Arrays) -> list[Array]:
    """Return what the reference computes of the outputs that a description has."""
    computed = reference.evaluate(desc, inputs)
    pairs = zip(desc.outputs, computed, strict=True)
    return [array for slot, array in pairs if slot.tensor is not None and array is not None]


def _check_part(workload: Workload, inputs: Arrays, outputs: Sequence[Array], operations: float) -> Check:
    """Compare a part of the output of a product, spread over all of it, with what the reference computes of it."""
    if workload.operator not in SLICES or workload.operator not in SAMPLES or workload.sizes.get("groups", 1) > 1:
        return Check("unchecked", "the reference would take too long")
    name, number, axis, output_axis = SLICES[workload.operator]
    size = workload.sizes[name]
    count = int(size * MOST_OPERATIONS / operations)
    if not count:
        return Check("unchecked", "the reference would take too long")
    place = np.linspace(0, size - 1, count).astype(np.int64)
    maker = TensorMaker(DataType[workload.data_type.upper()])
    desc = SAMPLES[workload.operator].build({**workload.sizes, name: count}, maker)
    part = [
        None if array is None else array.take(place, axis) if at == number else array for at, array in enumerate(inputs)
    ]
    expected = reference.evaluate(desc, tuple(part))
    result = verdict_of(compare_all(expected[:1], [outputs[0].take(place, output_axis)]))
    return Check(result.status, f"{result.text}; of {size:,} {name}, {count:,} were compared")


def _at(array: Array, place: Any, case: Case) -> Array:
    """Elements of a map's tensor, in the sizes of its case."""
    tensor = case.desc.outputs[0].tensor
    assert tensor is not None
    return np.ascontiguousarray(array).reshape(-1)[place].reshape(tensor.sizes)


def _by_case(case: Case, inputs: Arrays, outputs: Sequence[Array]) -> list[Verdict]:
    """A verdict per output, by the tolerance of the case."""
    outcomes, magnitudes = case.outcomes(inputs), case.magnitudes(inputs)
    there = [number for number, slot in enumerate(case.desc.outputs) if slot.tensor is not None]
    verdicts = []
    for number, got in zip(there, outputs, strict=True):
        expected = nearest([outcome[number] for outcome in outcomes], got, case.tolerance, magnitudes[number])
        verdicts.append(compare(expected, got, case.tolerance, magnitudes[number]))
    return verdicts


def compare_all(expected: Sequence[Array], outputs: Sequence[Array]) -> list[Verdict]:
    """A verdict per output, by ``SHARES``; integers must be equal."""
    return [
        compare(reference_array, got, GivenBound(), _bound(reference_array))
        for reference_array, got in zip(expected, outputs, strict=True)
    ]


def _bound(expected: Array) -> Bound:
    if expected.dtype.kind != "f":
        return np.zeros(expected.shape)
    finite = expected[np.isfinite(expected)]
    largest = float(np.abs(finite).max(initial=0))
    return np.full(expected.shape, SHARES[expected.dtype.itemsize] * largest)


def verdict_of(verdicts: Sequence[Verdict]) -> Check:
    """What came of comparing all outputs: the worst of them, or ``unchecked`` where there is none."""
    if not verdicts:
        return Check("unchecked", "there is no output")
    worst = max(verdicts, key=lambda verdict: (not verdict.ok, verdict.of_bound))
    return Check("right" if worst.ok else "wrong", str(worst))
