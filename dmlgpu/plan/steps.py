"""The steps of a plan, all kinds of them: what each computes, and nothing of how."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgpu.enums import DataType
from dmlgpu.plan.sources import Body, Constants, Held, Source
from dmlgpu.plan.tensors import Binding, Sizes, Tensor
from dmlgpu.plan.windows import Windows, positions_of


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
        costly: the body is long, or loops.
    """

    body: Body
    output: Tensor
    keeps_neighbours: bool = False
    costly: bool = False


# ---- reductions


@dataclass(frozen=True)
class Reduction:
    """How the elements of a row become one.

    Attributes:
        file: the shader with ``acc_t``, ``lift``, ``merge`` and ``finish`` (see shaders/reduction).
        accumulator, lanes: type and count of the numbers that an accumulator consists of.
        portable: as for ``Body``.
        constants: values for the shader.
        ordered: the numbers of the elements of a row matter (ARGMIN); else a row is read as it lies in memory.
        longest: elements that may be merged one after the other, where rounding errors grow with them; None for any.
    """

    file: str
    accumulator: DataType
    lanes: int
    portable: bool
    constants: Constants = ()
    ordered: bool = False
    longest: int | None = None


@dataclass(frozen=True)
class Reduce(Step):
    """Combines the elements of each row.

    Attributes:
        source: what is reduced.
        axes: the dimensions along which a row lies; the last ones of a source that changes coordinates.
        output: of the source's sizes, 1 along the axes. Its lanes are the numbers of a result.
        iterations: of the loops that computing one element of the source takes.
    """

    reduction: Reduction
    source: Source
    axes: tuple[int, ...]
    output: Tensor
    iterations: int = 0


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
        longest: as for ``Reduction``.
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
    """Reduces each row, in stages, and computes each of its elements from itself and the results.

    Attributes:
        stages: the reductions, in order.
        source: what is reduced.
        axes: the dimensions along which a row lies.
        body: computes an element, an element-wise tree over the source, other tensors and ``Held`` results of the
            stages, which are repeated along the axes.
        output: of the source's sizes.
    """

    stages: tuple[Stage, ...]
    source: Tensor
    axes: tuple[int, ...]
    body: Body
    output: Tensor


# ---- scans


@dataclass(frozen=True)
class Scanning:
    """How elements are merged along a line.

    Attributes:
        file: the shader with ``acc_t``, ``start``, ``lift``, ``merge`` (commutative, too) and ``finish``.
        accumulator, lanes: type and count of the numbers that an accumulator consists of.
        portable: as for ``Body``.
        exclusive: an element's result leaves the element itself out.
        decreasing: lines begin at their last element.
    """

    file: str
    accumulator: DataType
    lanes: int
    portable: bool
    exclusive: bool = False
    decreasing: bool = False


@dataclass(frozen=True)
class Scan(Step):
    """Computes what a line adds up to before or up to each of its elements; the output may lie in the input's place.

    Attributes:
        source, output: of equal sizes.
        axis: along which lines lie.
    """

    scanning: Scanning
    source: Tensor
    axis: int
    output: Tensor


@dataclass(frozen=True)
class Compact(Step):
    """Writes something for each element that a predicate chooses, one after the other, and how many there are.

    Attributes:
        source: the elements, chosen in row-major order.
        predicate: the file of an ``apply`` body that gives 1 or 0.
        advance: the file that says what is written for an element and where; ``constants`` are its values.
        output: {numbers of elements, what is written of each}.
        count: the number of chosen elements, a UINT32 tensor of one element, seen raw.
    """

    source: Tensor
    predicate: str
    advance: str
    constants: Constants
    output: Tensor
    count: Tensor


# ---- orders and places


@dataclass(frozen=True)
class Sort(Step):
    """Finds the first elements along an axis in sorted order, or all of them.

    Elements are sorted as *records*: their rank, an unsigned number that compares as they do, and their position on the
    axis. No two records are equal, so the result depends neither on the order of invocations nor on a stable sort.

    Attributes:
        source: the elements.
        decreasing: the largest one comes first.
        output: the records, UINT32 in lanes of ``record_lanes`` words: the source's other dimensions in order, then the
            axis with as many as are asked for.
    """

    source: Tensor
    axis: int
    decreasing: bool
    output: Tensor


