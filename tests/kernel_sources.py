"""Sources of kernels as tests read them: with values in place of the names of sizes."""

from __future__ import annotations

import re

import numpy as np

from dmlgpu.compiler.program import RenderedKernel

_DIVISION = re.compile(r"\b(div|mod)_s(\d+)\(")
_FLOAT = re.compile(r"bitcast<f32>\(sizes\.s(\d+)u\)")
_SIGNED = re.compile(r"bitcast<i32>\(sizes\.s(\d+)u\)")
_SIZE = re.compile(r"\bsizes\.s(\d+)u")


def with_values(kernel: RenderedKernel) -> str:
    """Return the body of a kernel with literals in place of its sizes and attributes, and operators in place of the
    functions that divide by sizes."""
    values = np.array(kernel.parameters, np.uint32)
    text = kernel.source.body
    while divisions := list(_DIVISION.finditer(text)):
        match = divisions[-1]  # no other is inside
        end = _end_of_parenthesis(text, match.end())
        operator = "/" if match[1] == "div" else "%"
        quotient = f"{text[match.end() : end]} {operator} {values[int(match[2])]}u"
        text = text[: match.start()] + quotient + text[end + 1 :]
    text = _FLOAT.sub(lambda match: f"{values.view(np.float32)[int(match[1])].item()!r}f", text)
    text = _SIGNED.sub(lambda match: f"{values.view(np.int32)[int(match[1])]}i", text)
    return _SIZE.sub(lambda match: f"{values[int(match[1])]}u", text)


def _end_of_parenthesis(text: str, start: int) -> int:
    """Return the place of the parenthesis that closes the one before ``start``."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    raise ValueError(f"nothing closes the parenthesis in {text[start:]!r}")


def written_bindings(kernel: RenderedKernel) -> frozenset[int]:
    """Return the bindings that a kernel writes, by the accessors that its body calls."""
    body, interface = kernel.source.body, kernel.source.interface
    assert interface is not None
    changed = re.findall(r"\bstore(\d+)\(|\batomic(?!Load)\w+\(&buffer(\d+)\[", body)
    buffers = {int(stored or updated) for stored, updated in changed}
    assert buffers, body
    bindings = kernel.bindings or range(len(kernel.slots))
    return frozenset(
        binding for binding, (buffer, _) in zip(bindings, interface.slots, strict=True) if buffer in buffers
    )


def without_library(kernel: RenderedKernel) -> str:
    """Return the body as ``with_values``, without the functions of the library, with which it begins."""
    text, heading = with_values(kernel), "// ---- shaders/lib\n"
    return text[text.index("// ---- ", len(heading)) :] if text.startswith(heading) else text
