"""Graphs that passes look for as a whole, as models have them: attention, blocks of convolutions, quantized layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from dmlgpu.catalog.enums import (
    ConvolutionDirection,
    DataType,
    InterpolationMode,
    MatrixTransform,
    QuantizationType,
    ReduceFunction,
)
from dmlgpu.catalog.operator_desc import ScaleBias, Size2D
from dmlgpu.conformance.suites.graph_steps import FLOATS, SIGNED, WORDS, Draft, Types
from dmlgpu.tensors import directml as f
from dmlgpu.tensors.tensor import Tensor

Pattern = Callable[[Draft], tuple[Tensor, ...]]

# ---- attention -------------------------------------------------------------------------------------------------------


def _attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Product, scale, mask, softmax, product; query and value are {batch, heads, rows, size}."""
    scores = f.gemm(query, key, trans_b=MatrixTransform.TRANSPOSE)
    scores = f.element_wise_identity(scores, scale_bias=ScaleBias(0.375, 0.0))
    if mask is not None:
        scores = f.element_wise_add(scores, mask.broadcast_to(scores.sizes))
    return f.gemm(f.activation_softmax1(scores, axes=(3,)), value)


def _attention(draft: Draft) -> tuple[Tensor, ...]:
    batch, heads, rows, size = draft.sizes
    query, keys = draft.input(), (batch, heads, rows + 4, size)
    return (_attended(query, draft.input(keys), draft.input(keys), draft.input((1, 1, rows, rows + 4))),)


def _bare_attention(draft: Draft) -> tuple[Tensor, ...]:
    query, key, value = (draft.input() for _ in range(3))
    scores = f.gemm(query, key, trans_b=MatrixTransform.TRANSPOSE, alpha=0.5)
    return (f.gemm(f.activation_softmax1(scores, axes=(3,)), value),)


def _transposed_attention(draft: Draft) -> tuple[Tensor, ...]:
    """Rows lie outside of heads, as a projection leaves them, before and after."""
    batch, heads, rows, size = draft.sizes

    def turned(x: Tensor) -> Tensor:
        strides = (rows * heads * size, size, heads * size, 1)
        return f.element_wise_identity(x.reinterpret((batch, heads, rows, size), strides))

    query, key, value = (turned(draft.input((batch, rows, heads, size))) for _ in range(3))
    seen = _attended(query, key, value, draft.input((batch, 1, 1, rows)))
    back = seen.reinterpret((batch, rows, heads, size), (heads * rows * size, size, rows * size, 1))
    return (f.element_wise_identity(back),)


def _quantized_cache(draft: Draft) -> tuple[Tensor, ...]:
    """Keys and values are a cache of eight bits, with a scale per row of a head."""
    batch, heads, rows, size = draft.sizes
    sizes = (batch, heads, rows + 4, size)
    caches = []
    for _ in range(2):
        scale = draft.input((*sizes[:3], 1)).broadcast_to(sizes)
        caches.append(f.element_wise_dequantize_linear(draft.input(sizes, DataType.INT8), scale))
    result = f.multihead_attention1(
        draft.input((batch, rows, heads * size)),
        past_key=caches[0],
        past_value=caches[1],
        past_sequence_lengths=draft.input((batch,), DataType.INT32, low=0, high=rows),
        scale=0.25,
        mask_filter_value=-100.0,
        query_head_count=heads,
        key_value_head_count=heads,
    )
    return (result.output,)


def _updated_cache(draft: Draft) -> tuple[Tensor, ...]:
    """New keys are rotated, and values computed, where caches get them, next to the rotation of the queries."""
    batch, heads, rows, size = draft.sizes
    return (_attended_by_caches(draft, draft.input((batch, rows, 3 * heads * (size + size % 2)))),)


