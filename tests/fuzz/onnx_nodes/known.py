"""What is known: refusals that are documented, and cases in which an oracle is wrong, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tests.fuzz.onnx_nodes.models import Drawn

REFUSALS = {
    r"doubles are moved and cast, but nothing computes with them": "doubles: DirectML computes with none",
    r"FLOAT64": "doubles: DirectML computes with none",
    r"elements of type (string|bfloat16|float8\w*|complex\w*|float4\w*|float6\w*|int2|uint2) are not supported": "types",
}
"""Messages of refusals that are documented, and why; dmlgpu computes everything else that an oracle computes."""

ORACLES: dict[str, tuple[Callable[[Drawn], bool], str]] = {}
"""By operator: cases in which both oracles are wrong, or the one that computes them, and why."""


def refusal(message: str, drawn: Drawn) -> str:
    """The reason for which a refusal is documented; empty where there is none."""
    return next((reason for pattern, reason in REFUSALS.items() if re.search(pattern, message)), "")


def wrong_oracle(drawn: Drawn, texts: Sequence[str]) -> str:
    """The reason for which an oracle's result is not taken; empty where there is none."""
    for case in drawn.cases:
        applies, reason = ORACLES.get(case.label, (lambda drawn: False, ""))
        if applies(drawn):
            return f"oracle: {reason}"
    return ""
