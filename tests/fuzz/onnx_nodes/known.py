"""What is known: refusals that are documented, and cases in which an oracle is wrong, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from tests.fuzz.onnx_nodes.draw import Array, NodeCase, schema_of
from tests.fuzz.onnx_nodes.models import Drawn

REFUSALS = {
    r"float64 can be moved and cast, but not computed with": "doubles: DirectML computes with none",
    r"FLOAT64": "doubles: DirectML computes with none",
    r"ELEMENT_WISE_ERF: input_tensor.data_type": "Erf of integers: rounding decides, and onnxruntime has none",
    r"subtensors of at most \d+ elements are compared": "Unique sorts by one column after the other",
    r"clip is supported by LSTM only": "DirectML's RNN and GRU have no clip threshold",
    r"elements of type (string|bfloat16|float[468]\w*|complex\w*|u?int2) are not supported": "types",
}
"""Messages of refusals that are documented, and why; dmlgpu computes everything else that an oracle computes."""


_OPEN = re.compile(r"^flag|\b(nan|inf)\b|e\+?30$")
"""Malformed cases with values that are left open, by what they say: NaN, infinities, flags other than 0 and 1."""

_OPEN_OF: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(
        ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp"), re.compile("of type u?int")
    ),  # how logarithms of integers are rounded
    **dict.fromkeys(("RNN", "GRU", "LSTM"), re.compile("input 0 empty")),  # onnxruntime leaves states unset
    "Resize": re.compile("input 0 with -?2147483"),  # the largest integers are interpolated by float32
    "Shrink": re.compile("input 0 with"),  # integers are shrunk by float32, so that the largest ones overflow
    "Attention": re.compile("attribute (scale|softcap)"),  # scores overflow in float16, or do not
    "DequantizeLinear": re.compile("input 2 with -?2147483"),  # differences overflow
    "com.microsoft.Attention": re.compile("input 3"),  # rows that hide everything
    "com.microsoft.GroupQueryAttention": re.compile("input 5 with"),  # rows of queries after the end of a sequence
    "com.microsoft.QLinearSoftmax": re.compile(r"attribute opset -?\d{9}"),  # onnxruntime takes 32 bits of it
}
"""More of that, by operator."""


def is_open(drawn: Drawn) -> bool:
    """Whether only types and shapes count: malformed cases with such values, and undefined results of ONNX."""
    own, text = _OPEN_OF.get(drawn.cases[0].label), drawn.malformed
    for case in drawn.cases:
        x = case.inputs[0] if case.inputs else None
        if case.label == "ReduceMean" and x is not None and not x.size:
            return True  # "Reduction over an empty set of values yields undefined"; onnxruntime has NaN or 0
        if case.label == "ReduceProd" and x is not None and x.dtype.kind == "f" and _overflows_on_the_way(x):
            return True  # 0, infinity or NaN, by the order and the precision of the products
        if case.label == "AffineGrid" and case.attributes.get("align_corners") and 1 in case.inputs[1][2:]:  # type: ignore[index]
            return True  # onnxruntime has 1 for the only element, the reference -1, and ONNX's body divides 0 by 0
    return bool(text) and bool(_OPEN.search(text) or (own is not None and own.search(text)))


def _overflows_on_the_way(x: Array) -> bool:
    """Whether products of some of the elements are beyond their type, though that of all may not be."""
    exponents = np.log2(np.abs(x[np.isfinite(x) & (x != 0)]).astype("float64"))
    return bool(max(exponents.clip(0).sum(), -exponents.clip(None, 0).sum()) > np.log2(float(np.finfo(x.dtype).max)))


def _is_one_row(drawn: Drawn) -> bool:
    """Whether all queries share a row of a mask, and causality tells them apart."""
    (case,) = drawn.cases
    mask = case.inputs[3] if len(case.inputs) > 3 else None
    return bool(case.attributes.get("is_causal")) and mask is not None and (mask.ndim < 2 or mask.shape[-2] == 1)


def _unbatched(drawn: Drawn) -> bool:
    """Whether a recurrent layer has anything but one direction forward, all steps and the usual functions."""
    (case,) = drawn.cases
    attributes = case.attributes
    unusual = {"layout", "clip", "activations", "input_forget"} & {name for name, value in attributes.items() if value}
    lengths = len(case.inputs) > 4 and case.inputs[4] is not None
    return bool(unusual) or attributes.get("direction", "forward") != "forward" or lengths


def _unsorted(drawn: Drawn) -> bool:
    """Whether elements keep the order in which they occur first."""
    return drawn.cases[0].attributes.get("sorted") == 0


def _capped_too_early(drawn: Drawn) -> bool:
    """Whether the scores before softcap are an output: the reference returns those after it."""
    attributes = drawn.cases[0].attributes
    return bool(attributes.get("softcap")) and not attributes.get("qk_matmul_output_mode")


def _is_line_by_channels(drawn: Drawn) -> bool:
    """Whether a quantized convolution has one spatial dimension, and a scale or zero point for each filter."""
    x, *parameters = (drawn.cases[0].inputs[number] for number in (0, 4, 5))
    return x is not None and x.ndim == 3 and any(array is not None and array.ndim > 0 for array in parameters)


def _without_parameters(drawn: Drawn) -> bool:
    """Whether an activation lacks a parameter for which onnxruntime takes 0, and ONNX the default of the operator."""
    names = set(drawn.cases[0].attributes.get("activations", ()))
    lacking = names & {"Affine", "ScaledTanh", "ThresholdedRelu"}
    return bool(lacking) and drawn.malformed.startswith(("attribute activation_alpha", "attribute activation_beta"))


def _is_cropped(drawn: Drawn) -> bool:
    """Whether windows of a convolution that keeps sizes are narrower than its strides."""
    case = drawn.cases[0]
    filters = case.inputs[3 if "QLinear" in case.label else 1]
    if filters is None or not str(case.attributes.get("auto_pad", "")).startswith("SAME"):
        return False
    sizes = filters.shape[1:-1] if case.attributes.get("channels_last") or "Nhwc" in case.label else filters.shape[2:]
    return any(stride > size for stride, size in zip(case.attributes.get("strides", ()), sizes, strict=False))


RUNTIME: dict[str, tuple[Callable[[Drawn], bool], str]] = {
    **dict.fromkeys(
        ("RNN", "GRU", "LSTM", "com.microsoft.DynamicQuantizeLSTM"),
        (_without_parameters, "onnxruntime takes 0 for parameters of activations whose defaults are others"),
    ),
    **dict.fromkeys(
        ("Conv", "ConvInteger", "QLinearConv", *(f"com.microsoft.{name}Conv" for name in ("QLinear", "Fused", "Nhwc"))),
        (_is_cropped, "onnxruntime crops what SAME pads by less than nothing; DirectML's paddings are not negative"),
    ),
}
"""By operator: cases in which onnxruntime is wrong, and why."""

REFERENCE: dict[str, tuple[Callable[[Drawn], bool], str]] = {
    "Attention": (
        lambda drawn: _is_one_row(drawn) or _capped_too_early(drawn),
        "the reference lets all queries see what the first one sees, and caps scores that are an output before",
    ),
    "Loop": (lambda drawn: True, "the reference joins what it should stack"),
    "QLinearConv": (_is_line_by_channels, "the reference's result has a dimension too many"),
    "Resize": (
        lambda drawn: drawn.cases[0].attributes.get("coordinate_transformation_mode") == "pytorch_half_pixel",
        "the reference takes -0.5, not 0, for the only element of a dimension",
    ),
    "Unique": (_unsorted, "the reference takes rows for columns, or sorts all the same"),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (_unbatched, "the reference ignores lengths, directions and functions")),
}
"""By operator: cases in which ONNX's reference is wrong, and why."""


