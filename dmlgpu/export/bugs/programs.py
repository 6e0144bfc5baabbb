"""Failing programs as files: kernels, contents of buffers, dispatches, expected outputs and allowed differences.

``bug.json`` lists the files. The runners of a bug report read it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dmlgpu.catalog.enums import BFLOAT16, DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.conformance.cases.case import Array
from dmlgpu.conformance.cases.tolerance import Bound, may_flush, ulp
from dmlgpu.conformance.running.runner import POISON, SENTINEL
from dmlgpu.conformance.suites.attributes import AttributeSuite
from dmlgpu.conformance.suites.combined import CombinedSuite
from dmlgpu.conformance.suites.graphs import GraphSuite
from dmlgpu.conformance.suites.operators import CaseSuite
from dmlgpu.conformance.suites.programs import ProgramSuite
from dmlgpu.export.cases import Blob, Entry, case_entry

MANIFEST: Final = "bug.json"
"""File that lists the others."""

BITS, ANY_NAN = -1.0, np.nan
"""Allowed differences of elements that must have the expected bits, or be any NaN."""

_FEATURES: Final = {
    "shader-f16": r"\bf16\b",
    "shader-f64": r"\bf64\b|\dlf\b",
    "shader-int64": r"\b[iu]64\b|\dl[iu]\b",
    "subgroup": r"\bsubgroup\w+|\bsubgroup_",
}
"""Features of wgpu, and patterns of the WGSL that needs them."""


@dataclass(frozen=True)
class BugProgram:
    """Dispatches over buffers with expected outputs.

    Attributes:
        case: Name of the case.
        entry: The case for a page, with this run only.
        data: Bytes to which the entry refers.
        manifest: Content of ``bug.json``.
        files: The files that it names.
    """

    case: str
    entry: Entry
    data: bytes
    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]

    @property
    def all_files(self) -> dict[str, bytes]:
        """All files, ``bug.json`` included."""
        text = json.dumps(self.manifest, indent=1)
        flat = re.sub(r"\[[^\[\]{}]*\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), text)
        return {MANIFEST: (flat + "\n").encode(), **self.files}

    @property
    def kernels(self) -> tuple[str, ...]:
        """WGSL of the kernels."""
        return tuple(self.files[kernel["wgsl"]].decode() for kernel in self.manifest["kernels"])


def programs_of(name: str, target: Target, info: AdapterInfo, *, portable: bool = False) -> tuple[BugProgram, ...]:
    """Return the programs of a case: one, or for a graph two: fused, and without passes.

    Args:
        name: Name of the case.
        target: Compile target of the adapter; parameter blocks are uniforms, as in all WebGPU.
        info: The adapter.
        portable: Whether to use no optional features, so that every browser runs the kernels.

    Raises:
        InvalidArgument: If no case has this name.
        NotSupported: If the adapter lacks what the case needs, or the case does not compare outputs of kernels.
    """
    suite, blob = CombinedSuite().part(name), Blob()
    is_rejection = isinstance(suite, AttributeSuite) and suite.is_rejected(name)
    if is_rejection or not isinstance(suite, CaseSuite | ProgramSuite | GraphSuite):
        raise NotSupported(f"report-bug: {name} does not compare outputs of kernels with the reference")
    features = frozenset() if portable else target.features - {"immediates"}
    entry = case_entry(suite, name, replace(target, features=features), blob, info)
    if "outcome" in entry:
        raise NotSupported(f"report-bug: {name}: {entry['outcome']['message']}")
    data = blob.uploads.data
    return tuple(program_of(name, {**entry, "runs": [run]}, data) for run in entry["runs"])


def program_of(name: str, entry: Entry, data: bytes) -> BugProgram:
    """Return the program of a case with one run.

    Args:
        name: Name of the case.
        entry: The case for a page.
        data: Bytes to which it refers.
    """
    (run,) = entry["runs"]
    files: dict[str, bytes] = {}

    def add(file: str, content: bytes) -> str:
        files[file] = content
        return file

    writable = _writable(run)
    buffers = [
        {**buffer, "file": add(f"buffer-{index}.bin", content), **({"writable": writable[index]} if writable else {})}
        for index, (buffer, content) in enumerate(zip(run["buffers"], _contents(run, data), strict=True))
    ]
    kernels = [
        {"label": shader["label"], "wgsl": add(f"kernel-{index}.wgsl", shader["code"].encode())}
        for index, shader in enumerate(run["shaders"])
    ]
    parameters = [
        add(f"parameters-{index}.bin", struct.pack(f"<{len(words)}I", *words))
        for index, words in enumerate(run["parameters"])
    ]
    dispatches = [
        {
            "kernel": dispatch["shader"],
            "bind": dispatch["bind"],
            "parameters": parameters[dispatch["parameters"]],
            "grid": dispatch["grid"],
        }
        for dispatch in (*run["initialization"], *run["dispatches"])
    ]
    outputs = []
    for index, output in enumerate(run["outputs"]):
        tensor, expected, allowed = _expectation(output, data)
        outputs.append(
            {
                "label": output["label"],
                **{key: run["tensors"][output["tensor"]][key] for key in ("buffer", "offset", "bytes")},
                "type": tensor.data_type.name.lower(),
                "sizes": list(tensor.sizes),
                "strides": list(tensor.element_strides),
                "expected": add(f"expected-{index}.bin", np.ascontiguousarray(expected).tobytes()),
                "allowed": add(f"allowed-{index}.bin", allowed.astype("<f8").tobytes()),
            }
        )
    manifest = {
        "format": 1,
        "case": name,
        "tolerance": entry["tolerance"],
        "features": _features(shader["code"] for shader in run["shaders"]),
        "kernels": kernels,
        "buffers": buffers,
        "dispatches": dispatches,
        "outputs": outputs,
    }
    return BugProgram(name, entry, data, manifest, files)


def _features(sources: Iterator[str]) -> list[str]:
    text = "\n".join(re.sub(r"//.*", "", source) for source in sources)
    return [name for name, pattern in _FEATURES.items() if re.search(pattern, text)]


def _contents(run: Entry, data: bytes) -> list[bytes]:
    """Return the initial content of each buffer, as ``pages/cases.js`` does."""
    contents = [bytearray(buffer["bytes"]) for buffer in run["buffers"]]
    for tensor in run["tensors"]:
        content, start, size = contents[tensor["buffer"]], tensor["offset"], tensor["bytes"]
        content[:] = bytes([SENTINEL if run.get("guarded") else POISON]) * len(content)
        content[start : start + size] = bytes([POISON]) * size
        if "data" in tensor:
            first, length = tensor["data"]
            content[start : start + length] = data[first : first + length]
    if not run.get("guarded"):
        for index in run["poisoned"]:
            contents[index][:] = bytes([POISON]) * len(contents[index])
    for buffer, offset, place, size in run["uploads"]:
        contents[buffer][offset : offset + size] = data[place : place + size]
    return [bytes(content) for content in contents]


def _writable(run: Entry) -> dict[int, list[list[int]] | None]:
    """Return the byte ranges that kernels may change of each buffer, None for the whole; empty if nothing is
    guarded."""
    if not run.get("guarded"):
        return {}
    ranges: dict[int, list[list[int]] | None] = dict.fromkeys(range(len(run["buffers"])))
    ranges |= {tensor["buffer"]: [] for tensor in run["tensors"]}
    for output in run["outputs"]:
        tensor = run["tensors"][output["tensor"]]
        written = ranges[tensor["buffer"]]
        assert written is not None
        written.append([tensor["offset"], tensor["offset"] + tensor["bytes"]])
    return ranges


def _expectation(output: Entry, data: bytes) -> tuple[TensorDesc, Array, Bound]:
    """Return the tensor of an output, its expected elements and the allowed differences."""
    data_type = DataType[output["type"]] if output["type"] in DataType.__members__ else BFLOAT16
    if data_type is BFLOAT16:
        raise NotSupported("report-bug: outputs of BFLOAT16 cannot be described")
    tensor = TensorDesc(data_type, tuple(output["sizes"]), tuple(output["strides"]) if "strides" in output else None)
    first, *others = (_outcome(output["rule"], outcome, tensor, data) for outcome in output["outcomes"])
    expected, allowed = first
    with np.errstate(all="ignore"):
        for other, other_allowed in others:  # if several results are right, so is everything between them
            apart = np.abs(other.astype(np.float64) - expected.astype(np.float64)) + np.maximum(other_allowed, 0)
            allowed = np.where(apart > np.maximum(allowed, 0), apart, allowed)
    if data_type.bits == 4:  # compared as bytes
        packed = tensor.encode(expected, POISON).view(np.uint8)
        return TensorDesc(DataType.UINT8, packed.shape), packed, np.full(packed.shape, BITS)
    return tensor, expected, allowed


def _outcome(rule: Mapping[str, Any], outcome: Entry, tensor: TensorDesc, data: bytes) -> tuple[Array, Bound]:
    start, size = outcome["expected"]
    expected: Array = np.frombuffer(data[start : start + size], tensor.data_type.numpy).reshape(tensor.sizes)
    numbers = outcome.get("numbers", 0.0)
    if isinstance(numbers, Sequence):
        numbers = np.frombuffer(data[numbers[0] : sum(numbers)], "<f8").reshape(tensor.sizes)
    return expected, _allowed(rule, expected, numbers)


def _allowed(rule: Mapping[str, Any], expected: Array, numbers: Bound | float) -> Bound:
    """Return the allowed difference of each element by a rule of pages (``JudgingRule``)."""
    allowed = np.full(expected.shape, BITS)
    with np.errstate(all="ignore"):
        values = expected.astype(np.float64)
        if "ulps" in rule:
            # Numbers of the next binade are twice as far apart.
            farthest = (np.abs(values) + rule["ulps"] * ulp(expected)).astype(expected.dtype)
            allowed = np.maximum(allowed, rule["ulps"] * ulp(farthest))
            # Infinity is the neighbor of the largest number.
            allowed = np.where(np.isinf(farthest.astype(np.float64)) & (rule["ulps"] > 0), np.inf, allowed)
        if "near" in rule:
            allowed = np.maximum(allowed, np.nan_to_num(numbers, nan=BITS, posinf=np.finfo(np.float64).max))
        if "flush" in rule:
            allowed = np.where(may_flush(expected), np.maximum(allowed, np.abs(values)), allowed)
        if "factor" in rule:
            is_tiny = np.abs(values) < 4 * np.finfo(np.float32).smallest_normal
            allowed = np.where(is_tiny, np.maximum(allowed, np.abs(values)), allowed)
        if expected.dtype.kind == "f" and {"nan", "ulps", "kind"} & set(rule):
            allowed = np.where(np.isnan(values), ANY_NAN, allowed)
        is_exact = np.isinf(values) & ~np.isinf(allowed)
    return np.where(is_exact, BITS, allowed)
