"""What a peer computes: nodes as ONNX has them, with arrays. Plain data for other processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

_NODE = re.compile(r"([\w, ]+?)\s*=\s*(\w+)\s*(?:<(.*)>)?\s*\(([\w, ]*)\)")
_ATTRIBUTE = re.compile(r"\s*(\w+)\s*=\s*(\[[^\]]*\]|[^,\[\]]+?)\s*(?:,|$)")


@dataclass(frozen=True)
class Node:
    """An operator of ONNX.

    Attributes:
        op: its type.
        inputs, outputs: names of values.
        attributes: by name.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def parse_node(text: str) -> Node:
    """Return a node from ONNX's own notation, such as ``y0 = Conv <pads = [1, 1, 1, 1]> (x0, x1)``.

    Raises:
        ValueError: it is none.
    """
    match = _NODE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"a node must be like 'y0 = Softmax <axis = -1> (x0)', got {text!r}")
    outputs, op, attributes, inputs = match.groups()
    known, end = {}, 0
    for attribute in _ATTRIBUTE.finditer(attributes or ""):
        if attribute.start() != end:
            break
        known[attribute[1]], end = json.loads(attribute[2]), attribute.end()
    if end != len(attributes or ""):
        raise ValueError(f"attributes must be NAME = NUMBER or NAME = [NUMBERS], got {attributes!r}")
    return Node(op, _names(inputs), _names(outputs), known)


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class Call:
    """Something to compute.

    Attributes:
        nodes: in an order in which they can be computed.
        arrays: inputs by name: first those that change, then ``fixed`` ones.
        fixed: names of the inputs that a program may take into itself: weights, axes, numbers.
        outputs: names of what is asked for.
        sets: how many copies of the inputs runs take in turn, so that none finds them in a cache.
    """

    nodes: tuple[Node, ...]
    arrays: Mapping[str, Array]
    fixed: frozenset[str]
    outputs: tuple[str, ...]
    sets: int = 1

    @property
    def inputs(self) -> dict[str, Array]:
        """The inputs that are handed in at each run."""
        return {name: array for name, array in self.arrays.items() if name not in self.fixed}

    def integers(self, node: Node, number: int) -> list[int] | None:
        """Return an input of a node whose numbers are known beforehand; None where it is not."""
        name = node.inputs[number] if number < len(node.inputs) else ""
        return [int(item) for item in self.arrays[name].reshape(-1)] if name in self.fixed else None

    def save(self, folder: Path) -> None:
        """Write it into a folder."""
        np.savez(folder / "inputs.npz", **self.arrays)  # type: ignore[arg-type]
        nodes = [[node.op, node.inputs, node.outputs, dict(node.attributes)] for node in self.nodes]
        record = {"nodes": nodes, "fixed": sorted(self.fixed), "outputs": self.outputs, "sets": self.sets}
        (folder / "call.json").write_text(json.dumps(record), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Call:
        """Read it from a folder."""
        record = json.loads((folder / "call.json").read_text(encoding="utf-8"))
        nodes = tuple(Node(op, tuple(inputs), tuple(outputs), more) for op, inputs, outputs, more in record["nodes"])
        with np.load(folder / "inputs.npz") as arrays:
            held = {name: arrays[name] for name in arrays.files}
        return cls(nodes, held, frozenset(record["fixed"]), tuple(record["outputs"]), record["sets"])


class NotOffered(Exception):
    """A peer does not have an operator."""


def save_outputs(folder: Path, outputs: Sequence[Array]) -> None:
    """Write what came of a call into its folder."""
    np.savez(folder / "outputs.npz", *outputs)


def load_outputs(folder: Path) -> list[Array]:
    """Read what came of a call."""
    with np.load(folder / "outputs.npz") as arrays:
        return [arrays[name] for name in arrays.files]
