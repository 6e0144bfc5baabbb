"""Which byte ranges of one dispatch may overlap (DirectML: IDMLBindingTable::BindInputs, hazards)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

from dmlgpu.common.errors import BindingError
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.executor import Range
from dmlgpu.runtime.operator import Port

Bound: TypeAlias = tuple[Port, Range[Buffer]]
"""A tensor or resource and the bytes that a dispatch reads or writes for it."""

TEMPORARY, PERSISTENT = Port("the temporary resource", None), Port("the persistent resource", None)


def check_execution(
    operator: str,
    inputs: Sequence[Bound],
    outputs: Sequence[Bound],
    *,
    temporary: Range[Buffer] | None,
    persistent: Range[Buffer] | None,
    in_place: bool,
) -> None:
    """Check the ranges of one execution.

    Raises:
        BindingError: ranges overlap that may not.
    """
    for output, source in itertools.product(outputs, inputs):
        if _overlap(source, output):
            _check_in_place(operator, source, output, in_place)
    _check_outputs(operator, outputs)
    kept = () if persistent is None else ((PERSISTENT, persistent),)
    for first, second in itertools.product(kept, outputs):
        _check_apart(operator, first, second, "the persistent resource is read-only at execution")
    if temporary is not None:
        for other in (*inputs, *outputs, *kept):
            _check_apart(operator, (TEMPORARY, temporary), other, "the temporary resource may not overlap anything")


def check_initialization(initializer: str, inputs: Sequence[Bound], outputs: Sequence[Bound]) -> None:
    """Check the ranges of one initialisation.

    Raises:
        BindingError: an input lies in the same buffer as an output, or two outputs overlap.
    """
    for (source, read), (output, written) in itertools.product(inputs, outputs):
        if read.buffer.identity is written.buffer.identity:
            raise BindingError(
                f"{initializer}: {source.label} and {output.label} lie in one buffer; "
                "at initialisation an input may not share a buffer with an output"
            )
    _check_outputs(initializer, outputs)


def _overlap(first: Bound, second: Bound) -> bool:
    (_, one), (_, other) = first, second
    return one.buffer.identity is other.buffer.identity and one.offset < other.end and other.offset < one.end


def _check_outputs(operator: str, outputs: Sequence[Bound]) -> None:
    for first, second in itertools.combinations(outputs, 2):
        _check_apart(operator, first, second, "two outputs may not overlap")


def _check_apart(operator: str, first: Bound, second: Bound, why: str) -> None:
    if _overlap(first, second):
        raise BindingError(f"{operator}: {_text(first)} overlaps {_text(second)}; {why}")


def _check_in_place(operator: str, source: Bound, output: Bound, in_place: bool) -> None:
    overlap = f"{operator}: {_text(output)} overlaps {_text(source)}; "
    if not in_place:
        raise BindingError(f"{overlap}the operator does not support in-place execution")
    (read, ours), (written, theirs) = source, output
    if (ours.offset, ours.size) != (theirs.offset, theirs.size):
        raise BindingError(f"{overlap}in-place execution needs identical ranges")
    assert read.desc is not None and written.desc is not None
    for what, given, expected in (
        ("data types", read.desc.data_type.name, written.desc.data_type.name),
        ("sizes", read.desc.sizes, written.desc.sizes),
        ("strides", read.desc.element_strides, written.desc.element_strides),
    ):
        if given != expected:
            raise BindingError(f"{overlap}in-place execution needs equal {what}, got {given} and {expected}")


def _text(bound: Bound) -> str:
    port, where = bound
    return f"{port.label} at bytes {where.offset} to {where.end}"
