"""Casts between all widths before and after steps of every kind: cases of the suite ``graphs``.

``cast-input-sum-uint8-int64-float16-plain`` casts an input of uint8 to int64, sums it up, and casts the sums to
float16. Another producer (``graph_steps``) stands in place of ``input``. Steps are the consumers of pairs
(``graph_steps``) and those of this module, in all types that the operators take.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType, InterpolationMode, MatrixTransform, ReduceFunction
from dmlgpu.catalog.operator_desc import Size2D
from dmlgpu.conformance.suites.graph_steps import (
    BYTES,
    CONSUMERS,
    EVERY,
    FLOATS,
    NUMBERS,
    PRODUCERS,
    SUMMED,
    Consumer,
    Draft,
    Example,
    Types,
    most_of,
)
from dmlgpu.tensors import directml as f
from dmlgpu.tensors.tensor import Tensor

INDICES: Types = (DataType.INT32, DataType.UINT32, DataType.INT64, DataType.UINT64)

# ---- reductions and scans --------------------------------------------------------------------------------------------


def _reduction(function: ReduceFunction, axis: int) -> Consumer:
    def reduced(draft: Draft, x: Tensor) -> Tensor:
        if function is ReduceFunction.LOG_SUM:
            x = f.element_wise_clip(x, min=0.5, max=4.0)
        return f.reduce(x, function=function, axes=(axis,))

    return reduced


_REDUCED: Mapping[ReduceFunction, Types] = {
    ReduceFunction.AVERAGE: FLOATS,
    ReduceFunction.L1: SUMMED,
    ReduceFunction.L2: FLOATS,
    ReduceFunction.LOG_SUM: FLOATS,
    ReduceFunction.LOG_SUM_EXP: FLOATS,
    ReduceFunction.MAX: NUMBERS,
    ReduceFunction.MIN: NUMBERS,
    ReduceFunction.MULTIPLY: SUMMED,
    ReduceFunction.SUM: SUMMED,
    ReduceFunction.SUM_SQUARE: SUMMED,
}


def _largest(draft: Draft, x: Tensor) -> Tensor:
    """Return the largest elements of rows, more by their places."""
    values, places = map(_present, f.top_k1(x, axis=3, k=2))
    return f.element_wise_add(values, f.cast(places, output_type=x.data_type))


def _nonzero(draft: Draft, x: Tensor) -> Tensor:
    """Draw coordinates of all elements, and their count: elements after the counted coordinates are unspecified."""
    count, coordinates = map(_present, f.nonzero_coordinates(f.element_wise_clip(x, min=1.0, max=5.0)))
    return f.element_wise_add(coordinates, count.broadcast_to(coordinates.sizes))


def _present(output: Tensor | None) -> Tensor:
    assert output is not None
    return output


# ---- element by element ----------------------------------------------------------------------------------------------


def _chosen(draft: Draft, x: Tensor) -> Tensor:
    return f.element_wise_if(draft.input(data_type=DataType.UINT8, high=1), x, draft.input())


def _condition(draft: Draft, x: Tensor) -> Tensor:
    return f.element_wise_if(x, *(draft.input(data_type=DataType.INT64) for _ in range(2)))


def _chain(draft: Draft, x: Tensor) -> Tensor:
    """Arithmetic between casts of its own: to bytes and back."""
    narrow = f.cast(f.element_wise_add(x, draft.input()), output_type=DataType.INT8)
    return f.element_wise_max(f.cast(narrow, output_type=x.data_type), x)


# ---- elements at other places ----------------------------------------------------------------------------------------


def _places(draft: Draft, x: Tensor, kind: DataType) -> Tensor:
    """Three columns of each row."""
    return draft.numbers([5, 0, 2], kind, (1, 1, 1, 3)).broadcast_to((*x.sizes[:3], 3))


def _gathered_by(draft: Draft, x: Tensor) -> Tensor:
    return f.gather_elements(draft.input((*x.sizes[:3], 9), DataType.FLOAT32), x, axis=3)


def _scattered_into(draft: Draft, x: Tensor) -> Tensor:
    places = _places(draft, x, DataType.UINT32)
    return f.scatter_elements(x, places, draft.input(places.sizes), axis=3)


def _scattered(draft: Draft, x: Tensor) -> Tensor:
    *lead, width = x.sizes
    places = draft.numbers(range(width), DataType.INT32, (1, 1, 1, width)).broadcast_to(x.sizes)
    return f.scatter_elements(draft.input((*lead, width + 1)), places, x, axis=3)


def _reversed(draft: Draft, x: Tensor) -> Tensor:
    return f.reverse_subsequences(x, draft.input((*x.sizes[:3], 1), DataType.UINT32, high=x.sizes[3]), axis=3)


def _surrounded(draft: Draft, x: Tensor) -> Tensor:
    *lead, width = x.sizes
    return f.slice_grad(
        x,
        input_window_offsets=(0, 0, 0, 2),
        input_window_sizes=(*lead, 2 * width),
        input_window_strides=(1, 1, 1, 2),
        output_sizes=(*lead, 2 * width + 2),
    )


def _nearest_resampling(draft: Draft, x: Tensor) -> Tensor:
    return f.resample(x, interpolation_mode=InterpolationMode.NEAREST_NEIGHBOR, scales=(1.0, 1.0, 2.0, 2.0))


def _linear_resampling(draft: Draft, x: Tensor) -> Tensor:
    return f.resample(x, interpolation_mode=InterpolationMode.LINEAR, scales=(1.0, 1.0, 2.0, 2.0))


def _linear_upsampling(draft: Draft, x: Tensor) -> Tensor:
    return f.upsample_2d(x, scale_size=Size2D(2, 2), interpolation_mode=InterpolationMode.LINEAR)


# ---- products, windows and rows --------------------------------------------------------------------------------------


def _integer_product(draft: Draft, x: Tensor) -> Tensor:
    *batch, _, inner = x.sizes
    return f.matrix_multiply_integer(x, draft.input((*batch, inner, 4), DataType.INT8))


def _integer_convolution(draft: Draft, x: Tensor) -> Tensor:
    return f.convolution_integer(x, draft.input((4, x.sizes[1], 1, 2), DataType.UINT8))


def _attention(draft: Draft, x: Tensor) -> Tensor:
    weights = f.activation_softmax1(f.gemm(x, draft.input(), trans_b=MatrixTransform.TRANSPOSE), axes=(3,))
    return f.gemm(weights, draft.input())


def _attended(draft: Draft, x: Tensor) -> Tensor:
    weights = f.activation_softmax1(f.gemm(draft.input(), x, trans_b=MatrixTransform.TRANSPOSE), axes=(3,))
    return f.gemm(weights, x)


def _recurrence(draft: Draft, x: Tensor) -> Tensor:
    """One time step, whose sums are exact."""
    *lead, size = x.sizes
    sequences = math.prod(lead)
    weight, recurrence, start = (draft.input(sizes) for sizes in ((1, 1, 4, size), (1, 1, 4, 4), (1, 1, sequences, 4)))
    steps, activations = x.reinterpret((1, 1, sequences, size)), [descs.ActivationRelu()]
    outputs = f.rnn(steps, weight, recurrence, hidden_init=start, activation_descs=activations)
    return f.join([_present(outputs.output_sequence), _present(outputs.output_single)], axis=3)


def _softmax_of_columns(draft: Draft, x: Tensor) -> Tensor:
    return f.activation_softmax1(f.element_wise_clip(x, min=-4.0, max=4.0), axes=(1,))


def _local_response(draft: Draft, x: Tensor) -> Tensor:
    return f.local_response_normalization(x, cross_channel=True, local_size=3, alpha=0.75, beta=0.75, bias=1.5)


STEPS: Mapping[str, tuple[Consumer, Types]] = {
    **CONSUMERS,
    **{f"{function.name.lower()}_of_rows": (_reduction(function, 3), types) for function, types in _REDUCED.items()},
    **{f"{function.name.lower()}_of_columns": (_reduction(function, 1), types) for function, types in _REDUCED.items()},
    "argmax": (lambda draft, x: f.argmax(x, axes=(2, 3), output_type=DataType.INT64), NUMBERS),
    "argmin_of_columns": (lambda draft, x: f.argmin(x, axes=(1,)), NUMBERS),
    "running_product": (lambda draft, x: f.cumulative_product(x, axis=3), SUMMED),
    "running_sum_of_columns": (lambda draft, x: f.cumulative_summation(x, axis=1), SUMMED),
    "largest": (_largest, NUMBERS),
    "nonzero": (_nonzero, tuple(kind for kind in NUMBERS if kind.bits < 64)),
    "greater": (lambda draft, x: f.element_wise_logical_greater_than(x, draft.input()), NUMBERS),
    "equal": (lambda draft, x: f.element_wise_logical_equals(draft.input(), x, output_type=DataType.UINT32), NUMBERS),
    "quotient": (lambda draft, x: f.element_wise_divide(x, draft.input(low=1)), NUMBERS),
    "remainder": (lambda draft, x: f.element_wise_modulus_floor(x, draft.input(low=1)), NUMBERS),
    "chosen": (_chosen, EVERY),
    "condition": (_condition, (DataType.UINT8,)),
    "common_bits": (lambda draft, x: f.element_wise_bit_and(draft.input(), x), EVERY),
    "count_of_bits": (lambda draft, x: f.element_wise_bit_count(x), EVERY),
    "sign": (lambda draft, x: f.element_wise_sign(x), NUMBERS),
    "chain": (_chain, NUMBERS),
    "gathered_elements": (lambda draft, x: f.gather_elements(x, _places(draft, x, DataType.INT64), axis=3), EVERY),
    "gathered_by": (_gathered_by, INDICES),
    "scattered_into": (_scattered_into, EVERY),
    "scattered": (_scattered, EVERY),
    "reversed": (_reversed, EVERY),
    "surrounded": (_surrounded, EVERY),
    "nearest_resampling": (_nearest_resampling, (*FLOATS, *BYTES)),
    "linear_resampling": (_linear_resampling, (*FLOATS, *BYTES)),
    "linear_upsampling": (_linear_upsampling, FLOATS),
    "integer_product": (_integer_product, BYTES),
    "integer_convolution": (_integer_convolution, BYTES),
    "attention": (_attention, FLOATS),
    "attended": (_attended, FLOATS),
    "recurrence": (_recurrence, FLOATS),
    "average_pooling": (lambda draft, x: f.average_pooling(x, window_size=(2, 2)), FLOATS),
    "softmax_of_columns": (_softmax_of_columns, FLOATS),
    "local_response": (_local_response, FLOATS),
}
"""Consumers of a tensor that was cast, by name, with their types."""


# ---- cases -----------------------------------------------------------------------------------------------------------

INPUT = "input"

SIZES = {"plain": (2, 4, 6, 8), "odd": (1, 3, 5, 7), "long": (1, 34, 2, 68)}
"""Sizes of the tensor that is cast: whole units of four elements; none; rows that workgroups share or that are cut."""

MAX_MAGNITUDE = 300
"""The largest integer of an input that is cast to integers: bytes wrap."""


@dataclass(frozen=True)
class Casts:
    """Key of a graph: a producer, casts before and after a step, and the types between them.

    Attributes:
        producer: Producer of a tensor of type ``first``; INPUT for an input of the graph.
        step: Its consumer, after a cast to ``second``.
        last: The type to which its result is cast.
        variant: The sizes.
    """

    producer: str
    step: str
    first: DataType
    second: DataType
    last: DataType
    variant: str

    def __str__(self) -> str:
        types = (data_type.name.lower() for data_type in (self.first, self.second, self.last))
        return "-".join(("cast", self.producer, self.step, *types, self.variant))

    @classmethod
    def parse(cls, name: str) -> Casts | None:
        """Return the case that a name spells, if it spells one."""
        kind, _, rest = name.partition("-")
        parts = rest.split("-")
        if kind != "cast" or len(parts) != 6 or not set(parts[2:5]) <= _TYPES.keys():
            return None
        first, second, last = (_TYPES[part] for part in parts[2:5])
        makes, takes = _MAKES.get(parts[0], ()), STEPS.get(parts[1], (None, ()))[1]
        known = first in makes and second in takes and parts[5] in SIZES
        return cls(parts[0], parts[1], first, second, last, parts[5]) if known else None

    def example(self) -> Example:
        """Return the graph and its inputs."""
        draft = Draft(str(self), self.first, SIZES[self.variant])
        maximum = most_of(self.second) if self.second.is_float else MAX_MAGNITUDE
        produced = (
            draft.input(low=-maximum, high=maximum) if self.producer == INPUT else PRODUCERS[self.producer][0](draft)
        )
        draft.data_type = self.second
        read = STEPS[self.step][0](draft, f.cast(produced, output_type=self.second))
        return draft.example([f.cast(read, output_type=self.last)])


_TYPES = {data_type.name.lower(): data_type for data_type in EVERY}
_MAKES: Mapping[str, Types] = {INPUT: EVERY, **{name: types for name, (_, types) in PRODUCERS.items()}}


@functools.cache
def all_casts() -> dict[str, Casts]:
    """Cases by their names: every pair of types before each step, and after it; and after each producer."""
    return {str(case): case for case in (*_around_steps(), *_after_producers())}


def _around_steps() -> Iterator[Casts]:
    """Casts of an input to each type of each step, and of the step's result to another; two of three also in other
    sizes."""
    for step, (_, types) in STEPS.items():
        for (turn, second), (index, first) in itertools.product(enumerate(types), enumerate(EVERY)):
            last = EVERY[(index + turn + 1) % len(EVERY)]
            for variant in dict.fromkeys(("plain", tuple(SIZES)[(index + turn) % len(SIZES)])):
                yield Casts(INPUT, step, first, second, last, variant)


def _after_producers() -> Iterator[Casts]:
    """Casts of each producer's result, of each of its types, to each type, for steps in turn."""
    steps = {
        second: itertools.cycle([step for step, (_, types) in STEPS.items() if second in types]) for second in EVERY
    }
    produced = ((producer, first) for producer, (_, types) in PRODUCERS.items() for first in types)
    for turn, ((producer, first), (index, second)) in enumerate(itertools.product(produced, enumerate(EVERY))):
        last, variant = EVERY[(turn + index) % len(EVERY)], "plain" if turn % 3 else "odd"
        yield Casts(producer, next(steps[second]), first, second, last, variant)
