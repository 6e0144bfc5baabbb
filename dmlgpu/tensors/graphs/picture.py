"""Pictures of graphs: in the language of Graphviz, and as a self-contained page."""

from __future__ import annotations

import html
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.common.files import whole_file
from dmlgpu.tensors.graphs.nodes import BuiltNode, InputNode, shown
from dmlgpu.tensors.memory import Origin


def to_dot(name: str | None, inputs: Sequence[InputNode], nodes: Sequence[BuiltNode]) -> str:
    """Return a picture in the language of Graphviz: inputs are ellipses, constants notes, operators boxes."""
    lines = [f"digraph {_quoted(name or 'graph')} {{", "    node [shape=box, fontname=sans-serif];"]
    lines += [
        f"    input{index} [shape=ellipse, label={_quoted(source.name, shown(source.desc))}];"
        for index, source in enumerate(inputs)
    ]
    for index, node in enumerate(nodes):
        if not isinstance(node.desc, OperatorDesc):
            lines.append(f"    node{index} [shape=note, label={_quoted(str(node), shown(node.desc))}];")
            continue
        lines.append(f"    node{index} [label={_quoted(node.desc.operator, *([node.name] if node.name else []))}];")
        for origin, slot in zip(node.fed, node.desc.inputs, strict=True):
            if origin is not None and slot.tensor is not None:
                source = f"{'input' if origin.kind == 'input' else 'node'}{origin.number}"
                lines.append(f"    {source} -> node{index} [label={_quoted(slot.label, shown(slot.tensor))}];")
    return "\n".join([*lines, "}", ""])


def _quoted(*lines: str) -> str:
    text = "\n".join(lines).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def save(path: Path, name: str | None, inputs: Sequence[InputNode], nodes: Sequence[BuiltNode]) -> None:
    """Write a picture: ``.dot``, ``.html`` or ``.svg``.

    Raises:
        InvalidArgument: If the suffix is another one.
        NotSupported: If the suffix is ``.svg`` and Graphviz is not installed.
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


LETTER = 7.2
"""Width of a letter, in pixels."""

HEIGHT, ACROSS, DOWN = 40, 24, 56
"""Height of a box, and horizontal and vertical gaps, in pixels."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 12px monospace; margin: 1em; background: white; color: black; }}
rect {{ fill: #f4f4f8; stroke: #446; }}
.input rect {{ fill: #e4f2e4; }}
.constant rect {{ fill: #f8f0dc; }}
path {{ fill: none; stroke: #667; marker-end: url(#tip); }}
text {{ text-anchor: middle; }}
</style>
</head>
<body>
<h1>{title}</h1>
<svg width="{width:.0f}" height="{height:.0f}">
<defs>
<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0,0 L8,4 L0,8"/></marker>
</defs>
{content}
</svg>
</body>
</html>
"""

Place = tuple[str, int]
"""A node or an input: ``input`` or ``node``, and its index."""


@dataclass
class _Box:
    """A node in the picture: its middle and width, in pixels."""

    lines: tuple[str, ...]
    kind: str
    feeds: tuple[Place, ...] = ()
    middle: float = 0
    top: float = 0

    @property
    def width(self) -> float:
        return LETTER * max(map(len, self.lines)) + 16


def to_page(name: str | None, inputs: Sequence[InputNode], nodes: Sequence[BuiltNode]) -> str:
    """Return a self-contained page with a picture of a graph."""
    boxes = _boxes(inputs, nodes)
    _lay_out(boxes)
    width = max((box.middle + box.width / 2 for box in boxes.values()), default=0) + ACROSS
    height = max((box.top + HEIGHT for box in boxes.values()), default=0) + DOWN
    lines = [_line(boxes[start], box) for box in boxes.values() for start in box.feeds]
    content = "\n".join([*lines, *map(_drawn, boxes.values())])
    return PAGE.format(title=html.escape(name or "graph"), width=width, height=height, content=content)


def _boxes(inputs: Sequence[InputNode], nodes: Sequence[BuiltNode]) -> dict[Place, _Box]:
    boxes = {("input", index): _Box((source.name, shown(source.desc)), "input") for index, source in enumerate(inputs)}
    for index, node in enumerate(nodes):
        if isinstance(node.desc, OperatorDesc):
            result = shown(tensor) if (tensor := node.desc.outputs[0].tensor) else ""
            feeds = tuple(_place(origin) for origin in node.fed if origin is not None)
            boxes["node", index] = _Box((str(node), result), "operator", feeds)
        else:
            boxes["node", index] = _Box((str(node), shown(node.desc)), "constant")
    return boxes


def _place(origin: Origin) -> Place:
    return ("input" if origin.kind == "input" else "node", origin.number)


def _depths(boxes: dict[Place, _Box]) -> dict[Place, int]:
    """Return the layer of each box: below its sources; inputs and constants just above their first reader."""
    depths: dict[Place, int] = {}
    for place, box in boxes.items():  # nodes stand behind those that they read
        depths[place] = max((depths[start] + 1 for start in box.feeds), default=0)
    above: dict[Place, int] = {}
    for place, box in boxes.items():
        for start in box.feeds:
            above[start] = min(above.get(start, depths[place]), depths[place] - 1)
    return {place: depth or above.get(place, 0) for place, depth in depths.items()}


def _lay_out(boxes: dict[Place, _Box]) -> None:
    """Place boxes in their layers, in the order of their sources, inputs and constants last."""
    layers: dict[int, list[_Box]] = defaultdict(list)
    for place, depth in _depths(boxes).items():
        layers[depth].append(boxes[place])
    for row in sorted(layers):
        for box in layers[row]:
            above = [boxes[start].middle for start in box.feeds]
            box.middle = sum(above) / len(above) if above else 0
        edge = 0.0
        for box in sorted(layers[row], key=lambda box: (not box.feeds, box.middle)):
            box.middle = max(box.middle, edge + ACROSS + box.width / 2)
            box.top = row * (HEIGHT + DOWN) + DOWN / 2
            edge = box.middle + box.width / 2


def _line(start: _Box, end: _Box) -> str:
    top, bottom = start.top + HEIGHT, end.top
    bend = (top + bottom) / 2
    x, y = start.middle, end.middle
    return f'<path d="M{x:.1f},{top:.1f} C{x:.1f},{bend:.1f} {y:.1f},{bend:.1f} {y:.1f},{bottom:.1f}"/>'


def _drawn(box: _Box) -> str:
    left = box.middle - box.width / 2
    texts = "".join(
        f'<text x="{box.middle:.1f}" y="{box.top + 16 + 15 * index:.1f}">{html.escape(line)}</text>'
        for index, line in enumerate(box.lines)
    )
    rect = f'<rect x="{left:.1f}" y="{box.top:.1f}" width="{box.width:.1f}" height="{HEIGHT}" rx="4"/>'
    return f'<g class="{box.kind}">{rect}{texts}</g>'
