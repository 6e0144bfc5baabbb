"""Pictures of graphs, in Graphviz' language, and files with pictures."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.common.files import whole_file
from dmlgpu.tensors.graphs.drawing import to_page
from dmlgpu.tensors.graphs.nodes import BuiltNode, GraphInput, shown


def to_dot(name: str | None, inputs: Sequence[GraphInput], nodes: Sequence[BuiltNode]) -> str:
    """Return a picture: inputs as ellipses, constants as notes, operators as boxes, tensors on the edges."""
    lines = [f"digraph {_quoted(name or 'graph')} {{", "    node [shape=box, fontname=sans-serif];"]
    lines += [
        f"    input{number} [shape=ellipse, label={_quoted(one.name, shown(one.desc))}];"
        for number, one in enumerate(inputs)
    ]
    for number, node in enumerate(nodes):
        if not isinstance(node.desc, OperatorDesc):
            lines.append(f"    node{number} [shape=note, label={_quoted(str(node), shown(node.desc))}];")
            continue
        lines.append(f"    node{number} [label={_quoted(node.desc.operator, *([node.name] if node.name else []))}];")
        for origin, slot in zip(node.fed, node.desc.inputs, strict=True):
            if origin is not None and slot.tensor is not None:
                source = f"{'input' if origin.kind == 'input' else 'node'}{origin.number}"
                lines.append(f"    {source} -> node{number} [label={_quoted(slot.label, shown(slot.tensor))}];")
    return "\n".join([*lines, "}", ""])


def _quoted(*lines: str) -> str:
    text = "\n".join(lines).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def save(path: Path, name: str | None, inputs: Sequence[GraphInput], nodes: Sequence[BuiltNode]) -> None:
    """Write a picture: ``.dot`` text, an ``.html`` page, or ``.svg``.

    Raises:
        InvalidArgument: another ending.
        NotSupported: ``.svg`` where Graphviz is not installed.
    """
    if path.suffix not in (".dot", ".html", ".svg"):
        raise InvalidArgument(f"Graph.save: path must end in .dot, .html or .svg, got {str(path)!r}")
    if path.suffix != ".svg":
        picture = to_page if path.suffix == ".html" else to_dot
        with whole_file(path) as stream:
            stream.write(picture(name, inputs, nodes).encode())
        return
    program = shutil.which("dot")
    if program is None:
        raise NotSupported("Graph.save: .svg needs Graphviz' program dot, which is not installed; save as .html")
    subprocess.run([program, "-Tsvg", "-o", path], input=to_dot(name, inputs, nodes).encode(), check=True)