def refusal(message: str, drawn: Drawn) -> str:
    """Return the documented reason of a rejection; empty if there is none."""
    return next((reason for pattern, reason in REFUSALS.items() if re.search(pattern, message)), "")


_TYPES = re.compile(r"reference: output n0_(\d+): type (\w+), expected")


def _is_mistyped(case: NodeCase, text: str) -> bool:
    """Whether the reference answers in another type than the schema says, that of an input."""
    match, schema = _TYPES.match(text), schema_of(case.op_type, case.domain, case.version)
    if match is None or schema is None:
        return False
    kind = schema.outputs[min(int(match[1]), len(schema.outputs) - 1)].type_str
    formals = [schema.inputs[min(at, len(schema.inputs) - 1)] for at in range(len(case.inputs))]
    pairs = zip(formals, case.inputs, strict=True)
    return any(formal.type_str == kind and array is not None and array.dtype == match[2] for formal, array in pairs)


def wrong_oracle(drawn: Drawn, texts: Sequence[str]) -> str:
    """Return the reason why an oracle's result is ignored; empty if there is none."""
    if drawn.malformed.startswith("flag"):
        return "malformed, a flag of another value"
    applies, reason = RUNTIME.get(drawn.cases[0].label, (lambda drawn: False, ""))
    if applies(drawn):
        return reason
    if not any(text.startswith("runtime") for text in texts):
        if _is_mistyped(drawn.cases[0], texts[0]):
            return "the reference answers in another type than the schema says"
        applies, reason = REFERENCE.get(drawn.cases[0].label, (lambda drawn: False, ""))
        if applies(drawn):
            return reason
    return ""
