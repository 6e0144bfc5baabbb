"""Doubles: DirectML moves and casts them, and computes with none."""

from __future__ import annotations

from collections.abc import Iterable

from dmlgpu.catalog.enums import DataType
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.values import Value

_MOVING = frozenset(
    (
        *("BitCast", "Cast", "CastLike", "Compress", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand"),
        *("EyeLike", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape", "Scatter"),
        *("ScatterElements", "ScatterND", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
        *("Transpose", "Trilu", "Unsqueeze", "Where"),
    )
)
"""Operators whose results are elements of their inputs, as they are or cast, or constants."""


def check_inputs(node: Node) -> None:
    """Raise NotSupported where a node computes with doubles; nothing is rounded to 32 bits in silence."""
    _check(node, node.inputs, "input")


def check_outputs(node: Node, results: Iterable[Value | None]) -> None:
    """Raise NotSupported where a node makes doubles of what it computes."""
    _check(node, results, "output")


def _check(node: Node, values: Iterable[Value | None], what: str) -> None:
    if node.proto.domain in ("", "ai.onnx") and node.op_type in _MOVING:
        return
    for number, value in enumerate(values):
        if value is not None and value.data_type is DataType.FLOAT64:
            raise node.refusal(
                f"doubles are moved and cast, but nothing computes with them, got float64 in {what} {number}"
            )
