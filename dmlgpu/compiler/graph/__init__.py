"""Graphs of operators: what they are, the rules they keep, and how they become one program."""

from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
)

__all__ = ["ConstantNode", "GraphDesc", "InputEdge", "IntermediateEdge", "OperatorNode", "OutputEdge"]
