"""Validates SPIR-V, and its translations to the languages of Metal and Direct3D 12, by the Khronos Group's tools.

wgpu's compiler (naga) writes SPIR-V for Vulkan only. For Metal and Direct3D 12 it writes MSL and HLSL itself, on those
systems. spirv-cross translates to both anywhere, so it shows whether these languages can express a kernel.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

VALID, SKIPPED, INVALID = "valid", "skipped: ", "invalid: "
"""A result, and the prefixes of the others, which end with the reason."""

_INPUT = "-"
_TO_HLSL = ("spirv-cross", "--hlsl", "--shader-model", "60", _INPUT)
_FROM_HLSL = ("glslangValidator", "-D", "-V", "--stdin", "-S", "comp", "-e", "main", "-o", os.devnull)

_COMMANDS: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "SPIR-V": (("spirv-val", "--target-env", "vulkan1.3", _INPUT),),
    "MSL": (("spirv-cross", "--msl", "--msl-version", "20300", _INPUT),),
    "HLSL": (_TO_HLSL, _FROM_HLSL),
}
"""Commands by language; each reads the output of the previous one."""

_PACKAGES = {"spirv-val": "spirv-tools", "spirv-cross": "spirv-cross", "glslangValidator": "glslang-tools"}
"""Programs and their packages in Debian and Ubuntu."""

_FLOAT64, _INT64, _SUBGROUPS, _DOT_PRODUCTS = 10, 11, 61, 6019
_LIMITS: Final[Mapping[str, Mapping[int, str]]] = {
    "SPIR-V": {},
    "MSL": {_FLOAT64: "Metal has no 64-bit floats", _DOT_PRODUCTS: "spirv-cross has no dot products of integers"},
    "HLSL": {
        _FLOAT64: "glslang has no 64-bit numbers in HLSL",
        _INT64: "glslang has no 64-bit numbers in HLSL",
        _SUBGROUPS: "spirv-cross has no subgroup_id in HLSL",
        _DOT_PRODUCTS: "spirv-cross has no dot products of integers",
    },
}
"""Capabilities of SPIR-V that are not translated or validated, by language, and why."""

_MAGIC, _HEADER_BYTES, _OP_CAPABILITY = 0x07230203, 20, 17


def missing_tools() -> tuple[str, ...]:
    """Return the Debian packages of the programs that are not installed."""
    return tuple(package for program, package in _PACKAGES.items() if shutil.which(program) is None)


def validate(spirv: bytes) -> dict[str, str]:
    """Return the result of each language: ``valid``, ``skipped: <reason>`` or ``invalid: <message>``.

    Args:
        spirv: A module with one entry point, ``main``.

    Raises:
        ValueError: If it does not begin as SPIR-V does.
        OSError: If a program cannot be run.
    """
    capabilities = capabilities_of(spirv)
    return {language: _result(language, spirv, capabilities) for language in _COMMANDS}


def capabilities_of(spirv: bytes) -> frozenset[int]:
    """Return the capabilities that a module declares, by their numbers in the specification.

    Raises:
        ValueError: If it does not begin as SPIR-V does.
    """
    if len(spirv) < _HEADER_BYTES or struct.unpack_from("<I", spirv)[0] != _MAGIC:
        raise ValueError("not a SPIR-V module")
    instructions = struct.iter_unpack("<HHI", spirv[_HEADER_BYTES : len(spirv) - (len(spirv) - _HEADER_BYTES) % 8])
    capabilities = set()
    for operation, _, capability in instructions:  # the first instructions of a module, of two words each
        if operation != _OP_CAPABILITY:
            break
        capabilities.add(capability)
    return frozenset(capabilities)


def _result(language: str, spirv: bytes, capabilities: frozenset[int]) -> str:
    limits = _LIMITS[language]
    if reasons := [limits[capability] for capability in sorted(capabilities & limits.keys())]:
        return SKIPPED + reasons[0]
    text = spirv
    for command in _COMMANDS[language]:
        done = subprocess.run(command, input=text, capture_output=True, check=False)
        if done.returncode:
            lines = (done.stderr + b"\n" + done.stdout).decode(errors="replace").splitlines()
            lines = [line.strip() for line in lines if line.strip() not in ("", "stdin")]
            return f"{INVALID}{command[0]}: {lines[0] if lines else f'exit code {done.returncode}'}"
        text = done.stdout
    return VALID


def summary(results: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a line per language: the number of valid, invalid and skipped kernels, with reasons."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        for language, text in result.items():
            counts.setdefault(language, Counter())["invalid" if text.startswith(INVALID) else text] += 1
    return [
        f"{language}: {', '.join(f'{count} {text}' for text, count in counted.most_common())}"
        for language, counted in counts.items()
    ]
