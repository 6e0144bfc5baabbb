"""``dmlgpu show MODEL.onnx``: what will run where, before anything runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmlgpu.cli import tables
from dmlgpu.cli.adapter import choose_adapter
from dmlgpu.cli.run_onnx import frontend
from dmlgpu.device.device import Device
from dmlgpu.errors import InvalidArgument
from dmlgpu.explain.fusion import multiplications

if TYPE_CHECKING:
    from dmlgpu.frontends.onnx.preview import Preview


def show_onnx(path: Path, adapter: str | None, shapes: Sequence[str], *, as_text: bool, precise: bool = False) -> None:
    """Print inputs and outputs, operators, what is not supported, and where each node will run.

    Args:
        path: the model.
        adapter: part of an adapter's name, or its number; None chooses.
        shapes: sizes of inputs, each ``name=1x3``; dimensions without a number in the model are else taken as 1.
        as_text: for people; else JSON.
        precise: as on ``Device(precise=True)``.

    Raises:
        ModelError, InvalidArgument: the model is malformed, or a shape is.
        AdapterNotFound: no adapter matches.
    """
    frontend()
    from dmlgpu.frontends.onnx.preview import preview  # noqa: PLC0415  an extra

    device = Device(choose_adapter(adapter), precise=precise)
    made = preview(path, device, dict(map(parse_shape, shapes)))
    if as_text:
        _print(made, device)
    else:
        print(json.dumps(_as_json(made, device), indent=2, ensure_ascii=False))


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return name and sizes of ``name=1x3``.

    Raises:
        InvalidArgument: for what is not written so.
    """
    name, _, sizes = text.rpartition("=")
    try:
        return name, tuple(int(size) for size in sizes.split("x") if sizes)
    except ValueError:
        raise InvalidArgument(f"--shape must be name=1x3x48x192, got {text!r}") from None


def _facts(made: Preview) -> dict[str, Any]:
    """Return what the graphs that run first come to; empty on ``numpy``, which runs no kernels."""
    explained = [found for one in made.segments if (found := one.kernels.explanation) is not None]
    if not explained:
        return {}
    counted = [count for one in explained for step in one.plan.steps if (count := multiplications(step)) is not None]
    return {
        "kernels": sum(len(one.program.kernels) for one in explained),
        "multiplications": sum(counted),
        "bytes_read": sum(one.traffic.read for one in explained),
        "bytes_written": sum(one.traffic.written for one in explained),
        "temporary_bytes": max(one.program.temporary_size for one in explained),
        "persistent_bytes": sum(one.program.persistent_size for one in explained),
    }


def _as_json(made: Preview, device: Device) -> dict[str, Any]:
    return {
        "model": made.name,
        "adapter": str(device.adapter),
        "inputs": {name: list(shape) for name, shape in made.shapes.items()},
        "outputs": list(made.outputs),
        "weight_bytes": made.weight_bytes,
        "unsupported": {name: list(nodes) for name, nodes in made.unsupported.items()},
        "stopped": made.stopped,
        **_facts(made),
        "nodes": [one.__dict__ for one in made.placement],
    }


def _counted(operators: Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(operators).most_common())


def _print(made: Preview, device: Device) -> None:
    facts = {name.replace("_", " "): f"{count:,}" for name, count in _facts(made).items()}
    tables.facts(
        f"{made.name} on '{device.adapter}'",
        [
            ("inputs", "\n".join(f"{name} {list(shape)}" for name, shape in made.shapes.items())),
            ("outputs", ", ".join(made.outputs)),
            ("operator sets", ", ".join(f"{name or 'ai.onnx'} {number}" for name, number in made.versions.items())),
            ("weights", f"{made.weight_bytes:,} bytes"),
            ("nodes", _counted(made.operators)),
            *([("in bodies", _counted(made.in_bodies))] if made.in_bodies else []),
            *facts.items(),
        ],
    )
    if made.unsupported:
        print()
        rows = [(name, str(len(nodes)), nodes[0]) for name, nodes in sorted(made.unsupported.items())]
        tables.table(("not supported", "nodes", "first"), rows, right=(1,))
    if made.placement:
        print()
        nodes = [
            (one.where, one.op_type, one.node, ", ".join(one.kernels or one.operators) or one.why)
            for one in made.placement
            if one.op_type != "Constant"
        ]
        tables.table(("where", "operator", "node", "kernels, or why"), nodes)
    if made.stopped:
        print(f"\n{made.stopped}")
    if made.guessed and made.fails:
        print(f"dimensions without a number are taken as 1, of {', '.join(made.guessed)}: --shape gives others")