def _rotated_columns(draft: Draft) -> tuple[Tensor, ...]:
    """Products of few rows by dequantized blocks are queries, keys and values: once partners in a rotation are
    adjacent, and once half a head apart, by a product of normalized rows whose sums many invocations share."""
    batch, heads, rows, size = draft.sizes
    rows, columns = -(-rows // 3), 3 * heads * (size + size % 2)

    def product(x: Tensor) -> Tensor:
        inner = x.sizes[-1]
        codes, scale = draft.input((1, 1, columns, inner), DataType.UINT4), draft.input((1, 1, columns, inner // 16))
        weights = f.dequantize(codes, (scale,), quantization_type=QuantizationType.SCALE)
        joined = f.gemm(x, weights, trans_b=MatrixTransform.TRANSPOSE)
        return joined.reinterpret((batch, rows, columns))

    short, long = (draft.input((1, 1, batch * rows, inner)) for inner in (32, 256))
    normalized = f.mean_variance_normalization2(long, axes=(3,), use_mean=False, epsilon=0.125)
    return _attended_by_caches(draft, product(short)), _attended_by_caches(draft, product(normalized), apart=True)


def _attended_by_caches(draft: Draft, joined: Tensor, *, apart: bool = False) -> Tensor:
    """Attention to caches that get rotated keys, and values, next to rotated queries. Partners in a rotation are
    adjacent, or half a head apart."""
    (batch, rows, columns), heads = joined.sizes, draft.sizes[1]
    size = columns // (3 * heads)
    digits = (2, size // 2) if apart else (size // 2, 2)
    pairs, turned = (batch, rows, heads, *digits), (1, 1, 1, *((-1, 1) if apart else (1, -1)))
    flat = (batch, rows, heads * size)
    query, key, value = f.split(joined, axis=2, output_sizes=[flat] * 3)
    factor = draft.input((batch, rows, 1, *(1 if length == 2 else length for length in digits))).broadcast_to(pairs)

    def rotated(part: Tensor) -> Tensor:
        x = f.element_wise_identity(part).reinterpret(pairs)
        exchanged = f.slice1(x, input_window_offsets=(0,) * 5, input_window_sizes=pairs, input_window_strides=turned)
        return f.element_wise_subtract(x, f.element_wise_multiply(exchanged, factor)).reinterpret(flat)

    cache = (batch, heads, rows + 4, size)
    result = f.multihead_attention1(
        rotated(query),
        rotated(key),
        f.activation_relu(value),
        past_key=draft.input(cache),
        past_value=draft.input(cache),
        past_sequence_lengths=draft.input((batch,), DataType.INT32, low=0, high=6),
        scale=0.25,
        mask_filter_value=-100.0,
        query_head_count=heads,
        key_value_head_count=heads,
        output_present_key=True,
        output_present_value=True,
    )
    return result.output


def _attention_with_scores(draft: Draft) -> tuple[Tensor, ...]:
    """The weights are an output, too, and must be stored."""
    query, key, value = (draft.input() for _ in range(3))
    weights = f.activation_softmax1(f.gemm(query, key, trans_b=MatrixTransform.TRANSPOSE), axes=(3,))
    return f.gemm(weights, value), weights


def _gathered_heads(draft: Draft) -> tuple[Tensor, ...]:
    """Gather queries, keys, values and every second column by constant indices, which are slices."""
    qkv = draft.input((3, *draft.sizes))

    def gathered(x: Tensor, axis: int, *indices: int) -> Tensor:
        where = draft.numbers(indices, DataType.INT32, (*(1,) * (len(x.sizes) - 1), len(indices)))
        return f.gather(x, where, axis=axis, index_dimensions=1)

    query, key, value = (gathered(qkv, 0, index).reinterpret(draft.sizes) for index in (0, 1, -1))
    return (gathered(_attended(query, key, value, None), 3, -4, -2),)


def _normalized_scores(draft: Draft) -> tuple[Tensor, ...]:
    """Normalize scores between two products in a way that is not a softmax."""
    query, key, value = (draft.input() for _ in range(3))
    scores = f.gemm(query, key, trans_b=MatrixTransform.TRANSPOSE)
    return (f.gemm(f.activation_log_softmax1(scores, axes=(3,)), value),)


def _perceptron(draft: Draft) -> tuple[Tensor, ...]:
    """Normalization, product, activation, product, and the input again."""
    *batch, _, size = draft.sizes
    x = draft.input()
    inner = f.mean_variance_normalization2(x, axes=(3,), epsilon=0.125)
    inner = f.gemm(inner, draft.constant((*batch, size, 2 * size)))
    inner = f.activation_gelu(f.element_wise_identity(inner, scale_bias=ScaleBias(0.125, 0.5)))
    return (f.element_wise_add(f.gemm(inner, draft.constant((*batch, 2 * size, size))), x),)


# ---- convolutions ----------------------------------------------------------------------------------------------------


def _convolved(draft: Draft, x: Tensor, channels: int, *, owned: bool = False) -> Tensor:
    filters = (
        draft.input((channels, x.sizes[1], 3, 3), owned=owned)
        if owned
        else draft.constant((channels, x.sizes[1], 3, 3))
    )
    return f.convolution(x, filters, start_padding=(1, 1), end_padding=(1, 1))


def _convolution_normalization_relu(draft: Draft) -> tuple[Tensor, ...]:
    return (f.activation_relu(draft.normalized(_convolved(draft, draft.input(), 4))),)


def _padded_convolution(draft: Draft) -> tuple[Tensor, ...]:
    """The padding is done by the convolution, on top of its own."""
    padded = f.padding1(draft.input(), start_padding=(0, 0, 2, 0), end_padding=(0, 0, 1, 1))
    return (f.activation_relu(_convolved(draft, padded, 3)),)


def _strided_convolutions(draft: Draft) -> tuple[Tensor, ...]:
    """Tensors between them are channels-last if that is faster; two convolutions read the result of the first."""
    x = f.activation_relu(_convolved(draft, draft.input(), 4))
    filters = [draft.constant((4, 4, 3, 3)) for _ in range(2)]
    branches = [
        f.convolution(x, weights, strides=(2, 2), start_padding=(1, 1), end_padding=(1, 1)) for weights in filters
    ]
    return (f.element_wise_add(f.activation_relu(branches[0]), branches[1]),)


def _grouped_convolutions(draft: Draft) -> tuple[Tensor, ...]:
    """Groups of channels lie side by side."""
    x = f.convolution(draft.input(), draft.constant((4, draft.sizes[1], 2, 2)))
    return (f.activation_relu(f.convolution(x, draft.constant((6, 2, 2, 2)), group_count=2)),)


def _biased_convolutions(draft: Draft) -> tuple[Tensor, ...]:
    """Add a bias to each channel before a normalization, as the first operand of an addition, and to a row."""
    channels, width = draft.sizes[1], draft.sizes[3]
    x, filters = draft.input(), draft.constant((channels, channels, 1, 1))
    first = f.convolution(x, filters)
    first = draft.normalized(f.element_wise_add(first, draft.constant((1, channels, 1, 1)).broadcast_to(first.sizes)))
    again = f.convolution(f.activation_relu(first), filters)
    again = f.element_wise_add(draft.constant((1, channels, 1, 1)).broadcast_to(again.sizes), again)
    last = f.convolution(again, filters)
    return (f.element_wise_add(last, draft.constant((1, 1, 1, width)).broadcast_to(last.sizes)),)


def _normalized_residual(draft: Draft) -> tuple[Tensor, ...]:
    """Add a residual before rows are reduced."""
    x = f.element_wise_add(draft.input(), f.element_wise_identity(draft.input(), scale_bias=ScaleBias(0.5, 0.25)))
    return (f.mean_variance_normalization2(x, axes=(3,), epsilon=0.125),)


def _owned_convolution(draft: Draft) -> tuple[Tensor, ...]:
    """The filters are handed over at initialization."""
    x = draft.input()
    return (f.activation_relu(f.element_wise_add(_convolved(draft, x, x.sizes[1], owned=True), x)),)


def _owned_normalization(draft: Draft) -> tuple[Tensor, ...]:
    """Own filters, bias and statistics: they are folded at initialization."""
    x, channels = draft.input(), 3
    filters = draft.input((channels, x.sizes[1], 3, 3), owned=True)
    x = f.convolution(x, filters, draft.input((1, channels, 1, 1), owned=True), start_padding=(1, 1))
    mean, scale, bias = (draft.input((1, channels, 1, 1), owned=True) for _ in range(3))
    variance = draft.input((1, channels, 1, 1), low=1, high=4, owned=True)
    x = f.batch_normalization(x, mean, variance, scale, bias, spatial=True, epsilon=0.125)
    return (f.activation_relu(x),)


def _changing_filters(draft: Draft) -> tuple[Tensor, ...]:
    """Pass new filters with each execution, and read them twice: nothing may be folded into them."""
    x, filters = draft.input(), draft.input((4, draft.sizes[1], 3, 3))
    normalized = draft.normalized(f.convolution(x, filters, start_padding=(1, 1), end_padding=(1, 1)))
    return f.activation_relu(normalized), f.element_wise_negate(filters)


def _normalized_transposed_convolution(draft: Draft) -> tuple[Tensor, ...]:
    """Outputs lie along the second dimension of these filters."""
    x = draft.input()
    filters = draft.constant((x.sizes[1], 3, 2, 2))
    x = f.convolution(x, filters, direction=ConvolutionDirection.BACKWARD, strides=(2, 2))
    return (f.activation_relu(draft.normalized(x)),)


def _normalized_groups(draft: Draft) -> tuple[Tensor, ...]:
    """Each channel has filters of its own."""
    x = draft.input()
    x = f.convolution(x, draft.constant((2 * x.sizes[1], 1, 3, 1)), group_count=x.sizes[1], end_padding=(2, 0))
    return (draft.normalized(x),)


def _shared_filters(draft: Draft) -> tuple[Tensor, ...]:
    """One convolution's results are normalized in two ways; folding one into its weights would change the other."""
    x = _convolved(draft, draft.input(), 4)
    return draft.normalized(x), f.activation_relu(draft.normalized(x)), x


def _residual_blocks(draft: Draft) -> tuple[Tensor, ...]:
    x = draft.input()
    for _ in range(2):
        inner = f.activation_relu(draft.normalized(_convolved(draft, x, x.sizes[1])))
        inner = draft.normalized(_convolved(draft, inner, x.sizes[1]))
        x = f.element_wise_clip(f.activation_relu(f.element_wise_add(inner, x)), min=0, max=8)
    return (x,)


def _dense_convolution(draft: Draft) -> tuple[Tensor, ...]:
    """Enough channels for Winograd's filtering."""
    batch, _, *image = draft.sizes
    x = draft.input((batch, 16, *image))
    return (f.activation_relu(f.element_wise_add(_convolved(draft, x, 16), x)),)


def _separable_convolution(draft: Draft) -> tuple[Tensor, ...]:
    x = draft.input()
    channels = x.sizes[1]
    filters = draft.constant((channels, 1, 3, 3))
    inner = f.convolution(x, filters, group_count=channels, start_padding=(1, 1), end_padding=(1, 1))
    inner = f.element_wise_clip(inner, min=0.0, max=6.0)
    return (f.element_wise_add(f.convolution(inner, draft.constant((channels, channels, 1, 1))), x),)


def _down_and_up(draft: Draft) -> tuple[Tensor, ...]:
    """A convolution at half the size, with a skip connection."""
    batch, channels, height, width = draft.sizes
    x = f.activation_relu(_convolved(draft, draft.input((batch, 2, 2 * height, 2 * width)), channels))
    small = _convolved(draft, f.max_pooling(x, window_size=(2, 2), strides=(2, 2)), channels)
    mode = InterpolationMode.NEAREST_NEIGHBOR
    large = f.upsample_2d(f.activation_relu(small), scale_size=Size2D(2, 2), interpolation_mode=mode)
    return (f.activation_relu(_convolved(draft, f.join([large, x], axis=1), 2)),)


def _branches(draft: Draft) -> tuple[Tensor, ...]:
    """Split a tensor, process the parts differently and join them; one is an output, too."""
    x = f.element_wise_clip(draft.input((draft.sizes[0], 6, *draft.sizes[2:])), min=-2, max=2)
    pieces = f.split(x, axis=1, output_sizes=[(x.sizes[0], count, *x.sizes[2:]) for count in (1, 2, 3)])
    ways = [f.element_wise_abs(pieces[0]), _convolved(draft, pieces[1], 2), f.activation_relu(pieces[2])]
    ways.append(f.max_pooling(pieces[1], window_size=(3, 3), strides=(1, 1), start_padding=(1, 1), end_padding=(1, 1)))
    return f.join(ways, axis=1), ways[2]


# ---- quantized layers ------------------------------------------------------------------------------------------------


def _scaled(draft: Draft, x: Tensor, scale: float, zero: int, *, kind: DataType = DataType.UINT8) -> Tensor:
    """Quantize or dequantize."""
    single = (1, 1, 1, 1)
    real = x.data_type if x.data_type.is_float else draft.data_type
    parameters = [draft.numbers([scale], real, single), draft.numbers([zero], kind, single)]
    function = f.element_wise_quantize_linear if x.data_type.is_float else f.element_wise_dequantize_linear
    return function(x, *(parameter.broadcast_to(x.sizes) for parameter in parameters))


def _quantized_and_back(draft: Draft) -> tuple[Tensor, ...]:
    """Quantize to eight bits and back between two operators: the rounding must not be optimized away."""
    x = f.element_wise_add(draft.input(), draft.input())
    return (f.activation_relu(_scaled(draft, _scaled(draft, x, 0.5, 9), 0.5, 9)),)


def _quantized_product(draft: Draft) -> tuple[Tensor, ...]:
    """Both matrices are dequantized, the product is quantized."""
    *batch, rows, columns = draft.sizes
    a, b = draft.input((*batch, rows, 5), DataType.UINT8, high=20), draft.input((*batch, 5, columns), DataType.INT8)
    left = _scaled(draft, a, 0.25, 8)
    return (_scaled(draft, f.gemm(left, _scaled(draft, b, 0.5, 1, kind=DataType.INT8)), 0.5, 100),)


def _product_by_blocks(
    draft: Draft,
    columns: int,
    x: Tensor | None = None,
    *,
    kind: DataType = DataType.UINT8,
    owned: bool = False,
) -> Tensor:
    """The columns of a product are dequantized in blocks."""
    *batch, rows, _ = draft.sizes
    blocks = (*batch, columns, 2)
    integers = draft.input((*batch, columns, 32), kind, high=15, owned=owned)
    zero = draft.input(blocks, kind, high=15, owned=owned)
    parameters = (draft.input(blocks, owned=owned), zero)
    weights = f.dequantize(integers, parameters, quantization_type=QuantizationType.SCALE_ZERO_POINT)
    rows_of = draft.input((*batch, rows, 32)) if x is None else x
    return f.gemm(rows_of, weights, trans_b=MatrixTransform.TRANSPOSE)


def _quantized_columns(draft: Draft) -> tuple[Tensor, ...]:
    """A product by dequantized blocks has a bias."""
    return (f.element_wise_add(_product_by_blocks(draft, draft.sizes[-1]), draft.input()),)


def _quantized_rows(draft: Draft) -> tuple[Tensor, ...]:
    """The rows of a product by dequantized blocks are rounded to 8 bits in these blocks, too."""
    *batch, rows, _ = draft.sizes
    x = f.element_wise_negate(draft.input((*batch, rows, 2, 16)))
    scale = draft.numbers([0.25]).broadcast_to(x.sizes)
    codes = f.element_wise_quantize_linear(x, scale, output_type=DataType.INT8)
    rounded = f.element_wise_dequantize_linear(codes, scale).reinterpret((*batch, rows, 32))
    return (f.activation_relu(_product_by_blocks(draft, draft.sizes[-1], rounded)),)


def _normalized_columns(draft: Draft) -> tuple[Tensor, ...]:
    """Rows are divided by their root mean square, and scaled, before products by dequantized blocks; once the rows are
    scaled, and once one of the products has two columns to an output."""
    *batch, rows, _ = draft.sizes
    x = draft.input((*batch, rows, 32))
    scale = draft.input((1, 1, 1, 32)).broadcast_to(x.sizes)
    scaled, plain = (
        f.mean_variance_normalization2(x, scale=by, axes=(3,), use_mean=False, epsilon=0.125) for by in (scale, None)
    )
    halves = [draft.sizes, draft.sizes]
    gate, up = f.split(_product_by_blocks(draft, 2 * draft.sizes[-1], plain), axis=3, output_sizes=halves)
    product = f.activation_relu(_product_by_blocks(draft, draft.sizes[-1], scaled))
    return product, f.element_wise_multiply(f.activation_relu(gate), up)


def _gated_columns(draft: Draft) -> tuple[Tensor, ...]:
    """One half of a product by dequantized blocks is the gate of the other."""
    halves = [draft.sizes, draft.sizes]
    gate, up = f.split(_product_by_blocks(draft, 2 * draft.sizes[-1]), axis=3, output_sizes=halves)
    return (f.element_wise_multiply(f.activation_relu(gate), up),)


def _selected_columns(draft: Draft) -> tuple[Tensor, ...]:
    """Groups of rows are multiplied by matrices that they select among three; a fourth one has only zeros."""
    _, groups, rows, columns = draft.sizes
    selection = draft.input((1, groups), DataType.UINT32, high=3)
    words = draft.input((3, 4 * columns), DataType.UINT32, high=0xFFFFFFFF)
    scale = draft.input((3, 2 * columns))
    words, scale = (f.gather(x, selection, axis=0, index_dimensions=1) for x in (words, scale))
    codes = words.reinterpret((1, groups, columns, 32), None, DataType.UINT4)
    scale = scale.reinterpret((1, groups, columns, 2))
    weights = f.dequantize(codes, (scale,), quantization_type=QuantizationType.SCALE)
    product = f.gemm(draft.input((1, groups, rows, 32)), weights, trans_b=MatrixTransform.TRANSPOSE)
    return (f.activation_relu(product),)


def _gathered_rows(draft: Draft) -> tuple[Tensor, ...]:
    """Embeddings of tokens, and the factors of their positions, which two steps read, are rows of tables; others have
    only zeros. A single row is normalized and multiplied by dequantized blocks; the tokens are counted."""
    *_, rows, columns = draft.sizes
    tokens, positions = (draft.input((1, rows), DataType.UINT32, high=6) for _ in range(2))

    def gathered(data: Tensor, numbers: Tensor) -> Tensor:
        return f.gather(data, numbers, axis=0, index_dimensions=1)

    x = gathered(draft.input((5, 32)), tokens)
    factors = [gathered(draft.input((6, 32)), positions) for _ in range(2)]
    for _ in range(2):
        product = f.gemm(x, draft.constant((32, 32)))
        x = f.element_wise_add(f.element_wise_multiply(product, factors[0]), factors[1])
    last = gathered(x, draft.input((1, 1), DataType.UINT32, high=rows))
    normalized = f.mean_variance_normalization2(last, axes=(1,), use_mean=False, epsilon=0.125)
    codes, scale = draft.input((columns, 32), DataType.UINT8, high=15), draft.input((columns, 2))
    weights = f.dequantize(codes, (scale,), quantization_type=QuantizationType.SCALE)
    result = f.gemm(normalized, weights, trans_b=MatrixTransform.TRANSPOSE)
    return x, result, f.element_wise_add(tokens, draft.numbers([1], DataType.UINT32, (1, 1)).broadcast_to((1, rows)))


def _owned_columns(draft: Draft) -> tuple[Tensor, ...]:
    """Products by 4-bit blocks that the initialization lays out have a bias; one of them has a single row. It would
    dequantize the blocks if the floats were few."""
    columns = 72
    row = draft.input((*draft.sizes[:-2], 1, 32))
    product, of_row = (_product_by_blocks(draft, columns, x, kind=DataType.UINT4, owned=True) for x in (None, row))
    biased = f.element_wise_add(product, draft.input((*draft.sizes[:-1], columns)))
    return biased, f.element_wise_add(of_row, draft.input((*draft.sizes[:-2], 1, columns)))


def _tied_columns(draft: Draft) -> tuple[Tensor, ...]:
    """Columns of a product by 4-bit blocks that the initialization lays out are gathered, as tied embeddings are. It
    would dequantize them if the floats were few."""
    rows, columns = math.prod(draft.sizes[:-1]), 576
    words = draft.input((columns, 4), DataType.UINT32, high=0xFFFFFFFF, owned=True)
    scale = draft.input((columns, 2), owned=True)
    numbers = draft.input((1, 3), DataType.UINT32, high=columns)

    def dequantized(words: Tensor, scale: Tensor) -> Tensor:
        codes = words.reinterpret((words.sizes[0], 32), None, DataType.UINT4)
        return f.dequantize(codes, (scale,), quantization_type=QuantizationType.SCALE)

    product = f.gemm(draft.input((rows, 32)), dequantized(words, scale), trans_b=MatrixTransform.TRANSPOSE)
    gathered = (f.gather(x, numbers, axis=0, index_dimensions=1) for x in (words, scale))
    return product, dequantized(*gathered)


def _gated_owned_columns(draft: Draft) -> tuple[Tensor, ...]:
    """One half of a product by 8-bit blocks that the initialization lays out is the gate of the other."""
    columns = 72
    halves = [(*draft.sizes[:-1], columns)] * 2
    gate, up = f.split(_product_by_blocks(draft, 2 * columns, owned=True), axis=3, output_sizes=halves)
    return (f.element_wise_multiply(f.activation_relu(gate), up),)


def _quantized_convolution(draft: Draft) -> tuple[Tensor, ...]:
    """The image is dequantized before a convolution with known filters, and quantized after its activation."""
    batch, _, *image = draft.sizes
    x = _scaled(draft, draft.input((batch, 2, *image), DataType.UINT8, high=30), 0.25, 16)
    return (_scaled(draft, f.activation_relu(_convolved(draft, x, 3)), 0.5, 0),)


def _cast_around(draft: Draft) -> tuple[Tensor, ...]:
    """A product of float16 in the middle of floats, or the other way round."""
    other = DataType.FLOAT16 if draft.data_type is DataType.FLOAT32 else DataType.FLOAT32
    *batch, _, columns = draft.sizes
    x = f.cast(draft.input(), output_type=other)
    product = f.gemm(x, draft.input((*batch, columns, columns), other))
    return (f.cast(f.activation_relu(product), output_type=draft.data_type),)


# ---- memory ----------------------------------------------------------------------------------------------------------


def _updates_in_place(draft: Draft) -> tuple[Tensor, ...]:
    """Every result could replace an operand in place: some operands are read again, others are not."""
    x, y = f.element_wise_negate(draft.input()), draft.input()
    for _ in range(3):
        sums = f.reduce(x, function=ReduceFunction.MAX, axes=(1,))
        x = f.element_wise_subtract(x, y)
        x = f.element_wise_add(x, sums.broadcast_to(x.sizes))
        y = f.cumulative_summation(f.element_wise_max(y, x), axis=3)
        y = f.element_wise_clip(y, min=-9, max=9)
    return x, y


def _several_outputs(draft: Draft) -> tuple[Tensor, ...]:
    """Outputs that are read, one value as two outputs, and one that depends on nothing."""
    x = f.element_wise_add(draft.input(), draft.input())
    y = f.element_wise_abs(x)
    known = f.element_wise_add(draft.constant((1, 1, 1, 8)), draft.constant((1, 1, 1, 8)))
    return f.element_wise_multiply(y, x), y, x, y, known


def _single_numbers(draft: Draft) -> tuple[Tensor, ...]:
    """Constants of one element and of several, before and after a product."""
    *batch, _, columns = draft.sizes

    def number(value: float) -> Tensor:
        return draft.numbers([value]).broadcast_to(draft.sizes)

    x = f.element_wise_add(draft.input(), number(3))
    clipped = f.element_wise_max(f.element_wise_min(x, number(6)), number(0))
    product = f.element_wise_multiply(f.gemm(clipped, draft.input((*batch, columns, columns))), number(-2))
    bias = draft.constant((1, 1, 1, columns)).broadcast_to(draft.sizes)
    return f.element_wise_add(f.element_wise_add(product, bias), number(0)), f.element_wise_multiply(clipped, number(1))


def _two_readers(draft: Draft) -> tuple[Tensor, ...]:
    """Read a tensor twice that is no output: it can be fused into neither reader."""
    *batch, _, columns = draft.sizes
    x = f.gemm(draft.input(), draft.input((*batch, columns, columns)))
    return f.activation_relu(x), f.element_wise_negate(x)


def _read_anew(draft: Draft) -> tuple[Tensor, ...]:
    """Edges that change ranks, sizes, strides and types."""
    batch, channels, height, width = draft.sizes
    x = f.element_wise_negate(draft.input((batch, channels, height, width)))
    flat = f.element_wise_abs(x.reinterpret((batch * channels * height * width,)))
    turned = flat.reinterpret((batch, width, channels * height), (channels * height * width, 1, width))
    words = (flat.desc.byte_size // 4,)
    bit = draft.numbers([1], DataType.UINT32).broadcast_to(words)
    bits = f.element_wise_bit_xor(flat.reinterpret(words, dtype=DataType.UINT32), bit)
    back = bits.reinterpret((batch, channels * height, width), dtype=draft.data_type)
    return f.activation_relu(turned), f.element_wise_max(back, back)


def _sparse_rows(draft: Draft) -> tuple[Tensor, ...]:
    """Tensors whose rows lie apart, one after the other, read as they were written and otherwise."""
    batch, channels, height, width = draft.sizes
    pitch = width + 8 // (draft.data_type.bits // 8)
    strides = (channels * height * pitch, height * pitch, pitch, 1)
    x = draft.input(draft.sizes, strides=strides)
    y = f.element_wise_abs(x)
    part = f.slice1(y, input_window_offsets=(0, 0, 1, 0), input_window_sizes=(batch, channels, height - 1, width))
    return f.element_wise_add(x, y), f.activation_relu(part)


def _scattered_pieces(draft: Draft) -> tuple[Tensor, ...]:
    """A table is built of slices of itself, and gathered from."""
    batch, channels, height, width = draft.sizes
    x = f.element_wise_negate(draft.input())
    halves = [
        f.slice1(x, input_window_offsets=(0, 0, first, 0), input_window_sizes=(batch, channels, height - 1, width))
        for first in (1, 0)
    ]
    table = f.join([f.element_wise_abs(halves[0]), halves[1]], axis=2)
    indices = draft.input((1, 1, 1, 3), DataType.UINT32, high=2 * height - 3)
    return (f.activation_relu(f.gather(table, indices, axis=2, index_dimensions=1)),)


PATTERNS: Mapping[str, tuple[Pattern, Types]] = {
    "attention": (_attention, FLOATS),
    "bare_attention": (_bare_attention, FLOATS),
    "transposed_attention": (_transposed_attention, FLOATS),
    "attention_with_scores": (_attention_with_scores, FLOATS),
    "quantized_cache": (_quantized_cache, FLOATS),
    "updated_cache": (_updated_cache, FLOATS),
    "rotated_columns": (_rotated_columns, FLOATS),
    "gathered_heads": (_gathered_heads, FLOATS),
    "gathered_rows": (_gathered_rows, FLOATS),
    "normalized_scores": (_normalized_scores, FLOATS),
    "perceptron": (_perceptron, FLOATS),
    "convolution_normalization_relu": (_convolution_normalization_relu, FLOATS),
    "padded_convolution": (_padded_convolution, FLOATS),
    "strided_convolutions": (_strided_convolutions, FLOATS),
    "grouped_convolutions": (_grouped_convolutions, FLOATS),
    "biased_convolutions": (_biased_convolutions, (DataType.FLOAT32,)),
    "normalized_residual": (_normalized_residual, FLOATS),
    "owned_convolution": (_owned_convolution, FLOATS),
    "owned_normalization": (_owned_normalization, FLOATS),
    "changing_filters": (_changing_filters, FLOATS),
    "normalized_transposed_convolution": (_normalized_transposed_convolution, FLOATS),
    "normalized_groups": (_normalized_groups, FLOATS),
    "shared_filters": (_shared_filters, FLOATS),
    "residual_blocks": (_residual_blocks, FLOATS),
    "dense_convolution": (_dense_convolution, FLOATS),
    "separable_convolution": (_separable_convolution, FLOATS),
    "down_and_up": (_down_and_up, FLOATS),
    "branches": (_branches, FLOATS),
    "quantized_and_back": (_quantized_and_back, FLOATS),
    "quantized_product": (_quantized_product, FLOATS),
    "quantized_columns": (_quantized_columns, FLOATS),
    "quantized_rows": (_quantized_rows, FLOATS),
    "gated_columns": (_gated_columns, FLOATS),
    "normalized_columns": (_normalized_columns, FLOATS),
    "selected_columns": (_selected_columns, FLOATS),
    "owned_columns": (_owned_columns, FLOATS),
    "gated_owned_columns": (_gated_owned_columns, FLOATS),
    "tied_columns": (_tied_columns, FLOATS),
    "quantized_convolution": (_quantized_convolution, FLOATS),
    "cast_around": (_cast_around, FLOATS),
    "updates_in_place": (_updates_in_place, WORDS),
    "several_outputs": (_several_outputs, SIGNED),
    "single_numbers": (_single_numbers, FLOATS),
    "two_readers": (_two_readers, FLOATS),
    "read_anew": (_read_anew, SIGNED),
    "sparse_rows": (_sparse_rows, SIGNED),
    "scattered_pieces": (_scattered_pieces, SIGNED),
}
"""Patterns by name, and for which types."""

QUICK_PATTERNS = (
    "pattern-quantized_product-float32-plain",
    "pattern-gated_columns-float32-plain",
    "pattern-normalized_columns-float32-plain",
    "pattern-quantized_rows-float32-plain",
    "pattern-selected_columns-float32-plain",
    "pattern-owned_columns-float32-plain",
    "pattern-gated_owned_columns-float32-plain",
    "pattern-tied_columns-float32-plain",
    "pattern-cast_around-float16-odd",
    "pattern-attention-float32-plain",
    "pattern-quantized_cache-float32-plain",
    "pattern-updated_cache-float32-plain",
    "pattern-updated_cache-float16-plain",
    "pattern-rotated_columns-float16-plain",
    "pattern-convolution_normalization_relu-float32-plain",
    "pattern-quantized_and_back-float16-plain",
    "pattern-updates_in_place-int32-odd",
    "pattern-read_anew-float16-plain",
    "pattern-padded_convolution-float32-odd",
    "pattern-normalized_residual-float16-plain",
    "pattern-strided_convolutions-float32-plain",
    "pattern-grouped_convolutions-float32-odd",
    "pattern-down_and_up-float32-plain",
    "pattern-biased_convolutions-float32-odd",
    "pattern-single_numbers-float16-plain",
    "pattern-separable_convolution-float32-plain",
    "pattern-dense_convolution-float16-plain",
    "pattern-bare_attention-float32-plain",
    "pattern-gathered_heads-float32-plain",
    "pattern-gathered_rows-float32-plain",
)
"""Cases of patterns in the quick profile."""
