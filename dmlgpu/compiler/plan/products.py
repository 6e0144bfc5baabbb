"""Products of matrices, convolutions, attention, recurrent layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.plan.sources import Body, PlanBinding, PlanTensor, RegisterValue, Sizes, Source
from dmlgpu.compiler.plan.steps import Map, Scatter, Step
from dmlgpu.compiler.plan.windows import Windows, positions_of


@dataclass(frozen=True)
class Space:
    """Sizes of the four groups of dimensions of a product. Rows, columns and inner have at least one."""

    batch: Sizes
    rows: Sizes
    columns: Sizes
    inner: Sizes

    @property
    def output(self) -> Sizes:
        """Sizes of the output."""
        return self.batch + self.rows + self.columns


@dataclass(frozen=True)
class RowNorm:
    """Normalization of the rows of a product by their root mean square, which the product computes as it reads them.

    It is applied to the sums: a factor of a row may as well multiply its sums as its elements.

    Attributes:
        gain: multiplies the rows, over their dimensions; None for none.
        epsilon: is added to the mean of the squares.
    """

    gain: PlanTensor | None
    epsilon: float


@dataclass(frozen=True)
class Product:
    """Operands of a ``Contract``. They are converted to the accumulator's type; integers have it already.

    Attributes:
        a, b: the operands, over the dimensions (batch, rows, inner) and (batch, inner, columns): tensors of any strides
            (0 where they do not depend on a dimension), element-wise trees, or bodies that change coordinates.
        accumulator: FLOAT32, INT32 or UINT32, in which products are summed.
        a_owned, b_owned: the operand depends only on OWNED_BY_DML inputs, and the initialization may lay it out.
        a_stays, b_stays: the operand is read in its own layout, never repacked.
        integers_owned: the columns are dequantized from OWNED_BY_DML inputs, which the initialization may lay out. It
            does not lay out floats, which would take several times the memory.
        in_units: rows and columns are multiples of four, and read in units of these.
        norm: rows are normalized; None for rows as they are.
    """

    space: Space
    a: Source
    b: Source
    accumulator: DataType
    a_owned: bool = False
    b_owned: bool = False
    a_stays: bool = False
    b_stays: bool = False
    integers_owned: bool = False
    in_units: bool = False
    norm: RowNorm | None = None


@dataclass(frozen=True)
class Contract(Step):
    """Sums products of matrices, and computes the output from the sums:

        output[batch.., row.., column..] =
            epilogue(sum over inner.. of a[batch.., row.., inner..] * b[batch.., inner.., column..])

    Attributes:
        epilogue: an element-wise tree over the output's sizes with a leaf ``RegisterValue.product``: the sum.
        keeps_neighbors: as for ``Map``.
    """

    product: Product
    epilogue: Body
    output: PlanTensor
    keeps_neighbors: bool = False


PAIR = ("product.x", "product.y")
"""Names of the two sums of a ``PairedContract``."""


@dataclass(frozen=True)
class PairedContract(Step):
    """A ``Contract`` whose output is computed from two sums each, such as those of SwiGLU.

    Attributes:
        product: its space has the columns of the output; ``b`` has twice as many, and one dimension of them: those of
            all first sums, then those of all second sums.
        epilogue: an element-wise tree over the output's sizes, with a leaf ``RegisterValue`` for each name in ``PAIR``.
    """

    product: Product
    epilogue: Body
    output: PlanTensor


@dataclass(frozen=True)
class ColumnRange:
    """Consecutive columns of a product, and the step that stores what it computes from their sums.

    Attributes:
        step: its tree has leaves ``RegisterValue`` for names in ``PAIR``: the sum of a column, and that of its partner.
        rows, columns: dimensions of the step's space whose coordinates are the digits of a row and of a column within
            the range, the highest first; other dimensions have one element.
    """

    step: Map | Scatter
    rows: tuple[int, ...]
    columns: tuple[int, ...]

    @property
    def tree(self) -> Source:
        """What is stored."""
        return self.step.body if isinstance(self.step, Map) else self.step.source

    @property
    def count(self) -> int:
        """Number of columns."""
        return math.prod(self.tree.sizes[dimension] for dimension in self.columns)


@dataclass(frozen=True)
class RotatedContract(Step):
    """A ``Contract`` whose columns several steps store, each from its own sum and that of a partner, as rotary position
    embeddings do.

    Attributes:
        product: its space has one dimension of columns.
        apart: columns between partners, the first ``apart`` columns of a group of ``2 * apart`` and the others.
        ranges: of whole groups, in order; all columns together.
    """

    product: Product
    apart: int
    ranges: tuple[ColumnRange, ...]


@dataclass(frozen=True)
class Convolution:
    """Operands of a ``Convolve``: a plain forward cross-correlation with groups as a separate dimension.

    Attributes:
        input: {batch, groups, channels per group, spatial..}: a ``PlanTensor`` with any strides, an element-wise tree
            (integers less their zero points), or an element body (the input of a transposed convolution spread out).
        filter: {groups, outputs per group, channels per group, window..}: a ``PlanTensor``, whose strides along the
            window are negative if it is flipped, or an element-wise tree.
        windows: one axis per spatial dimension (1 to 3). ``start`` may be negative: then the first elements are unused.
        accumulator: FLOAT32 (also for float16) or INT32.
        filter_owned: the filter depends only on OWNED_BY_DML inputs.
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
class Pool(Step):
    """Copies the largest element of each window bit by bit, the first of equal ones; padding is never chosen, nor is
    NaN where there is a number.

    Attributes:
        input: {batch, channels, spatial..}, elements of at most 32 bits.
        windows: one axis per spatial dimension; every position sees an element of the input.
        output: {batch, channels, positions..}, of the input's type.
    """

    input: PlanTensor
    windows: Windows
    output: PlanTensor


