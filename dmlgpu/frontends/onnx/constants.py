"""Numbers beside tensors: constants of one element, repeated by strides."""

from __future__ import annotations

import numpy as np

from dmlgpu.tensors.graphs.expression import Expression, Number


def same(found: Expression, number: Number) -> Expression:
    """Return a number as a tensor of the type and sizes of another, which has at least 8 bits to an element."""
    return found.graph.constant(np.array([number], found.data_type.numpy)).broadcast_to(found.sizes)
