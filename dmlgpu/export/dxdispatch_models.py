"""Operators and graphs of DxDispatch models, with the values that they are initialised with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dmlgpu.catalog.enums import ExecutionFlags
from dmlgpu.common.errors import InvalidArgument, NotSupported, shown
from dmlgpu.export.compiling import Choice, as_graph, exportable
from dmlgpu.export.exportable import Exportable
from dmlgpu.frontends import dxdispatch
from dmlgpu.frontends.dxdispatch.model import (
    BindPoint,
    BoundTensor,
    DxModel,
    GraphDispatchable,
    OperatorDispatchable,
)


def exportable_dispatchable(path: Path, name: str | None, schedules: str, provenance: Mapping[str, Any]) -> Exportable:
    """Return a dispatchable ready to be exported. The arguments and exceptions are those of ``write_dxdispatch``."""
    model = dxdispatch.load(path)
    chosen = _chosen(model, path.name, name)
    choice = Choice(schedules, bool(chosen.flags & ExecutionFlags.ALLOW_HALF_PRECISION_COMPUTATION))
    graph = as_graph(chosen.desc) if isinstance(chosen, OperatorDispatchable) else chosen.graph
    all_there = isinstance(chosen, GraphDispatchable)
    named = zip(_names(chosen.inputs), chosen.initial_inputs, strict=True)
    bound = {name: one for (name, _), one in named if one is not None}
    weights = {name: _content(model, one) for name, one in bound.items()}
    inputs, outputs = (
        [name for name, is_there in _names(points) if is_there or all_there]
        for points in (chosen.inputs, chosen.outputs)
    )
    made = choice.provenance(**provenance, dispatchable=chosen.name)
    return exportable(graph, choice, weights=weights, inputs=inputs, outputs=outputs, provenance=made)


def _chosen(model: DxModel, file: str, name: str | None) -> OperatorDispatchable | GraphDispatchable:
    known = {one.name: one for one in model.dispatchables.values()}
    if name is None and len(known) != 1:
        raise InvalidArgument(f"{file} has {len(known)} dispatchables ({', '.join(known)}); name one of them")
    if name is not None and name not in known:
        raise InvalidArgument(f"{file} has the dispatchables {', '.join(known)}, got {shown(name)}")
    found = known[name] if name is not None else next(iter(known.values()))
    if not isinstance(found, OperatorDispatchable | GraphDispatchable):
        raise NotSupported(f"{file}: {found.name} is no operator and no graph of DirectML")
    return found


def _names(points: Sequence[BindPoint]) -> list[tuple[str, bool]]:
    """Return per tensor its name, DirectML's of the field, with a number where the field has several; and whether it is
    there."""
    return [
        (point.name if len(point.tensors) == 1 else f"{point.name}{number}", tensor is not None)
        for point in points
        for number, tensor in enumerate(point.tensors)
    ]


def _content(model: DxModel, bound: BoundTensor) -> bytes:
    """Return the bytes that a tensor is bound to at initialisation."""
    resource = model.resources[bound.buffer]
    content = np.zeros(max(resource.size, bound.end), np.uint8)
    values = resource.values.to_bytes()
    content[resource.offset : resource.offset + values.size] = values
    return content[bound.offset : bound.offset + bound.tensor.byte_size].tobytes()