@dataclass(frozen=True)
class Convolve(Step):
    """Sums windows of an input against filters, and computes the output from the sums:

        output[n, g, o, position..] = epilogue(sum over c, tap.. of
            input[n, g, c, position * stride + tap * dilation - start ..] * filter[g, o, c, tap..])

    Attributes:
        epilogue: an element-wise tree over {batch, groups, outputs per group, positions..} with a leaf
            ``RegisterValue.product``, which stands for the sum.
        output: a view of the same sizes.
        transposed: the filter scatters instead, in its own order: element p of the input reaches the elements
            p * stride + tap * dilation - start of the output, over which the windows slide.
    """

    convolution: Convolution
    epilogue: Body
    output: PlanTensor
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
            ``RegisterValue.product``, which stands for the product of a query and a key.
        visible: how many keys, from the first on, a row sees, over the query's sizes but the last and ascending along
            the rows; None: all.
        output: {batch, shared heads, heads that share one, rows, value head size}.
    """

    query: Source
    key: Source
    value: Source
    score: Body
    visible: Body | None
    output: PlanTensor

    @property
    def rows(self) -> int:
        """Number of query rows of one shared head."""
        return self.output.sizes[2] * self.output.sizes[3]

    @property
    def keys(self) -> int:
        """Number of keys of one shared head."""
        return self.key.sizes[2]

    @property
    def batches(self) -> int:
        """Total number of shared heads."""
        return self.output.sizes[0] * self.output.sizes[1]

    @property
    def is_plain(self) -> bool:
        """Whether scores depend only on the product."""
        return (
            self.visible is None and len(self.score.inputs) == 1 and isinstance(self.score.inputs[0][1], RegisterValue)
        )


@dataclass(frozen=True)
class Recurrence(Step):
    """Computes states of a recurrent network from products of the previous hidden state with rows of weights:

        sums[g][direction, sequence, j] = sum over k of hidden[direction, sequence, k] * weights[g, direction, j, k]
        output[s, direction, sequence, j] = states[s](sums ..)

    Attributes:
        hidden: the previous hidden state, over (1, direction, sequence, element).
        weights: over (gate, direction, element, previous element).
        sums: the gates whose sums are computed, and the leaf of ``states`` for each.
        states: element-wise trees over (1, direction, sequence, element).
        output: over (state, direction, sequence, element).
    """

    hidden: PlanTensor
    weights: PlanTensor
    sums: tuple[tuple[int, RegisterValue], ...]
    states: tuple[Body, ...]
    output: PlanTensor


WORDS = 4
"""Alignment of bindings in words."""


@dataclass(frozen=True)
class Series:
    """A temporary tensor with a block of (part, direction, sequence, element) for each of some time steps."""

    binding: PlanBinding
    data_type: DataType
    sizes: Sizes

    @classmethod
    def temporary(cls, label: str, data_type: DataType, sizes: Sizes) -> Series:
        """Return a series in new memory."""
        return cls(PlanTensor.temporary(label, data_type, sizes).binding, data_type, sizes)

    @property
    def block(self) -> int:
        """Number of words of a block."""
        return -(-packed_strides(self.sizes)[0] * self.sizes[0] // WORDS) * WORDS

    def at(self, step: int) -> PlanTensor:
        """Return a view of one block."""
        binding = replace(self.binding, offset=4 * self.block * step)
        return PlanTensor(binding, self.data_type, self.sizes, packed_strides(self.sizes))

    def during(self, first: int, steps: int, direction: int, *, reverse: bool = False) -> PlanTensor:
        """View some steps, in order or in reverse, over (step, sequence, element)."""
        _, apart, *strides = packed_strides(self.sizes)
        start = (first + steps - 1 if reverse else first) * self.block + direction * apart
        stride = -self.block if reverse else self.block
        sizes = (steps, *self.sizes[2:])
        return PlanTensor(self.binding, self.data_type, sizes, (stride, *strides), offset=start)


def parts_of(tensor: PlanTensor) -> tuple[PlanTensor, ...]:
    """Return the tensors that lie along the first dimension."""
    sizes, stride = (1, *tensor.sizes[1:]), tensor.strides[0]
    return tuple(replace(tensor, sizes=sizes, offset=tensor.offset + part * stride) for part in range(tensor.sizes[0]))


@dataclass(frozen=True)
class RecurrentLayer(Step):
    """Computes the states of a recurrent layer, time step after time step.

    Temporary tensors are in the order of execution: a backward direction starts at the end of the longest possible
    sequence, and a sequence that is shorter keeps its initial states until its own end is reached.

    Attributes:
        backward: whether each direction starts at the end.
        input: over (1, time step, sequence, element).
        weights: over (1, direction, row of a gate, element of the input).
        sums: per direction the epilogue of the products of inputs and weights, over (time step, sequence, row of a
            gate) with a leaf ``RegisterValue.product``.
        recurrence: the recurrent weights, over (gate, direction, element, previous element).
        initial: the states before the first time step, over (1, direction, sequence, element).
        lengths: of each sequence; None if all have the full length.
        cells: the first of some directions, and the kernels of their first time step.
        inputs: the sums of each time step, gate after gate.
        states: the states before the first time step, and after each.
        lasts: which sequences are active at each time step; None if all are.
        output: the hidden states, over (time step, direction, sequence, element); None if they are not requested.
        singles: the label and the output of each state after the last time step; None likewise.
    """

    backward: tuple[bool, ...]
    input: PlanTensor
    weights: PlanTensor
    sums: tuple[Body, ...]
    recurrence: PlanTensor
    initial: tuple[Body, ...]
    lengths: PlanTensor | None
    cells: tuple[tuple[int, tuple[Recurrence, ...]], ...]
    inputs: Series
    states: Series
    lasts: Series | None
    output: PlanTensor | None
    singles: tuple[tuple[str, PlanTensor | None], ...]

    @property
    def time_steps(self) -> int:
        """Number of time steps of the longest possible sequence."""
        return self.input.sizes[1]
