"""Graphs of operators: description, rules, passes, and compilation into one program."""

from dmlgpu.compiler.graph.description import (
    ConstantNode,
    GraphDesc,
    InputEdge,
    IntermediateEdge,
    OperatorNode,
    OutputEdge,
)

__all__ = ["ConstantNode", "GraphDesc", "InputEdge", "IntermediateEdge", "OperatorNode", "OutputEdge"]