def record_lanes(data_type: DataType) -> int:
    """Return the words of a record: the rank in one or two, then the position; where there are four, one is unused."""
    return 4 if data_type.bits == 64 else 2


@dataclass(frozen=True)
class Scatter(Step):
    """Writes every element of ``source`` to a place of the output that a shader computes.

    It defines ``fn place(at: source_at, target: ptr<function, output_at>) -> bool``; false drops the element.

    Attributes:
        file: the shader; ``constants`` are its values.
        source, output: moved as raw bits.
        inputs: the tensors that say where elements go, by name.
        follows: for each dimension of the source, the one of the output that moves with it one to one, whatever the
            inputs say; None where there is none.
        distinct: no two elements go to one place. Where they do, any one of them wins, but on a deterministic device
            the last in row-major order does.
    """

    file: str
    source: Tensor
    inputs: tuple[tuple[str, Tensor], ...]
    output: Tensor
    constants: Constants
    follows: tuple[int | None, ...]
    distinct: bool = False


# ---- products


@dataclass(frozen=True)
class Space:
    """The sizes of the four groups of dimensions of a product. Rows, columns and inner have at least one."""

    batch: Sizes
    rows: Sizes
    columns: Sizes
    inner: Sizes

    @property
    def output(self) -> Sizes:
        """The sizes of the output."""
        return self.batch + self.rows + self.columns


@dataclass(frozen=True)
class Product:
    """What a ``Contract`` sums. Operands are converted to the accumulator's type; integers have it already.

    Attributes:
        a, b: the operands, over the dimensions (batch, rows, inner) and (batch, inner, columns): tensors of any strides
            (0 where they do not depend on a dimension), element-wise trees, or bodies that change coordinates.
        accumulator: FLOAT32, INT32 or UINT32, in which products are summed.
        a_owned, b_owned: the operand depends on nothing but OWNED_BY_DML inputs.
        a_stays, b_stays: the operand is read where it lies, never laid out anew.
    """

    space: Space
    a: Source
    b: Source
    accumulator: DataType
    a_owned: bool = False
    b_owned: bool = False
    a_stays: bool = False
    b_stays: bool = False


@dataclass(frozen=True)
class Contract(Step):
    """Sums products of matrices, and computes the output from the sums:

        output[batch.., row.., column..] =
            epilogue(sum over inner.. of a[batch.., row.., inner..] * b[batch.., inner.., column..])

    Attributes:
        epilogue: an element-wise tree over the output's sizes with a leaf ``Held.product``, which stands for the sum.
        keeps_neighbours: as for ``Map``.
    """

    product: Product
    epilogue: Body
    output: Tensor
    keeps_neighbours: bool = False


@dataclass(frozen=True)
class Convolution:
    """What a ``Convolve`` sums: a plain forward cross-correlation with its groups as a dimension of their own.

    Attributes:
        input: {batch, groups, channels per group, spatial..}: a ``Tensor`` with any strides, an element-wise tree
            (integers less their zero points), or an element body (the input of a transposed convolution spread out).
        filter: {groups, outputs per group, channels per group, window..}: a ``Tensor``, whose strides along the window
            are negative where it is flipped, or an element-wise tree.
        windows: one axis per spatial dimension (1 to 3). ``start`` may be negative: then the first elements are unused.
        accumulator: FLOAT32 (also for halves) or INT32.
        filter_owned: the filter depends on nothing but OWNED_BY_DML inputs.
    """

    input: Source
    filter: Source
    windows: Windows
    accumulator: DataType
    filter_owned: bool = False

    @property
    def output_sizes(self) -> Sizes:
        """{batch, groups, outputs per group, positions..}."""
        return (*self.input.sizes[:2], self.filter.sizes[1], *positions_of(self.windows))


@dataclass(frozen=True)
class Convolve(Step):
    """Sums windows of an input against filters, and computes the output from the sums:

        output[n, g, o, position..] = epilogue(sum over c, place.. of
            input[n, g, c, position * stride + place * dilation - start ..] * filter[g, o, c, place..])

    Attributes:
        epilogue: an element-wise tree over {batch, groups, outputs per group, positions..} with a leaf
            ``Held.product``, which stands for the sum.
        output: a view of the same sizes.
        transposed: the filter scatters instead, in its own order: element p of the input reaches the elements
            p * stride + place * dilation - start of the output, over which the windows slide.
    """

    convolution: Convolution
    epilogue: Body
    output: Tensor
    transposed: bool = False


