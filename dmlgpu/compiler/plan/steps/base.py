"""What all steps share, maps, steps that repeat, and plans."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.compiler.plan.sources import Body
from dmlgpu.compiler.plan.tensors import Binding, Tensor


@dataclass(frozen=True)
class Step:
    """Something that is computed; each kind is a subclass.

    Attributes:
        label: what it is for, where its kind does not say it; for profilers and messages.
    """

    label: str


@dataclass(frozen=True)
class Map(Step):
    """Computes every element of the output by itself.

    Attributes:
        keeps_neighbours: the output is part of a tensor whose other elements belong to other steps: not a bit beside
            its own elements changes.
    """

    body: Body
    output: Tensor
    keeps_neighbours: bool = False


MOST_KERNELS = 1 << 13
"""Kernels of one execution: each is bound by itself, which takes about a tenth of a millisecond."""


@dataclass(frozen=True)
class Repeat(Step):
    """Executes steps in turn, again and again, on resources that move: all turns share the steps' kernels.

    Attributes:
        steps: of the first turn.
        turns: how often they are executed.
        advances: bytes, a multiple of 16, by which what is bound of a resource moves from turn to turn; those that are
            not named stay.
    """

    steps: tuple[Step, ...]
    turns: int
    advances: tuple[tuple[Binding, int], ...]


@dataclass(frozen=True)
class Plan:
    """What an operator computes.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        steps: executed at each dispatch, in order.
        initialization: executed once, when the operator is initialised: they read inputs that are OWNED_BY_DML and data
            of the plan, and write persistent tensors, where ``steps`` find them.
    """

    operator: str
    steps: tuple[Step, ...]
    initialization: tuple[Step, ...] = ()

    def __str__(self) -> str:
        """Return the plan as people read it: per step what it computes, what it reads and writes."""
        from dmlgpu.compiler.plan.text import describe  # noqa: PLC0415 - it knows all kinds of steps, which know this module

        return describe(self)
