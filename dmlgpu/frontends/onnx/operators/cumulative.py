"""CumProd: products along an axis."""

from __future__ import annotations

from dmlgpu.catalog.enums import AxisDirection
from dmlgpu.frontends.onnx.node import Node
from dmlgpu.frontends.onnx.registry import operator
from dmlgpu.frontends.onnx.values import Value
from dmlgpu.tensors.graphs import functions


@operator("CumProd", since=26)
def cumulative_product(node: Node) -> Value:
    """Multiply along an axis, up to each element."""
    found = functions.cumulative_product(
        node.tensor(0),
        axis=node.axis(node.host_integer(1), len(node.shape(0))),
        axis_direction=AxisDirection.DECREASING if node.flag("reverse") else AxisDirection.INCREASING,
        has_exclusive_product=node.flag("exclusive"),
    )
    return node.valued(found, node.shape(0))
