"""Amber scripts: the failing program for google/amber, which runs SPIR-V on Vulkan without WebGPU.

docs/amber_script.md of its repository defines the language. A number with an exponent needs a point, and offsets of
EXPECT count bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from dmlgpu.bench.validators import capabilities_of
from dmlgpu.catalog.tensor_desc import element_offsets
from dmlgpu.export.bugs.programs import BugProgram

_FEATURES: Final[Mapping[int, str]] = {
    9: "Float16Int8Features.shaderFloat16",
    10: "shaderFloat64",
    11: "shaderInt64",
    22: "shaderInt16",
    39: "Float16Int8Features.shaderInt8",
    61: "SubgroupSupportedOperations.basic",
    62: "SubgroupSupportedOperations.vote",
    63: "SubgroupSupportedOperations.arithmetic",
    64: "SubgroupSupportedOperations.ballot",
    65: "SubgroupSupportedOperations.shuffle",
    66: "SubgroupSupportedOperations.shuffleRelative",
    4433: "Storage16BitFeatures.storageBuffer16BitAccess",
    4434: "Storage16BitFeatures.uniformAndStorageBuffer16BitAccess",
    5345: "VulkanMemoryModelFeatures.vulkanMemoryModel",
}
"""Amber's names of the features that capabilities of SPIR-V need."""

_TYPES: Final = {"float32": "float", "float64": "double"}
"""Amber's names of data types where they differ."""

_WORKGROUP_STORAGE = 4
_OP_VARIABLE = 59


def amber_script(program: BugProgram, spirv: Mapping[int, bytes], titles: Mapping[str, str]) -> str:
    """Return the Amber script of a program.

    Args:
        program: The program.
        spirv: SPIR-V by index of the kernel; the manifest names the file, ``kernel["spirv"]``.
        titles: Lines of the comment at the top, by their headings.
    """
    return "\n".join([*_lines(program.manifest, program.files, spirv, titles), ""])


def _lines(
    bug: Mapping[str, Any], files: Mapping[str, bytes], spirv: Mapping[int, bytes], titles: Mapping[str, str]
) -> Iterator[str]:
    yield "#!amber"
    yield from (f"# {heading}: {text}" for heading, text in titles.items())
    capabilities = set().union(*(capabilities_of(module) for module in spirv.values()))
    yield from (f"DEVICE_FEATURE {_FEATURES[number]}" for number in sorted(capabilities) if number in _FEATURES)
    if any(map(_initializes_workgroup_memory, spirv.values())):
        yield "DEVICE_FEATURE ZeroInitializeWorkgroupMemoryFeatures.shaderZeroInitializeWorkgroupMemory"
    yield ""
    for index, kernel in enumerate(bug["kernels"]):
        yield f"SHADER compute kernel{index} SPIRV-BIN FILE {kernel['spirv']}"
    # A buffer has one type in Amber: that of its first output.
    types = {output["buffer"]: _TYPES.get(output["type"], output["type"]) for output in reversed(bug["outputs"])}
    for index, buffer in enumerate(bug["buffers"]):
        name, width = types.get(index, "uint32"), _width(types.get(index, "uint32"))
        yield f"BUFFER buffer{index} DATA_TYPE {name} SIZE {buffer['bytes'] // width} FILE BINARY {buffer['file']}"
    for index, dispatch in enumerate(bug["dispatches"]):
        size = len(files[dispatch["parameters"]]) // 4
        yield f"BUFFER parameters{index} DATA_TYPE uint32 SIZE {size} FILE BINARY {dispatch['parameters']}"
    for index, dispatch in enumerate(bug["dispatches"]):
        yield ""
        yield f"PIPELINE compute pipeline{index}"
        yield f"  ATTACH kernel{dispatch['kernel']}"
        for binding, (buffer, offset, size) in enumerate(dispatch["bind"]):
            yield (
                f"  BIND BUFFER buffer{buffer} AS storage DESCRIPTOR_SET 0 BINDING {binding}"
                f" DESCRIPTOR_OFFSET {offset} DESCRIPTOR_RANGE {size}"
            )
        uniform = len(dispatch["bind"])
        yield f"  BIND BUFFER parameters{index} AS uniform DESCRIPTOR_SET 0 BINDING {uniform}"
        yield "END"
    yield ""
    for index, dispatch in enumerate(bug["dispatches"]):
        yield f"RUN pipeline{index} {' '.join(map(str, dispatch['grid']))}"
    for output in bug["outputs"]:
        yield ""
        yield f"# {output['label']}"
        own, of_buffer = _TYPES.get(output["type"], output["type"]), types[output["buffer"]]
        if own == of_buffer:
            yield from _expectations(output, files)
        else:
            yield f"# not compared, because Amber gives a buffer one type: this output is {own}, its buffer {of_buffer}"


def _expectations(output: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a line per element; lines with values that Amber cannot compare are comments."""
    dtype = np.dtype(output["type"])
    expected = np.frombuffer(files[output["expected"]], dtype)
    allowed = np.frombuffer(files[output["allowed"]], "<f8")
    offsets = element_offsets(output["sizes"], output["strides"]).reshape(-1) * dtype.itemsize + output["offset"]
    for offset, value, bound in zip(offsets, expected, allowed, strict=True):
        place = f"EXPECT buffer{output['buffer']} IDX {offset}"
        if dtype.kind != "f":
            tolerance = f" TOLERANCE {float(bound):.9e}" if bound > 0 else ""
            yield f"{place}{tolerance} EQ {value}"
        elif np.isinf(value):
            yield f"# not compared, because Amber has no infinity: {place} EQ {value}"
        elif np.isnan(value):
            yield f"{place} EQ NaN"
        else:
            tolerance = f" TOLERANCE {float(bound):.9e}" if bound > 0 else ""
            yield f"{place}{tolerance} EQ {float(value):.17e}"


def _width(name: str) -> int:
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name)).itemsize


def _initializes_workgroup_memory(spirv: bytes) -> bool:
    """Return whether a variable in workgroup memory has an initializer, which needs a feature of Vulkan."""
    words, place = struct.unpack(f"<{len(spirv) // 4}I", spirv), 5
    while place < len(words):
        opcode, length = words[place] & 0xFFFF, words[place] >> 16
        if opcode == _OP_VARIABLE and words[place + 3] == _WORKGROUP_STORAGE and length > 4:
            return True
        place += max(length, 1)
    return False
