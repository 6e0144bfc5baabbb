"""Explanations as JSON: plain dictionaries with stable keys (docs/show.md lists them)."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.explain.explanation import ExplainedKernel, Explanation, Traffic, multiplications, traffic
from dmlgpu.compiler.graph.description import ConstantNode, GraphDesc
from dmlgpu.compiler.graph.network import NetworkNode
from dmlgpu.compiler.plan import Allocation, PlanTensor, Step
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.plan.text import equations, kind_of


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation in JSON types: dictionaries, lists, strings, numbers and None."""
    program, target = explanation.program, explanation.target
    return {
        "title": explanation.title,
        "description": description(explanation.desc),
        "target": {"name": target.name, "profile": target.profile.value, "features": sorted(target.features)},
        "steps": [_step(explanation, number, step) for number, step in enumerate(explanation.steps)],
        "kernels": [_kernel(explanation, kernel) for kernel in explanation.kernels],
        "initialization": [_kernel(explanation, kernel) for kernel in explanation.initialization],
        "memory": {
            "temporary": program.temporary_size,
            "least_temporary": program.least_temporary_size,
            "persistent": program.persistent_size,
            "constants": sum(map(len, program.constants)),
        },
        "fusion": _fusion(explanation),
    }


def description(desc: OperatorDesc | GraphDesc) -> dict[str, Any]:
    """Return a description as JSON knows it: an operator and its fields, or the nodes and sizes of a graph."""
    if isinstance(desc, OperatorDesc):
        return {"operator": desc.operator, "fields": {name: _value(value) for name, value in desc.values.items()}}
    nodes = [
        {"name": node.name, "constant": len(node.data)}
        if isinstance(node, ConstantNode)
        else {"name": node.name, **description(node.desc)}
        for node in desc.nodes
    ]
    return {"graph": desc.name, "inputs": desc.input_count, "outputs": desc.output_count, "nodes": nodes}


def _value(value: Any) -> Any:
    """Return the value of a field as JSON knows it."""
    match value:
        case TensorDesc():
            return {
                "data_type": value.data_type.name,
                "sizes": list(value.sizes),
                "strides": list(value.element_strides),
                "bytes": value.byte_size,
                "owned": value.owned_by_dml,
            }
        case OperatorDesc():
            return description(value)
        case Enum():
            return value.name
        case tuple():
            return [_value(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return value


def _step(explanation: Explanation, number: int, step: Step) -> dict[str, Any]:
    moved = traffic(step)
    return {
        "number": number,
        "kind": kind_of(step),
        "label": step.label,
        "once": number >= len(explanation.plan.steps),
        "equations": equations(step),
        "reads": [_tensor(tensor) for tensor in dict.fromkeys(read(step))],
        "writes": [_tensor(tensor) for tensor in dict.fromkeys(written(step))],
        **_traffic(moved),
        "multiplications": multiplications(step),
        "nodes": _nodes(explanation.nodes[number]),
    }


def _nodes(nodes: tuple[NetworkNode, ...]) -> list[dict[str, str]]:
    return [{"name": node.name, "operator": node.desc.operator} for node in nodes]


def _traffic(moved: Traffic) -> dict[str, int]:
    return {"bytes_read": moved.read, "bytes_written": moved.written}


def _tensor(tensor: PlanTensor) -> dict[str, Any]:
    index = tensor.binding.index
    return {
        "role": tensor.binding.role.value,
        "index": index.label if isinstance(index, Allocation) else index,
        "data_type": tensor.data_type.name,
        "sizes": list(tensor.sizes),
        "strides": list(tensor.strides),
        "bytes": tensor.distinct_bytes,
    }


def _kernel(explanation: Explanation, explained: ExplainedKernel) -> dict[str, Any]:
    kernel, scheduled, step = explained.kernel, explained.scheduled, explained.step
    numbers = kernel.bindings or range(len(kernel.slots))
    return {
        "label": kernel.label,
        "step": step,
        "nodes": [] if step is None else _nodes(explanation.nodes[step]),
        "schedule": None if scheduled is None else scheduled.kind,
        "reason": "" if scheduled is None else scheduled.reason,
        "grid": list(kernel.grid),
        "workgroup": kernel.workgroup,
        "times": explained.times,
        "bindings": [
            {"binding": number, "role": slot.role.value, "index": slot.index, "offset": slot.offset, "bytes": slot.size}
            for number, slot in zip(numbers, kernel.slots, strict=True)
        ],
        "parameters": list(kernel.parameters),
        "shaders": list(kernel.shaders),
        "wgsl": kernel.wgsl,
    }


def _fusion(explanation: Explanation) -> dict[str, Any] | None:
    if explanation.graph is None:
        return None
    assert isinstance(explanation.desc, GraphDesc)
    return {
        "nodes": len(explanation.desc.nodes),
        "kernels": len(explanation.program.kernels),
        "unfused_kernels": explanation.unfused_kernels,
        **_traffic(explanation.traffic),
        **{f"unfused_{name}": count for name, count in _traffic(explanation.unfused_traffic).items()},
        "notes": [
            {"pass": note.pass_name, "subject": note.subject, "text": note.text} for note in explanation.graph.notes
        ],
    }
