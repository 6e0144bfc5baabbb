"""Fused activations: one more element-wise body on what an operator computes."""

from __future__ import annotations

from typing import Any, Protocol, cast

from dmlgpu.operator_desc import OperatorDesc
from dmlgpu.operators.lowering import lowering
from dmlgpu.plan import Body, Source


class Activation(Protocol):
    """What the lowering of an operator offers that others may fuse."""

    @classmethod
    def fused(cls, desc: Any, source: Source) -> Body:
        """The operator on the elements of a source, in the source's type; ``desc`` has no tensors."""


def activated(body: Body, activation: OperatorDesc | None) -> Body:
    """What an operator computes, with an activation after it, if there is one.

    The result is that of two operators in turn: the body's value is rounded to its type before the activation.
    """
    if activation is None:
        return body
    return cast(Activation, lowering(activation.operator)).fused(activation, body)
