"""Element-wise arithmetic. Integers wrap around."""

from __future__ import annotations

from dmlgpu import descs
from dmlgpu.operators.elementwise import Binary


class ElementWiseSubtract(Binary):
    """a - b"""

    desc = descs.ElementWiseSubtract
    shaders = ("elementwise/element_wise_subtract",)


class ElementWiseMultiply(Binary):
    """a * b"""

    desc = descs.ElementWiseMultiply
    shaders = ("elementwise/element_wise_multiply",)


class ElementWiseDifferenceSquare(Binary):
    """(a - b) * (a - b)"""

    desc = descs.ElementWiseDifferenceSquare
    shaders = ("elementwise/element_wise_difference_square",)
