"""What an operator computes: which shader bodies, over which outputs, fed by which sources."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dmlgpu.enums import DataType
from dmlgpu.tensor import TensorDesc, span


class Role(enum.StrEnum):
    """Which of a dispatch's resources a tensor lies in."""

    INPUT = "input"
    OUTPUT = "output"
    TEMPORARY = "temporary"
    PERSISTENT = "persistent"


@dataclass(frozen=True)
class Binding:
    """One resource of a dispatch: inputs and outputs by their flat number, temporaries by their place in the plan.

    Attributes:
        offset: bytes, a multiple of 16, after which what is bound of it starts.
    """

    role: Role
    index: int
    offset: int = 0


class View(enum.StrEnum):
    """How a kernel sees the elements of a tensor."""

    RAW = "raw"  # bits that are only moved
    INDEX = "index"  # integers saturated to i32
    COMPUTE = "compute"  # numbers


@dataclass(frozen=True)
class Tensor:
    """A tensor as a kernel reads or writes it.

    Attributes:
        strides: elements between neighbours; negative ones (mirrored views) are fine for inputs.
        offset: elements before the first one (views into a tensor).
        lanes: consecutive elements, along the dimension of stride 1, that a kernel takes as one unit. Sizes, strides
            and offset count units. Negative: one element repeated for that many lanes (a broadcast input of a packed
            body); these count elements.
    """

    binding: Binding
    data_type: DataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    view: View = View.COMPUTE
    offset: int = 0
    lanes: int = 1

    @classmethod
    def of(cls, role: Role, index: int, desc: TensorDesc, view: View = View.COMPUTE) -> Tensor:
        """The tensor that a description puts into a resource."""
        return cls(Binding(role, index), desc.data_type, desc.sizes, desc.element_strides, view)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def unit_bits(self) -> int:
        """Bits that one load or store moves."""
        return self.data_type.bits * max(self.lanes, 1)

    @property
    def units(self) -> int:
        """Units from the first to the last in memory, for strides that are not negative."""
        return span(self.sizes, self.strides)


@dataclass(frozen=True)
class Held(Tensor):
    """What a schedule holds in registers and hands to the bodies after it: a sum, where an epilogue reads it.

    It is in no resource. Its strides let it be packed along the last dimension, as the schedule's units are.
    """

    @classmethod
    def over(cls, data_type: DataType, sizes: tuple[int, ...]) -> Held:
        """A value of a type for each element of an output."""
        return cls(Binding(Role.TEMPORARY, -1), data_type, sizes, (*(0 for _ in sizes[1:]), 1))


class BodyKind(enum.StrEnum):
    """What a shader file defines."""

    ELEMENT = "element"  # fn element(at: output_at) -> output_t
    APPLY = "apply"  # fn apply(a: a_s, b: b_s) -> output_s
    PLACE = "place"  # fn place(at: output_at, source: ptr<function, input_at>) -> bool: which element of `input`


Constants: TypeAlias = tuple[tuple[str, Any], ...]


def constants(**values: Any) -> Constants:
    """Template values in hashable form."""
    return tuple(values.items())


@dataclass(frozen=True)
class Body:
    """One use of a shader body: a virtual tensor.

    Attributes:
        file: the shader's path below ``shaders/``, without suffix: ``indexing/gather_nd1``.
        data_type, sizes: of the tensor that the body defines.
        inputs: named sources, each a tensor in memory or another body.
        constants: values for the template.
        follows: for each input, which of its dimensions moves one to one with each dimension of the output (None where
            none does). Packing goes through a body along such dimensions only. Empty for ``apply`` bodies, whose inputs
            have the output's coordinates.
        start, steps: the body is affine: its one input is read at start + steps * at, so that over a tensor in memory
            it is a mere view. ``steps`` has a row per dimension of the input, a column per dimension of the body.
        words: see 64-bit operands as pairs of words, and halves as f32, even where the adapter computes on them.
    """

    file: str
    data_type: DataType
    sizes: tuple[int, ...]
    inputs: tuple[tuple[str, Source], ...] = ()
    constants: Constants = ()
    kind: BodyKind = BodyKind.ELEMENT
    follows: tuple[tuple[int | None, ...], ...] = ()
    start: tuple[int, ...] = ()
    steps: tuple[tuple[int, ...], ...] = ()
    words: bool = False
    lanes: int = 1

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def moves(self) -> bool:
        """Whether the body only moves bits (it is no ``apply`` body, and its inputs are raw or indices)."""
        return self.kind is not BodyKind.APPLY and all(
            source.moves if isinstance(source, Body) else source.view is not View.COMPUTE for _, source in self.inputs
        )


Source: TypeAlias = Tensor | Body


def apply(
    file: str,
    data_type: DataType,
    sizes: tuple[int, ...],
    *,
    words: bool = False,
    values: Constants = (),
    **inputs: Source,
) -> Body:
    """An element-wise body over named inputs of the output's sizes."""
    return Body(file, data_type, sizes, tuple(inputs.items()), values, BodyKind.APPLY, words=words)


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
        keeps: the output is part of a tensor whose other elements belong to other steps: not a bit beside its own
            elements changes.
        loops: the body is long, or loops: an invocation takes one item (a unit, or a word of several).
    """

    body: Body
    output: Tensor
    keeps: bool = False
    loops: bool = False


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
        words: as for ``Body``.
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
    words: bool = False
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
class Plan:
    """The steps of one operator, in order.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        temporaries: sizes in bytes of the temporary tensors that the steps name.
        initialization: steps run once, when the operator is initialised: they read inputs that are OWNED_BY_DML and
            write persistent tensors, where ``steps`` find them.
        persistents: sizes in bytes of these.
    """

    operator: str
    steps: tuple[Step, ...]
    temporaries: tuple[int, ...] = ()
    initialization: tuple[Step, ...] = ()
    persistents: tuple[int, ...] = ()


def mapping(pairs: tuple[tuple[str, Any], ...]) -> Mapping[str, Any]:
    """Named pairs as a mapping."""
    return dict(pairs)
