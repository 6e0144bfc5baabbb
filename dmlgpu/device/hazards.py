"""Which byte ranges of one dispatch may meet (DirectML: IDMLBindingTable::BindInputs, hazards)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from dmlgpu.errors import BindingError
from dmlgpu.tensor import TensorDesc


@dataclass(frozen=True)
class Area:
    """The bytes that a dispatch reads or writes through one binding.

    Attributes:
        label: as messages name the binding.
        memory_id: identity of the memory; two buffers may wrap the same.
        begin, end: byte range.
        desc: the tensor that lies there; None for a temporary or persistent resource.
    """

    label: str
    memory_id: int
    begin: int
    end: int
    desc: TensorDesc | None = None

    def meets(self, other: Area) -> bool:
        """Whether a byte belongs to both."""
        return self.memory_id == other.memory_id and self.begin < other.end and other.begin < self.end

    def __str__(self) -> str:
        return f"{self.label} at bytes {self.begin} to {self.end}"


def check_execution(
    operator: str,
    inputs: Iterable[Area],
    outputs: Iterable[Area],
    *,
    temporary: Area | None,
    persistent: Area | None,
    in_place: bool,
) -> None:
    """Check the ranges of one execution.

    Raises:
        BindingError: ranges meet that may not.
    """
    inputs, outputs = tuple(inputs), tuple(outputs)
    for output in outputs:
        for source in inputs:
            if source.meets(output):
                _check_in_place(operator, source, output, in_place)
    check_disjoint(operator, outputs, "two outputs may not overlap")
    if persistent is not None:
        for output in outputs:
            _check_apart(operator, persistent, output, "the persistent resource is read-only at execution")
    if temporary is not None:
        for other in (*inputs, *outputs, *(() if persistent is None else (persistent,))):
            _check_apart(operator, temporary, other, "the temporary resource may not overlap anything")


def check_initialization(initializer: str, inputs: Iterable[Area], outputs: Iterable[Area]) -> None:
    """Check the ranges of one initialisation.

    Raises:
        BindingError: an input lies in the same buffer as an output, or two outputs overlap.
    """
    inputs, outputs = tuple(inputs), tuple(outputs)
    for source, output in itertools.product(inputs, outputs):
        if source.memory_id == output.memory_id:
            raise BindingError(
                f"{initializer}: {source.label} and {output.label} lie in one buffer; "
                "at initialisation an input may not share a buffer with an output"
            )
    check_disjoint(initializer, outputs, "two outputs may not overlap")


def check_disjoint(operator: str, areas: tuple[Area, ...], why: str) -> None:
    """Check that no two of several ranges meet.

    Raises:
        BindingError: two ranges meet.
    """
    for first, second in itertools.combinations(areas, 2):
        _check_apart(operator, first, second, why)


def _check_apart(operator: str, first: Area, second: Area, why: str) -> None:
    if first.meets(second):
        raise BindingError(f"{operator}: {first} overlaps {second}; {why}")


def _check_in_place(operator: str, source: Area, output: Area, in_place: bool) -> None:
    overlap = f"{operator}: {output} overlaps {source}; "
    if not in_place:
        raise BindingError(f"{overlap}the operator does not support in-place execution")
    if (source.begin, source.end) != (output.begin, output.end):
        raise BindingError(f"{overlap}in-place execution needs identical ranges")
    assert source.desc is not None and output.desc is not None
    ours, theirs = source.desc, output.desc
    for what, given, expected in (
        ("data types", ours.data_type.name, theirs.data_type.name),
        ("sizes", ours.sizes, theirs.sizes),
        ("strides", ours.element_strides, theirs.element_strides),
    ):
        if given != expected:
            raise BindingError(f"{overlap}in-place execution needs equal {what}, got {given} and {expected}")
