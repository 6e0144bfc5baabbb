"""The steps of a plan."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from dmlgpu.enums import DataType
from dmlgpu.plan.sources import Body, Constants, Held, Source
from dmlgpu.plan.tensors import Binding, Tensor


@dataclass(frozen=True)
class Step:
    """One kernel of a plan; each kind of step is a subclass, here or beside what plans it in ``kernels/``.

    Attributes:
        label: the schedule and what is special about it, for profilers and messages.
    """

    label: str


@dataclass(frozen=True)
class Map(Step):
    """Computes every element of the output by itself.

    Attributes:
        keeps_neighbours: the output is part of a tensor whose other elements belong to other steps: not a bit beside
            its own elements changes.
        costly: the body is long, or loops: an invocation takes one item (a unit, or a word of several).
    """

    body: Body
    output: Tensor
    keeps_neighbours: bool = False
    costly: bool = False


class ReduceSchedule(enum.StrEnum):
    """How the invocations share the work of a reduction."""

    SERIAL = "serial"  # one invocation per output element
    TREE = "tree"  # one workgroup per output element
    PARTIAL = "partial"  # many invocations per output element, each leaving one accumulator in a temporary tensor


@dataclass(frozen=True)
class Reduce(Step):
    """Combines elements along axes: ``lift`` each one, ``merge`` pairs, ``finish`` (see shaders/reduction).

    Attributes:
        file: the shader with ``acc_t`` and the three functions.
        element: type of the reduced elements.
        source: what is reduced, or (``of_partials``) a PARTIAL step's accumulators, along their last dimension.
        axes: the reduced dimensions of the source, ascending.
        output: has size 1 along the axes; for a PARTIAL step the accumulators, one more dimension at the end.
        portable: as for ``Body``.
        across: the kept dimension along which neighbours in memory lie (SERIAL and PARTIAL): an invocation walks
            ``width`` rows of units side by side, and the lanes of a packed source belong to neighbouring rows; those
            of the output too where it is packed alike. None: an invocation walks one row, to which all lanes belong.
        together: PARTIAL: how many neighbouring invocations share a run of units, stepping side by side; 0: all of a
            row's.
    """

    file: str
    element: DataType
    source: Source
    axes: tuple[int, ...]
    output: Tensor
    schedule: ReduceSchedule
    of_partials: bool = False
    constants: Constants = ()
    portable: bool = False
    across: int | None = None
    width: int = 1
    together: int = 0

    @property
    def lanes(self) -> int:
        """Elements in a unit of the source."""
        return 1 if self.of_partials else self.source.lanes


@dataclass(frozen=True)
class Stage:
    """One of the reductions of a row, in float32, whatever the type of the elements.

    Attributes:
        name: of its result, by which the bodies after it know it.
        file: the shader with ``acc_t``, ``lift``, ``merge`` and ``finish``.
        lanes: how many numbers an accumulator consists of.
        prepare: the file of an ``apply`` body on ``input`` and the results of the stages before: what is reduced in
            place of the elements themselves. Empty for none.
        parts: where the result is a vector, the names of its first numbers, by which the bodies know them.
        constants: values for the shader.
        longest: numbers that one invocation may merge in turn, where rounding errors grow with them; None for any.
        run: the shader with ``run_t``, ``open``, ``absorb`` and ``close``: how one invocation takes a few numbers in
            turn. ``close`` gives an ``acc_t``.
    """

    name: str
    file: str
    lanes: int
    prepare: str = ""
    parts: tuple[str, ...] = ()
    constants: Constants = ()
    longest: int | None = None
    run: str = "reduction/run"

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the numbers that come of it."""
        return self.parts or (self.name,)


@dataclass(frozen=True)
class Rows(Step):
    """Reduces each row, in stages, and computes each of its elements from itself and the results: all in one kernel.

    Attributes:
        stages: the reductions, in order.
        source: what is reduced.
        axes: the dimensions along which a row lies, the last ones.
        body: computes an element, in float32, from the source, the results and other tensors.
        results: what stands for the results of the stages among the body's inputs, by name.
        output: of the source's sizes; its units are whole words.
        schedule: SERIAL or TREE.
        across: the lanes of a unit belong to neighbouring rows, not to one (SERIAL only).
    """

    stages: tuple[Stage, ...]
    source: Tensor
    axes: tuple[int, ...]
    body: Body
    results: tuple[tuple[str, Held], ...]
    output: Tensor
    schedule: ReduceSchedule
    across: bool = False


class ScatterSchedule(enum.StrEnum):
    """What a scatter does at the place its body computes."""

    STORE = "store"  # any one of several updates of a place wins
    MARK = "mark"  # leave the number of the last update, in row-major order, of each place (plus one) in the output
    STORE_MARKED = "store_marked"  # store where the marks name this update


@dataclass(frozen=True)
class Scatter(Step):
    """Handles every element of ``source`` at a place of the output that the body computes.

    The body defines ``fn place(at: source_at, target: ptr<function, output_at>) -> bool``; false drops the element.
    For MARK the output is a packed UINT32 tensor; STORE_MARKED reads it as the input ``marks``.
    """

    file: str
    source: Tensor
    inputs: tuple[tuple[str, Tensor], ...]
    output: Tensor
    schedule: ScatterSchedule = ScatterSchedule.STORE
    constants: Constants = ()


@dataclass(frozen=True)
class Repeat(Step):
    """Steps that are executed in turn, again and again, on resources that move: all turns share the steps' kernels.

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
class Steps:
    """Some steps of a plan, in order.

    Attributes:
        steps: executed at each dispatch.
        initialization: executed once, when the operator is initialised: they read inputs that are OWNED_BY_DML and
            write persistent tensors, where ``steps`` find them.
    """

    steps: tuple[Step, ...]
    initialization: tuple[Step, ...] = ()

    def __add__(self, other: Steps) -> Steps:
        return Steps(self.steps + other.steps, self.initialization + other.initialization)


@dataclass(frozen=True)
class Plan:
    """The steps of one operator, in order.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        steps, initialization: as for ``Steps``.
    """

    operator: str
    steps: tuple[Step, ...]
    initialization: tuple[Step, ...] = ()