@dataclass(frozen=True)
class Attend(Step):
    """Computes attention: for each head that keys and values share, for groups of query rows,

        score[row, key] = score(query[row] . key[key])
        weight[row, key] = e^(score[row, key] - top[row])
        output[row] = sum over keys of weight[row, key] * value[key] / sum over keys of weight[row, key]

    Attributes:
        query: {batch, shared heads, heads that share one, rows, head size}.
        key, value: {batch, shared heads, keys, head size} and {batch, shared heads, keys, value head size}.
        score: an element-wise tree over {batch, shared heads, heads that share one, rows, keys} with a leaf
            ``Held.product``, which stands for the product of a query and a key.
        visible: how many keys, from the first on, a row sees, over the query's sizes but the last and ascending along
            the rows; None: all.
        output: {batch, shared heads, heads that share one, rows, value head size}.
    """

    query: Source
    key: Source
    value: Source
    score: Body
    visible: Body | None
    output: Tensor

    @property
    def rows(self) -> int:
        """Query rows of one shared head."""
        return self.output.sizes[2] * self.output.sizes[3]

    @property
    def keys(self) -> int:
        """Keys of one shared head."""
        return self.key.sizes[2]

    @property
    def batches(self) -> int:
        """Shared heads in all."""
        return self.output.sizes[0] * self.output.sizes[1]

    @property
    def is_plain(self) -> bool:
        """Whether scores depend on nothing but the product."""
        return self.visible is None and len(self.score.inputs) == 1 and isinstance(self.score.inputs[0][1], Held)


# ---- steps in time


@dataclass(frozen=True)
class Recurrence(Step):
    """Computes states of a recurrent network from products of the hidden state before with rows of weights:

        sums[g][direction, sequence, j] = sum over k of hidden[direction, sequence, k] * weights[g, direction, j, k]
        output[s, direction, sequence, j] = states[s](sums ..)

    Attributes:
        hidden: the hidden state before, over (1, direction, sequence, element).
        weights: over (gate, direction, element, element before).
        sums: the gates whose sums are computed, and what stands for each among the leaves of ``states``.
        states: element-wise trees over (1, direction, sequence, element).
        output: over (state, direction, sequence, element).
    """

    hidden: Tensor
    weights: Tensor
    sums: tuple[tuple[int, Held], ...]
    states: tuple[Body, ...]
    output: Tensor


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
        steps: in order.
    """

    operator: str
    steps: tuple[Step, ...]


# ---- building steps


def repeated(tensor: Tensor, sizes: Sizes) -> Tensor:
    """Return a tensor repeated along the dimensions in which it has size 1 and ``sizes`` more: results of rows, say."""
    strides = tuple(0 if one == 1 else stride for one, stride in zip(tensor.sizes, tensor.strides, strict=True))
    return replace(tensor, sizes=sizes, strides=strides)


def row_sizes(sizes: Sizes, axes: tuple[int, ...]) -> Sizes:
    """Return sizes with 1 along the axes: those of the results of rows."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(sizes))


def stage_results(stages: tuple[Stage, ...], sizes: Sizes, axes: tuple[int, ...]) -> dict[str, Held]:
    """Return what stands for the results of stages among the leaves of a row's body, by name."""
    return {name: Held(name, DataType.FLOAT32, sizes, axes) for stage in stages for name in stage.results}


def reduce_stage(stage: Stage, source: Source, axes: tuple[int, ...]) -> tuple[Reduce, dict[str, Tensor]]:
    """Return a stage as a reduction of its own, and its results in a temporary tensor, each repeated along its row."""
    sizes = row_sizes(source.sizes, axes)
    lanes = 1 << (len(stage.results) - 1).bit_length()
    result = Tensor.temporary(stage.name, DataType.FLOAT32, sizes, lanes=lanes)
    reduction = Reduction(stage.file, DataType.FLOAT32, stage.lanes, True, stage.constants, longest=stage.longest)
    strides = tuple(lanes * stride for stride in result.strides)
    results = {
        name: repeated(replace(result, lanes=1, strides=strides, offset=number), source.sizes)
        for number, name in enumerate(stage.results)
    }
    return Reduce(stage.name, reduction, source, axes, result), results
