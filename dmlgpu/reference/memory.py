"""What the reference may take of the host's memory, asked before it is taken."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import OutOfMemory

BYTES_PER_ELEMENT = 64
"""What functions take, at most, for each element of their tensors: wide copies, offsets, places. Functions that need
more ask for it with ``claim``."""

_allowed: ContextVar[tuple[str, int | None]] = ContextVar("allowed", default=("reference", None))


@contextlib.contextmanager
def allowing(operator: str, budget: int | None) -> Iterator[None]:
    """Let an operator's function take so many bytes at a time, within the block; None for any number."""
    token = _allowed.set((operator, budget))
    try:
        yield
    finally:
        _allowed.reset(token)


def claim(what: str, *sizes: int, each: int = 8) -> None:
    """Raise OutOfMemory where an array does not fit into what the operator may take.

    Args:
        what: what the array holds, for the message.
        sizes: of the array.
        each: bytes for every element of it, with all that is computed from it.
    """
    operator, budget = _allowed.get()
    needed = each * math.prod(sizes)
    if budget is not None and needed > budget:
        raise OutOfMemory(f"{operator}: the NumPy reference needs {needed:,} bytes for {what}, but may take {budget:,}")


def check_memory(desc: OperatorDesc, budget: int | None) -> None:
    """Raise OutOfMemory where computing an operator takes more than so many bytes, as far as its description tells."""
    with allowing(desc.operator, budget):
        claim_tensors(desc)


def claim_tensors(desc: OperatorDesc) -> None:
    """Raise OutOfMemory where a few copies of all tensors do not fit into what the operator may take."""
    tensors = [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]
    claim("copies of its tensors", sum(tensor.element_count for tensor in tensors), each=BYTES_PER_ELEMENT)
