"""Fused activations: one more element-wise body on what an operator computes."""

from __future__ import annotations

from typing import Any, Protocol, cast

from dmlgpu.catalog.enums import FeatureLevel
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidDescription
from dmlgpu.compiler.operators.lowering import invalid, lowering
from dmlgpu.compiler.plan import Body, Source


class Activation(Protocol):
    """What the lowering of an operator offers that others may fuse."""

    @classmethod
    def fused(cls, desc: Any, source: Source) -> Body:
        """Return the activation of a source, in its type; ``desc`` has no tensors."""


def activated(body: Body, activation: OperatorDesc | None) -> Body:
    """Return a body with an activation after it, if there is one.

    The result is that of two operators in turn: the body's value is rounded to its type before the activation.
    """
    if activation is None:
        return body
    return cast(Activation, lowering(activation.operator)).fused(activation, body)


def check_activation_level(desc: Any, level: FeatureLevel) -> None:
    """Raise InvalidDescription for attribute values of a fused activation that only later levels allow."""
    inner = desc.fused_activation
    if inner is not None:
        try:
            lowering(inner.operator).check_level(inner, level)
        except InvalidDescription as error:
            raise invalid(desc, f"fused_activation.{error.field}", error.reason) from None
