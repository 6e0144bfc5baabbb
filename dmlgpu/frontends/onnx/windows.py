"""What convolutions and poolings share: kernel sizes, strides, dilations and padding of a node."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgpu.frontends.onnx.node import Node, reshaped
from dmlgpu.frontends.onnx.values import Shape
from dmlgpu.tensors.graphs.expression import Expression


@dataclass(frozen=True)
class Window:
    """Windows over spatial dimensions, one number each.

    Attributes:
        sizes: of the kernel.
        strides: from one window to the next.
        dilations: between elements of a window.
        start, end: padding before and behind.
    """

    sizes: Shape
    strides: Shape
    dilations: Shape
    start: Shape
    end: Shape

    def outputs(self, spatial: Shape, ceil: bool = False) -> Shape:
        """Return how many windows there are along each dimension."""
        counts = []
        for size, kernel, stride, dilation, before, behind in zip(
            spatial, self.sizes, self.strides, self.dilations, self.start, self.end, strict=True
        ):
            room = size + before + behind - (dilation * (kernel - 1) + 1)
            count = (-(-room // stride) if ceil else room // stride) + 1
            if ceil and (count - 1) * stride >= size + before:
                count -= 1  # a window that would begin in the padding behind
            counts.append(count)
        return tuple(counts)

    def reaching(self, spatial: Shape, counts: Shape) -> Window:
        """Return the windows with padding behind so that there are so many."""
        end = tuple(
            max((count - 1) * stride + dilation * (kernel - 1) + 1 - size - before, 0)
            for count, stride, dilation, kernel, size, before in zip(
                counts, self.strides, self.dilations, self.sizes, spatial, self.start, strict=True
            )
        )
        return replace(self, end=end)

    def with_leading(self, count: int) -> Window:
        """Return the windows with dimensions of size 1 before the others."""
        ones, zeros = (1,) * count, (0,) * count
        return Window(
            ones + self.sizes, ones + self.strides, ones + self.dilations, zeros + self.start, zeros + self.end
        )


def window_of(node: Node, sizes: Shape, spatial: Shape) -> Window:
    """Return the windows that a node's attributes describe over an input's spatial sizes."""
    rank = len(sizes)
    strides = node.integers("strides") or (1,) * rank
    dilations = node.integers("dilations") or (1,) * rank
    pads = node.integers("pads") or (0,) * (2 * rank)
    if not (len(strides) == len(dilations) == rank == len(spatial) and len(pads) == 2 * rank):
        raise node.refusal(f"kernel_shape, strides, dilations and pads must be of {len(spatial)} dimensions")
    if any(one < 1 for one in (*strides, *dilations, *sizes)):
        raise node.refusal("kernel_shape, strides and dilations must be at least 1")
    mode = node.text("auto_pad", "NOTSET")
    start, end = pads[:rank], pads[rank:]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
            for size, stride, dilation, kernel in zip(spatial, strides, dilations, sizes, strict=True)
        ]
        small, large = tuple(one // 2 for one in totals), tuple(one - one // 2 for one in totals)
        start, end = (small, large) if mode == "SAME_UPPER" else (large, small)
    elif mode == "VALID":
        start = end = (0,) * rank
    if any(one < 0 for one in (*start, *end)):
        raise node.refusal("negative padding is not supported")
    return Window(sizes, strides, dilations, start, end)


def with_dimensions(x: Expression, rank: int) -> Expression:
    """Return {N, C, ...} with spatial dimensions of size 1 put before the others, up to a rank."""
    return reshaped(x, (*x.sizes[:2], *(1,) * (rank - len(x.sizes)), *x.sizes[2:]))
