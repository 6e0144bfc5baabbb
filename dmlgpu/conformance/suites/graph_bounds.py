"""Tolerance of the results of a graph against the reference, which computes node by node.

**Exact graphs.** If the result of every node is its exact value, rounded once to its type, all results must be bitwise
equal (apart from the sign of zeros), fused or not: moved data, integers, correctly rounded operators, and sums of
products so small that every order of summation is exact in float32. Values are rounded where an unfused graph would
store them, so a fused kernel that omits a rounding to float16 fails.

**Other graphs.** A graph with a node that has an error of its own (a function, a normalization, a sum of arbitrary
numbers) has a bound per element of its outputs, to first order the sum of the contributions of its nodes:

- A node's own error is what its operator is allowed (``cases``): some ULP, or the growth of a sum of absolute values.
  Correctly rounded operators are allowed one ULP, since WGSL lets compilers contract a product and a sum; and products
  and convolutions that are exact by themselves are allowed the error of their sum, because a subsequent normalization
  may be folded into their weights.
- Its propagation is measured, not modeled: the reference recomputes all later nodes with the node's result changed by
  its error, in eight patterns of signs (all up, all down, random ones). The largest change counts twice: the patterns
  contain the worst one if the later nodes are monotonic (element-wise operators, moves, sums of positive numbers), and
  are close to it otherwise.

The bound holds for each way to compute the graph against the truth: unfused, fused, on any adapter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dmlgpu import reference
from dmlgpu.catalog.enums import DataType, ReduceFunction
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.graph.network import Constant, Network, NetworkInput, NodeResult, Value
from dmlgpu.conformance.cases.case import Array, Arrays
from dmlgpu.conformance.cases.families.attention import attention_magnitudes
from dmlgpu.conformance.cases.families.normalization import deviation_errors, normalized_errors, wide
from dmlgpu.conformance.cases.families.reduction import reduction_magnitude, reduction_tolerance
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.cases.tolerance import Accumulated, Bound, Transformed, ulp
from dmlgpu.reference.attention import operands

PATTERNS = 8
"""Patterns of signs in which a node's result is changed."""

FUNCTIONS: Mapping[str, float] = {
    "ELEMENT_WISE_EXP": 2,
    "ELEMENT_WISE_SQRT": 1,
    "ELEMENT_WISE_DIVIDE": 3,
    "ELEMENT_WISE_RECIP": 3,
    "ELEMENT_WISE_TANH": 4,
    "ELEMENT_WISE_ERF": 4,
    "ACTIVATION_SIGMOID": 4,
    "ACTIVATION_TANH": 4,
    "ACTIVATION_GELU": 4,
    "CUMULATIVE_PRODUCT": 1,
}
"""ULP of float32 that a function may be off; one of float16."""

MOVES = frozenset(
    f"{name}{version}"
    for name in (
        *("SLICE", "SPLIT", "JOIN", "PADDING", "TILE", "GATHER", "GATHER_ND", "GATHER_ELEMENTS", "DEPTH_TO_SPACE"),
        *("SPACE_TO_DEPTH", "MAX_POOLING", "ELEMENT_WISE_NEGATE", "ELEMENT_WISE_ABS", "ELEMENT_WISE_MAX", "ONE_HOT"),
        *("ELEMENT_WISE_MIN", "ELEMENT_WISE_CLIP", "ACTIVATION_RELU", "REVERSE_SUBSEQUENCES", "ELEMENT_WISE_IF"),
    )
    for version in ("", "1", "2")
)
"""Operators that return their inputs unchanged or negated."""

_STORING = ("MULTIHEAD_ATTENTION1",)
"""Operators whose outputs after the first one are inputs, unchanged."""


# ---- what each node may add ------------------------------------------------------------------------------------------


def _own_errors(desc: OperatorDesc, arrays: Arrays, results: Sequence[Array], *, exact: bool) -> list[Bound]:
    """Return a node's own errors per output.

    Args:
        desc: Its description.
        arrays, results: What it reads and makes.
        exact: Whether what is exact counts as such, although later nodes may be folded into it.
    """
    return [
        np.zeros(result.shape)
        if result.dtype.kind != "f" or desc.operator in MOVES or (desc.operator in _STORING and index)
        else _error_of_float(desc, arrays, result, exact)
        for index, result in enumerate(results)
    ]


