"""Declarations of a compute shader in WGSL: bindings by name, entry points, overrides, workgroup sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST = 1 << 20
"""Maximum number of characters of a shader."""

# Possessive quantifiers, and texts cut into statements: each character is looked at a few times, whatever the text.
_COMMENT = re.compile(r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+")
_STATEMENT = re.compile(r"[;{}]")
_RESOURCE = re.compile(r"\s*+((?:@\w++\s*+(?:\([^()]*+\)\s*+)?+)++)var\s*+(?:<([^<>]*+)>)?+\s*+(\w++)\s*+:")
_NUMBER = re.compile(r"@(group|binding)\s*+\(\s*+(\d{1,9})[iu]?\s*+,?\s*+\)")
_FUNCTION = re.compile(r"\bfn\s++(\w++)")
_COMPUTE = re.compile(r"@\s*+compute\b")
_WORKGROUP = re.compile(r"@\s*+workgroup_size\s*+\(([^()]*+)\)")
_OVERRIDE = re.compile(r"\boverride\s++(\w++)")
_DECLARATION = re.compile(r"\boverride\s++(\w++[^;{}]*+)")
_IMMEDIATE = re.compile(r"\bvar\s*+<\s*+(?:immediate|push_constant)\s*+>\s*+(\w++)")
_ENABLE = re.compile(r"\benable\s++([\w\s,]++);")
_KINDS = {
    ("uniform", ""): "uniform",
    ("storage", ""): "read-only-storage",
    ("storage", "read"): "read-only-storage",
    ("storage", "read_write"): "storage",
}


@dataclass(frozen=True)
class ShaderBinding:
    """A resource that a shader declares.

    Attributes:
        name: The variable's.
        number: Its ``@binding``, in group 0.
        kind: WebGPU's word: ``uniform``, ``storage`` (which the shader may write) or ``read-only-storage``.
        type: As it is written: ``array<vec4<f32>>``.
    """

    name: str
    number: int
    kind: str
    type: str = ""


def without_comments(text: str) -> str:
    """Return a shader with spaces in place of comments; nested comments end at the first ``*/``."""
    return _COMMENT.sub(" ", text)


def bindings(text: str) -> tuple[ShaderBinding, ...]:
    """Return the resources that a shader without comments declares.

    Raises:
        ValueError: If one is no buffer of group 0, or two have one number or name.
    """
    resources: dict[int, ShaderBinding] = {}
    for statement in _STATEMENT.split(text):
        match = _RESOURCE.match(statement)
        if match is None:
            continue
        attributes, space, name = match.groups("")
        numbers = {key: int(value) for key, value in _NUMBER.findall(attributes)}
        if set(numbers) != {"group", "binding"}:
            raise ValueError(f"the variable {name!r} must have @group and @binding with numbers")
        if numbers["group"]:
            raise ValueError(f"the variable {name!r} must be in @group(0), got @group({numbers['group']})")
        words = [word.strip() for word in space.split(",")] + [""]
        kind = _KINDS.get((words[0], words[1]))
        if kind is None:
            raise ValueError(f"the variable {name!r} must be a buffer, var<storage> or var<uniform>, got var<{space}>")
        binding = ShaderBinding(name, numbers["binding"], kind, "".join(statement[match.end() :].split()))
        other = resources.setdefault(binding.number, binding)
        if other.name != name:
            raise ValueError(f"the variables {other.name!r} and {name!r} have one binding, {other.number}")
    return tuple(resources.values())


def immediates(text: str) -> tuple[str, ...]:
    """Return the names of the variables in ``var<immediate>`` of a text without comments, which no binding fills."""
    return tuple(_IMMEDIATE.findall(text))


def for_naga(text: str) -> str:
    """Return a shader without ``enable subgroups;``, which browsers' compilers require and naga does not know: naga
    enables subgroups wherever the device has them. Places in messages stay the same."""

    def without(match: re.Match[str]) -> str:
        names = [name.strip() for name in match[1].split(",") if name.strip()]
        if "subgroups" not in names:
            return match[0]
        others = ", ".join(name for name in names if name != "subgroups")
        directive = f"enable {others};" if others else ""
        return directive + re.sub(r"[^\n]", " ", match[0][len(directive) :])

    return _ENABLE.sub(without, text)


def entry_points(text: str) -> tuple[str, ...]:
    """Return the names of the compute shaders in a text without comments."""
    headers = (statement for statement in _STATEMENT.split(text) if _COMPUTE.search(statement))
    return tuple(match[1] for header in headers if (match := _FUNCTION.search(header)) is not None)


def workgroup_size(text: str, entry_point: str, values: Mapping[str, float] = {}) -> tuple[int, int, int] | None:
    """Return the workgroup size of an entry point; None if it depends on constants, or on overrides without values."""
    sources = _workgroup_words(text, entry_point)
    words = [f"{values[word]:g}" if word in values else word.rstrip("ui") for word in sources]
    if not words or not all(word.isdecimal() for word in words):
        return None
    x, y, z = (*map(int, words), 1, 1)[:3]
    return x, y, z


def override_declarations(text: str) -> tuple[str, ...]:
    """Return the declarations of the constants that a pipeline may set, with types and defaults."""
    return tuple(" ".join(declaration.split()) for declaration in _DECLARATION.findall(text))


def workgroup_text(text: str, entry_point: str) -> str:
    """Return the source of the workgroup size of an entry point; empty if there is none."""
    return " x ".join(_workgroup_words(text, entry_point))


def _workgroup_words(text: str, entry_point: str) -> list[str]:
    """Return the expressions in the attribute workgroup_size of an entry point; nothing if it has none."""
    for header in _STATEMENT.split(text):
        function = _FUNCTION.search(header)
        if function is not None and function[1] == entry_point and (match := _WORKGROUP.search(header)) is not None:
            return [word.strip() for word in match[1].split(",") if word.strip()]
    return []


def overrides(text: str) -> tuple[str, ...]:
    """Return the names of the constants that a pipeline may set."""
    return tuple(_OVERRIDE.findall(text))
