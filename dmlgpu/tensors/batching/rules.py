"""Rules by which operators compute a whole batch at once.

A rule takes a `BatchedCall`, a call on one element of the batch, and returns the inputs and attributes with which the
operator computes all elements. Its outputs then hold the batch first. Operators without a rule are called for each
element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.tensors.preparation import signature

Values: TypeAlias = dict[str, Any]


class BatchedCall(Protocol):
    """A call of an operator on one element of a batch.

    Attributes:
        desc: Description of the call, with all attributes.
        inputs: The inputs that are there, by field.
        size: Number of elements in the batch.
    """

    desc: Any
    inputs: Mapping[str, Any]
    size: int

    def is_batched(self, field: str) -> bool:
        """Return whether an input differs between the elements of the batch."""

    def whole(self, field: str, rank: int | None = None) -> Any:
        """Return an input of all elements: the axis of the batch, then those of one element.

        Args:
            field: The input. One that the elements share is repeated.
            rank: Number of axes of one element, to which axes of size 1 are added in front; defaults to its own.
        """


Rule: TypeAlias = Callable[[Any], Values | None]
"""A rule; it returns None for calls that it cannot batch."""

RULES: dict[str, Rule] = {}
"""Rules by operator; elementwise operators share one that is not listed here."""


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register the rule of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


def rule_of(operator: str) -> Rule | None:
    """Return the rule of an operator; None if it has none."""
    if operator in RULES:
        return RULES[operator]
    known = signature(operator)
    is_elementwise = operator.startswith(("ELEMENT_WISE_", "ACTIVATION_")) or operator == "CAST"
    has_axes = not known.attributes.keys().isdisjoint(("axis", "axes"))
    return _elementwise if is_elementwise and known.keeps_rank and not has_axes else None


def _elementwise(call: BatchedCall) -> Values:
    """Give batched inputs equal ranks, so that inputs broadcast."""
    rank = max(len(getattr(value, "sizes", ())) for value in call.inputs.values())
    return {field: call.whole(field, rank) if call.is_batched(field) else value for field, value in call.inputs.items()}


def _wholes(call: BatchedCall) -> Values:
    return {field: call.whole(field) for field in call.inputs}


@rule("ACTIVATION_SOFTMAX", "ACTIVATION_LOG_SOFTMAX", "ACTIVATION_HARDMAX")
def _over_all_but_the_first_axis(call: BatchedCall) -> None:
    return None


@rule(
    "REDUCE", "ARGMAX", "ARGMIN", "ACTIVATION_SOFTMAX1", "ACTIVATION_LOG_SOFTMAX1", "ACTIVATION_HARDMAX1",
    "MEAN_VARIANCE_NORMALIZATION1", "MEAN_VARIANCE_NORMALIZATION2",
)  # fmt: skip
def _along_axes(call: BatchedCall) -> Values:
    return {**_wholes(call), "axes": tuple(axis + 1 for axis in call.desc.axes)}


@rule(
    "CUMULATIVE_SUMMATION", "CUMULATIVE_PRODUCT", "JOIN", "SPLIT", "GATHER_ELEMENTS", "SCATTER_ELEMENTS", "TOP_K",
    "TOP_K1", "LP_NORMALIZATION",
)  # fmt: skip
def _along_an_axis(call: BatchedCall) -> Values:
    return {**_wholes(call), "axis": call.desc.axis + 1}


_UNCHANGED: dict[str, dict[str, int | None]] = {
    "SLICE": {"offsets": 0, "sizes": None, "strides": 1},
    "SLICE1": {"input_window_offsets": 0, "input_window_sizes": None, "input_window_strides": 1},
    "SLICE_GRAD": {"input_window_offsets": 0, "input_window_sizes": None, "input_window_strides": 1},
    "PADDING": {"start_padding": 0, "end_padding": 0},
    "PADDING1": {"start_padding": 0, "end_padding": 0},
    "TILE": {"repeats": 1},
}
"""Attributes with a value per axis, and the value that leaves an axis as it is; None is the size of the axis."""


@rule(*_UNCHANGED)
def _per_axis(call: BatchedCall) -> Values:
    values = _wholes(call)
    for name, unchanged in _UNCHANGED[call.desc.operator].items():
        values[name] = (call.size if unchanged is None else unchanged, *getattr(call.desc, name))
    return values


@rule("GATHER")
def _gather(call: BatchedCall) -> Values | None:
    axis, count = call.desc.axis, call.desc.index_dimensions
    table, indices = call.inputs["input_tensor"], call.inputs["indices_tensor"]
    if not call.is_batched("indices_tensor"):
        # The output lacks as many leading axes of size 1 as the index dimensions add: they stay in front of the batch.
        dropped = count - 1
        if dropped > axis or any(size != 1 for size in table.sizes[:dropped]):
            return None
        stacked = call.whole("input_tensor")
        return {
            "input_tensor": stacked.transpose(*range(1, dropped + 1), 0, *range(dropped + 1, stacked.ndim)),
            "indices_tensor": indices.expand_dims(0),
            "axis": axis + 1,
            "index_dimensions": count,
        }
    is_first = all(size == 1 for size in table.sizes[:axis])
    if call.is_batched("input_tensor") or not is_first or count == MAX_DIMENSIONS:
        return None
    own = indices.sizes[indices.ndim - count :]
    return {
        "input_tensor": table.expand_dims(0),
        "indices_tensor": call.whole("indices_tensor").reshape(*(1,) * (indices.ndim - count), call.size, *own),
        "axis": axis + 1,
        "index_dimensions": count + 1,
    }


def _folded(call: BatchedCall, fields: tuple[str, ...]) -> Values:
    """Return the inputs with the axis of the batch folded into their own first axis."""
    values = dict(call.inputs)
    for field in fields:
        if field in values:
            stacked = call.whole(field)
            values[field] = stacked.reshape(-1, *stacked.sizes[2:])
    return values


@rule("GEMM")
def _gemm(call: BatchedCall) -> Values:
    """Fold the batch into operands of rank 4; GEMM takes at most two leading axes."""
    if len(call.desc.a_tensor.sizes) < 4:
        return _wholes(call)
    return _folded(call, ("a_tensor", "b_tensor", "c_tensor"))


_INPUT, _GRADIENT = ("input_tensor",), ("input_gradient_tensor",)

FOLDED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "AVERAGE_POOLING", "AVERAGE_POOLING1", "LP_POOLING", "LP_POOLING1", "MAX_POOLING", "MAX_POOLING1",
            "MAX_POOLING2", "CONVOLUTION", "BATCH_NORMALIZATION", "DEPTH_TO_SPACE", "DEPTH_TO_SPACE1", "SPACE_TO_DEPTH",
            "SPACE_TO_DEPTH1", "UPSAMPLE_2D", "LOCAL_RESPONSE_NORMALIZATION", "RESAMPLE", "RESAMPLE1", "RESAMPLE2",
            "RESAMPLE3", "UNFOLD", "FOLD",
        ),
        _INPUT,
    ),
    **dict.fromkeys(("AVERAGE_POOLING_GRAD", "RESAMPLE_GRAD", "RESAMPLE_GRAD1"), _GRADIENT),
    "MAX_POOLING_GRAD": (*_INPUT, *_GRADIENT),
    "LOCAL_RESPONSE_NORMALIZATION_GRAD": (*_INPUT, *_GRADIENT),
    **dict.fromkeys(
        ("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1"), ("query_tensor", "key_tensor", "value_tensor")
    ),
}  # fmt: skip
"""Operators on stacks, by the inputs whose first axis is the stack's; they share the other inputs."""

_OF_EACH = ("mask_tensor", "relative_position_bias_tensor", "past_key_tensor", "past_value_tensor")
"""Inputs of attention with an axis of stacks of their own."""


@rule(*FOLDED)
def _on_stacks(call: BatchedCall) -> Values | None:
    fields = FOLDED[call.desc.operator]
    shares = not any(call.is_batched(field) or field in _OF_EACH for field in call.inputs if field not in fields)
    keeps_stack = getattr(call.desc, "scales", (1,))[0] == 1
    has_indices = getattr(call.desc, "output_indices_tensor", None) is not None  # which count from the first element
    return _folded(call, fields) if shares and keeps_stack and not has_indices else None
