"""Elements that kernels read one by one although sizes allow units, so that all sizes share these kernels.

Units of four need sizes that four divides. If sizes vary, one shape would compile a kernel of units for a step, and
another shape one of single elements. Steps of little work read single elements for all sizes instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dmlgpu.compiler.sizes.arithmetic import decided
from dmlgpu.compiler.target import Target


@dataclass(frozen=True)
class Few:
    """Numbers of elements that a kernel of sizes that vary reads one by one.

    Attributes:
        elements: All elements, or multiplications; ``GROWTH`` times as many if the kernel exists. With more, it would
            lose more time than compiling another kernel takes.
        run: Elements side by side.
        longest: The same if the kernel exists.
    """

    elements: int
    run: int = 64
    longest: int = 256


GROWTH: Final = 4

TINY: Final = 1 << 13
"""Elements that are read one by one however long their runs are."""

MAPS, IMAGES = Few(1 << 18), Few(1 << 18, 24, 48)
"""Of maps, and of rows of images, of which windows share what they read."""

ONCE, REDUCED = Few(1 << 20), Few(1 << 20)
"""Of maps that run once, and of reductions, whose runs may have any length. On llvmpipe, means of 921,600 elements take
2 % longer one by one."""

LOOPED: Final = Few(1 << 18)
"""Items of maps of which invocations take several in a loop. On llvmpipe, such kernels compile in a quarter of the
time, and activations of 262,144 elements take up to 18 % longer."""

MULTIPLIED, READ_ONCE = Few(1 << 24), Few(1 << 21)
"""Multiplications of a product whose activations are read one by one; with more than the second number, they are first
laid out in units. Measured on llvmpipe: laying out 480 x 35 elements for 480 rows saves a tenth of the time."""


def reads_single(run: int, elements: int, few: Few, target: Target) -> bool:
    """Return whether a kernel reads single elements, as all sizes allow: if these vary, runs are short and elements
    few.

    Args:
        run: Elements side by side; 1 if that does not matter.
        elements: All elements.
        few: How many are few.
        target: The compile target.
    """
    varies = target.policies.varying and not target.vectorizes_loads
    return varies and decided(_is_short, few, run, elements, accepts=_serves)


def _is_short(few: Few, run: int, elements: int) -> bool:
    return (run <= few.run and elements <= few.elements) or elements <= TINY


def _serves(is_short: bool, few: Few, run: int, elements: int) -> bool:
    """Return whether a kernel of single elements, or of units, is fast enough."""
    return not is_short or (run <= few.longest and elements <= GROWTH * few.elements) or elements <= GROWTH * TINY
