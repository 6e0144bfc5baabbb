"""What is known: refusals that are documented, and cases in which an oracle is wrong, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.fuzz.onnx_nodes.models import Drawn

REFUSALS = {
    r"doubles are moved and cast, but nothing computes with them": "doubles: DirectML computes with none",
    r"FLOAT64": "doubles: DirectML computes with none",
    r"ELEMENT_WISE_ERF: input_tensor.data_type": "Erf of integers: rounding decides, and onnxruntime has none",
    r"clip is supported by LSTM only": "DirectML's RNN and GRU have no clip threshold",
    r"elements of type (string|bfloat16|float[468]\w*|complex\w*|u?int2) are not supported": "types",
}
"""Messages of refusals that are documented, and why; dmlgpu computes everything else that an oracle computes."""


def is_open(drawn: Drawn) -> bool:
    """Whether values are left open: what becomes of NaN, infinities and overflows, and of flags beyond 0 and 1."""
    return drawn.malformed.startswith("flag") or drawn.malformed.endswith(("nan", "inf", "e+30", "e30"))


def _unbatched(drawn: Drawn) -> bool:
    """Whether a recurrent layer has anything but one direction forward, all steps and the usual functions."""
    (case,) = drawn.cases
    attributes = case.attributes
    unusual = {"layout", "clip", "activations", "input_forget"} & {name for name, value in attributes.items() if value}
    lengths = len(case.inputs) > 4 and case.inputs[4] is not None
    return bool(unusual) or attributes.get("direction", "forward") != "forward" or lengths


def _unsigned(drawn: Drawn) -> bool:
    """Whether a reduction is of unsigned integers."""
    array = drawn.cases[0].inputs[0]
    return array is not None and array.dtype.kind == "u"


def _unsorted(drawn: Drawn) -> bool:
    """Whether unique parts along an axis come in the order of their first places."""
    attributes = drawn.cases[0].attributes
    return attributes.get("sorted") == 0 and "axis" in attributes


REFERENCE: dict[str, tuple[Callable[[Drawn], bool], str]] = {
    **dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceSum", "ReduceProd"),
        (_unsigned, "the reference sums up unsigned integers in 64 bits, and leaves the result there"),
    ),
    "Loop": (lambda drawn: True, "the reference joins what it should stack"),
    "Unique": (_unsorted, "the reference takes rows for columns"),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), (_unbatched, "the reference ignores lengths, directions and functions")),
}
"""By operator: cases in which ONNX's reference is wrong, and why."""


def refusal(message: str, drawn: Drawn) -> str:
    """The reason for which a refusal is documented; empty where there is none."""
    return next((reason for pattern, reason in REFUSALS.items() if re.search(pattern, message)), "")


def wrong_oracle(drawn: Drawn, texts: Sequence[str]) -> str:
    """The reason for which an oracle's result is not taken; empty where there is none."""
    if drawn.malformed.startswith("flag"):
        return "malformed, a flag of another value"
    if not any(text.startswith("runtime") for text in texts):
        applies, reason = REFERENCE.get(drawn.cases[0].label, (lambda drawn: False, ""))
        if applies(drawn):
            return reason
    return ""
