"""Copies bind only what they touch: from near the first element of each tensor on.

Views that differ in nothing but where they lie then have kernels of equal text, compiled once, and a piece of a tensor
that is too large to be bound at once can be copied all the same.
"""

from __future__ import annotations

from dataclasses import replace

from dmlgpu.compiler.plan import Body, Tensor
from dmlgpu.compiler.rewrites.sources import is_identity

ALIGNMENT = 16
"""Bytes between the places where a binding may start: those of a tensor's, so that every unit stays aligned."""


def near(tensor: Tensor) -> Tensor:
    """Return the same elements, in a binding that starts less than 16 bytes before the first of them in memory."""
    first = tensor.offset + sum(
        (size - 1) * stride for size, stride in zip(tensor.sizes, tensor.strides, strict=True) if stride < 0
    )
    skipped = first // (8 * ALIGNMENT // tensor.unit_bits) * ALIGNMENT
    binding = replace(tensor.binding, offset=tensor.binding.offset + skipped)
    return replace(tensor, binding=binding, offset=tensor.offset - skipped * 8 // tensor.unit_bits)


def near_copy(body: Body, output: Tensor) -> tuple[Body, Tensor]:
    """Return a plain copy from one tensor to another with both bound near their first elements; other trees as they
    are."""
    if not is_identity(body) or not isinstance(source := body.inputs[0][1], Tensor):
        return body, output
    if source.binding == output.binding:
        return body, output
    return body.over([near(source)]), near(output)
