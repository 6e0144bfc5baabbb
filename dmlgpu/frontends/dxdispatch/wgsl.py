"""What a compute shader in WGSL declares: its bindings by name, its entry points, its overrides."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 1 << 20
"""Characters of a shader that are taken."""

# Possessive quantifiers, and texts cut into statements: each character is looked at a few times, whatever the text.
_COMMENT = re.compile(r"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?+")
_STATEMENT = re.compile(r"[;{}]")
_RESOURCE = re.compile(r"\s*+((?:@\w++\s*+(?:\([^()]*+\)\s*+)?+)++)var\s*+(?:<([^<>]*+)>)?+\s*+(\w++)\s*+:")
_NUMBER = re.compile(r"@(group|binding)\s*+\(\s*+(\d{1,9})[iu]?\s*+,?\s*+\)")
_FUNCTION = re.compile(r"\bfn\s++(\w++)")
_COMPUTE = re.compile(r"@\s*+compute\b")
_OVERRIDE = re.compile(r"\boverride\s++(\w++)")
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
        name: the variable's.
        number: its ``@binding``, in group 0.
        kind: WebGPU's word: ``uniform``, ``storage`` (which the shader may write) or ``read-only-storage``.
    """

    name: str
    number: int
    kind: str


def without_comments(text: str) -> str:
    """Return a shader with spaces in the place of comments; those that are nested end at the first ``*/``."""
    return _COMMENT.sub(" ", text)


def bindings(text: str) -> tuple[ShaderBinding, ...]:
    """Return the resources that a shader without comments declares.

    Raises:
        ValueError: one is no buffer of group 0, or two have one number or name.
    """
    found: dict[int, ShaderBinding] = {}
    declared = (_RESOURCE.match(statement) for statement in _STATEMENT.split(text))
    for attributes, space, name in (match.groups("") for match in declared if match is not None):
        numbers = {key: int(number) for key, number in _NUMBER.findall(attributes)}
        if set(numbers) != {"group", "binding"}:
            raise ValueError(f"the variable {name!r} must have @group and @binding with numbers")
        if numbers["group"]:
            raise ValueError(f"the variable {name!r} must be in @group(0), got @group({numbers['group']})")
        words = [word.strip() for word in space.split(",")] + [""]
        kind = _KINDS.get((words[0], words[1]))
        if kind is None:
            raise ValueError(f"the variable {name!r} must be a buffer, var<storage> or var<uniform>, got var<{space}>")
        taken = found.setdefault(numbers["binding"], ShaderBinding(name, numbers["binding"], kind))
        if taken.name != name:
            raise ValueError(f"the variables {taken.name!r} and {name!r} have one binding, {taken.number}")
    return tuple(found.values())


def entry_points(text: str) -> tuple[str, ...]:
    """Return the names of the compute shaders in a text without comments."""
    headers = (statement for statement in _STATEMENT.split(text) if _COMPUTE.search(statement))
    return tuple(match[1] for header in headers if (match := _FUNCTION.search(header)) is not None)


def overrides(text: str) -> tuple[str, ...]:
    """Return the names of the constants that a pipeline may set."""
    return tuple(_OVERRIDE.findall(text))
