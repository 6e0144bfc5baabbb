"""What recomputing a value costs: passes never compute twice what is dear."""

from __future__ import annotations

from dmlgpu.compiler.plan import Body, Source
from dmlgpu.compiler.rewrites.sources import IDENTITY, is_elementwise, nodes

CHEAP = frozenset(
    {
        IDENTITY,
        "elementwise/scale_bias",
        "elementwise/cast",
        "quantization/dequantize",
        "quantization/no_zero_point",
        *(
            f"elementwise/element_wise_{name}"
            for name in (
                *("abs", "add", "bit_and", "bit_not", "bit_or", "bit_xor", "bit_shift_left", "bit_shift_right"),
                *("ceil", "clip1", "floor", "if", "is_infinity", "is_nan", "max", "mean", "min", "multiply", "negate"),
                *("logical_and", "logical_or", "logical_xor", "logical_not", "logical_equals", "logical_greater_than"),
                *("logical_greater_than_or_equal", "logical_less_than", "logical_less_than_or_equal"),
                *("round", "sign", "subtract", "threshold", "difference_square", "square"),
            )
        ),
        *(
            f"activation/activation_{name}"
            for name in ("relu", "leaky_relu", "parameterized_relu", "thresholded_relu", "shrink", "relu_grad")
        ),
    }
)
"""Bodies of a few instructions; all others hold a division, a transcendental function or a loop."""

MOST_NODES = 48
"""Bodies, at most, in one fused tree: text grows no further, and compilers of drivers stay quick."""


def is_cheap(root: Source) -> bool:
    """Return whether every body of a tree takes a few instructions."""
    return all(not isinstance(node, Body) or node.file in CHEAP for node in nodes(root))


def is_small(root: Source) -> bool:
    """Return whether a tree has no more bodies than one kernel may have."""
    return sum(isinstance(node, Body) for node in nodes(root)) <= MOST_NODES


def is_fusable(root: Source) -> bool:
    """Return whether a tree may become part of another: its bodies keep their coordinates and are not too many."""
    return is_elementwise(root) and is_small(root)
