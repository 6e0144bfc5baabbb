"""Nodes and small graphs of ONNX models, drawn at random: a generator per operator, in modules by topic."""

from tests.fuzz.onnx_nodes import (
    attention,
    control,
    elementwise,
    indexing,
    layout,
    matrix,
    normalization,
    quantization,
    recurrent,
    reductions,
    signals,
    windows,
)

__all__ = [
    "attention",
    "control",
    "elementwise",
    "indexing",
    "layout",
    "matrix",
    "normalization",
    "quantization",
    "recurrent",
    "reductions",
    "signals",
    "windows",
]