def _error_of_float(desc: OperatorDesc, arrays: Arrays, result: Array, exact: bool) -> Bound:
    name = desc.operator
    if name in FUNCTIONS:
        count = 1 if result.dtype == np.float16 else FUNCTIONS[name]
        return count * ulp(result)
    if name in _NORMALIZATIONS:
        terms, magnitude = _NORMALIZATIONS[name](desc, arrays)
        return Accumulated(terms).bound(result, magnitude)
    if name == "REDUCE" and desc.values["function"] not in _EXACT_REDUCTIONS:
        return _error_of_reduction(desc, arrays, result)
    if name.startswith(_SUMS):
        magnitude = _absolute_sum(desc, arrays)
        if exact and _is_exact(arrays, magnitude):
            return np.zeros(result.shape)
        terms = max(1, max(array.size for array in arrays if array is not None) // max(1, result.shape[0]))
        kind = Transformed if name == "CONVOLUTION" else Accumulated
        return kind(terms).bound(result, magnitude)
    return np.zeros(result.shape) if exact else ulp(result)


def _error_of_reduction(desc: Any, arrays: Arrays, result: Array) -> Bound:
    values = np.asarray(arrays[0], np.float64)
    tolerance = reduction_tolerance(desc.function, desc.input_tensor.data_type)
    return tolerance.bound(result, reduction_magnitude(desc.function, values, desc.axes))


_EXACT_REDUCTIONS = frozenset({ReduceFunction.SUM, ReduceFunction.L1, ReduceFunction.MAX, ReduceFunction.MIN})
"""Functions of REDUCE that are exact where sums of absolute values are."""

_SUMS = (
    *("CONVOLUTION", "GEMM", "REDUCE", "AVERAGE_POOLING", "CUMULATIVE_SUMMATION", "RESAMPLE", "UPSAMPLE_2D"),
    *("MATRIX_MULTIPLY_INTEGER_TO_FLOAT", "ELEMENT_WISE_IDENTITY", "VALUE_SCALE_2D"),
)


def _absolute_sum(desc: OperatorDesc, arrays: Arrays) -> Bound:
    """Return the sum of the absolute values of all terms."""
    sizes = tuple(None if array is None else np.abs(array.astype(_wide(array))) for array in arrays)
    scaling = desc.values.get("scale_bias")
    if scaling is not None:
        return abs(scaling.scale) * np.asarray(sizes[0], np.float64) + abs(scaling.bias)
    (total, *_) = reference.evaluate(_plain(desc), sizes)
    return np.asarray(total, np.float64)


def _wide(array: Array) -> Any:
    return np.float32 if array.dtype == np.float16 else array.dtype


def _plain(desc: OperatorDesc) -> OperatorDesc:
    """Return the description with packed float32 in place of float16, so that large sums stay finite."""

    def widened(value: Any) -> Any:
        if isinstance(value, TensorDesc) and value.data_type is DataType.FLOAT16:
            return TensorDesc(DataType.FLOAT32, value.sizes)
        return tuple(map(widened, value)) if isinstance(value, tuple) else value

    fields = (*desc.input_fields, *desc.output_fields)
    return desc.replace(**{field: widened(desc.values[field]) for field in fields})


def _is_exact(arrays: Arrays, magnitude: Bound) -> bool:
    """Return whether sums of products are exact in float32 in any order: as multiples of a common divisor of all terms,
    they stay below 2^24."""
    unit = math.prod(_granularity(array) for array in arrays if array is not None and array.dtype.kind == "f") / 16
    return bool(magnitude.max(initial=0) < unit * 2**24) and unit > 0


def _granularity(array: Array) -> float:
    """Return a power of two, at most 1, that all elements are multiples of; 0 if there is none above 2^-10."""
    units = (2.0**-power for power in range(11))
    return next((unit for unit in units if (np.asarray(array / unit) % 1 == 0).all()), 0.0)


_Magnitude = Callable[[Any, Arrays], tuple[int, Bound]]


def _of_softmax(desc: Any, arrays: Arrays) -> tuple[int, Bound]:
    values = arrays[0]
    assert values is not None
    cases: Any = OPERATOR_CASES[desc.stem]
    return math.prod(values.shape[axis] for axis in desc.axes), cases.magnitude(desc, values, desc.axes)


def _of_mean_variance(desc: Any, arrays: Arrays) -> tuple[int, Bound]:
    x, scale, bias = wide(arrays[0]), wide(arrays[1], 1), wide(arrays[2])
    mean = x.mean(desc.axes, keepdims=True)
    factor = scale / np.sqrt(np.square(x - mean).mean(desc.axes, keepdims=True) + desc.epsilon)
    count = math.prod(x.shape[axis] for axis in desc.axes)
    return count, normalized_errors(deviation_errors(x, mean, desc.axes), factor, bias)


def _of_batch(desc: Any, arrays: Arrays) -> tuple[int, Bound]:
    x, mean, variance, scale, bias = map(wide, arrays)
    factor = scale / np.sqrt(variance + desc.epsilon)
    return 1, normalized_errors(np.abs(x) + np.abs(mean), factor, bias)


def _of_local_response(desc: Any, arrays: Arrays) -> tuple[int, Bound]:
    cases: Any = OPERATOR_CASES[desc.stem]
    return desc.local_size, cases.magnitude(desc, arrays)


def _of_attention(desc: Any, arrays: Arrays) -> tuple[int, Bound]:
    _, keys, _ = operands(desc, arrays)
    return keys.shape[2], attention_magnitudes(desc, arrays)[0]


_NORMALIZATIONS: Mapping[str, _Magnitude] = {
    "ACTIVATION_SOFTMAX1": _of_softmax,
    "ACTIVATION_LOG_SOFTMAX1": _of_softmax,
    "MEAN_VARIANCE_NORMALIZATION2": _of_mean_variance,
    "BATCH_NORMALIZATION": _of_batch,
    "LOCAL_RESPONSE_NORMALIZATION": _of_local_response,
    "MULTIHEAD_ATTENTION1": _of_attention,
}


# ---- what becomes of it ----------------------------------------------------------------------------------------------

_Bytes = Any


@dataclass
class _Evaluation:
    """A network evaluated node by node by the reference, on bytes as edges hand them on."""

    network: Network
    inputs: Sequence[Array]

    def arrays(self, index: int, results: Mapping[NodeResult, _Bytes]) -> Arrays:
        """Return the inputs of a node."""
        node = self.network.nodes[index]

        def stored(value: Value | None) -> _Bytes:
            match value:
                case NodeResult():
                    return results[value]
                case Constant():
                    return np.frombuffer(self.network.constants[value.index], np.uint8)
                case NetworkInput():
                    return self.inputs[value.index].view(np.uint8)
            return None

        return tuple(
            None if slot.tensor is None else slot.tensor.decode(np.resize(stored(value), slot.tensor.byte_size))
            for slot, value in zip(node.desc.inputs, node.inputs, strict=True)
        )

    def run(self, known: Mapping[NodeResult, _Bytes], changed: Mapping[NodeResult, _Bytes]) -> dict[NodeResult, _Bytes]:
        """Return the results of all nodes.

        Args:
            known: Results that need no computing unless something before them is changed.
            changed: Results that are taken as they are given here.
        """
        results = {**known, **changed}
        stale = set(changed)
        for index, node in enumerate(self.network.nodes):
            slots = [(NodeResult(index, output), slot) for output, slot in enumerate(node.desc.outputs)]
            fresh = all(result in results for result, slot in slots if slot.tensor is not None)
            if fresh and stale.isdisjoint(value for value in node.inputs if isinstance(value, NodeResult)):
                continue
            arrays = reference.evaluate(node.desc, self.arrays(index, results))
            for (result, slot), array in zip(slots, arrays, strict=True):
                if slot.tensor is not None and result not in changed:
                    results[result] = slot.tensor.encode(array)
                    stale.add(result)
        return results


def output_bounds(network: Network, inputs: Sequence[Array]) -> tuple[Bound, ...]:
    """Return, per output of a graph, how far each element may lie from the reference: 0 if it must be equal.

    Args:
        network: The checked graph.
        inputs: Its inputs, in memory order.
    """
    evaluation = _Evaluation(network, inputs)
    with np.errstate(all="ignore"):
        results = evaluation.run({}, {})
        errors = _all_errors(evaluation, results, exact=True)
        if any(error.any() for error in errors.values()):
            errors = _all_errors(evaluation, results, exact=False)
        bounds = [np.zeros(tensor.sizes) for tensor in network.output_tensors]
        for result, error in errors.items():
            if error.any():
                changes = _changes(evaluation, results, result, error)
                bounds = [bound + change for bound, change in zip(bounds, changes, strict=True)]
    return tuple(bounds)


def _all_errors(
    evaluation: _Evaluation, computed: Mapping[NodeResult, _Bytes], *, exact: bool
) -> dict[NodeResult, Bound]:
    errors = {}
    for index, node in enumerate(evaluation.network.nodes):
        slots = [(output, slot.tensor) for output, slot in enumerate(node.desc.outputs) if slot.tensor is not None]
        results = [tensor.decode(computed[NodeResult(index, output)]) for output, tensor in slots]
        own = _own_errors(node.desc, evaluation.arrays(index, computed), results, exact=exact)
        errors.update({NodeResult(index, output): error for (output, _), error in zip(slots, own, strict=True)})
    return errors


def _changes(
    evaluation: _Evaluation, computed: Mapping[NodeResult, _Bytes], result: NodeResult, error: Bound
) -> list[Bound]:
    """Return the changes of each output of the graph by a node's error."""
    network = evaluation.network
    tensor, ends = network.tensor(result), list(zip(network.outputs, network.output_tensors, strict=True))
    expected = [_decoded(end, computed[value]) for value, end in ends]  # type: ignore[index]
    largest = [np.zeros(end.sizes) for _, end in ends]
    rng = np.random.default_rng([result.node, result.output])
    exact = tensor.decode(computed[result]).astype(np.float64)
    for pattern in range(PATTERNS):
        signs = rng.choice([-1.0, 1.0], error.shape) if pattern > 1 else 1.0 - 2.0 * pattern
        moved = tensor.encode((exact + signs * error).astype(tensor.data_type.numpy))
        changed = evaluation.run(computed, {result: moved})
        for index, (value, end) in enumerate(ends):
            change = np.abs(_decoded(end, changed[value]) - expected[index])  # type: ignore[index]
            largest[index] = np.maximum(largest[index], np.nan_to_num(change, nan=np.inf))
    return [error if value == result else 2 * change for (value, _), change in zip(ends, largest, strict=True)]


def _decoded(tensor: TensorDesc, data: _Bytes) -> Bound:
    return tensor.decode(data).astype(np.float64)
