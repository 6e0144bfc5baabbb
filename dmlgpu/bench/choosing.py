"""Workloads of an operator or a case, and the schedules that can compute them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from dmlgpu.bench.specs import sizes_text
from dmlgpu.bench.workload import Workload
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program
from dmlgpu.compiler.schedule.registry import observed_choices
from dmlgpu.compiler.stages import stages
from dmlgpu.compiler.target import Target
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.keys import Key
from dmlgpu.conformance.cases.layouts import TensorLayout
from dmlgpu.conformance.cases.operator_cases import OperatorCases
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.report.model import family_of
from dmlgpu.conformance.samples import SAMPLES, OperatorSample, Sizes, TensorMaker, folded

ELEMENTS: Sizes = {"elements": 1 << 22}
"""Default size of maps."""

SAMPLE = 4096
"""Number of elements of a map compared with the reference."""

_MAPS = ("elementwise", "activation")
"""Families of elementwise operators."""


def size_names(operator: str) -> Sizes:
    """Return the names and defaults of the sizes of an operator; empty for a case."""
    if operator in SAMPLES:
        return SAMPLES[operator].sizes
    return ELEMENTS if is_map(operator) else {}


@functools.cache  # bounded by the operators
def is_map(operator: str) -> bool:
    """Return whether an operator is benchmarked as an elementwise map."""
    if operator in SAMPLES or family_of(operator) not in _MAPS:
        return False
    case = _map_case(OPERATOR_CASES[operator.lower()], None, 8)
    return len({tensor.sizes for tensor in _tensors(case.desc)}) == 1 and case.needs is None


def of_operator(
    operator: str,
    sizes: Sequence[Sizes] = ({},),
    types: Sequence[DataType] = (),
    layouts: Sequence[str] = (),
) -> list[Workload]:
    """Return the workloads of an operator, for every combination of sizes, types and layouts.

    Args:
        operator: DirectML's name.
        sizes: Replace defaults.
        types: Types of the main tensors; empty for the default.
        layouts: Names of ``samples.LAYOUTS``; empty for packed tensors.

    Raises:
        InvalidArgument: If the operator lacks a size, type or layout.
    """
    if operator in SAMPLES:
        row = SAMPLES[operator]
        return [
            _of_row(row, row.with_sizes(size), data_type, layout)
            for size in sizes
            for data_type in types or (row.data_type,)
            for layout in layouts or ("packed",)
        ]
    if is_map(operator):
        return [
            _of_map(operator, OperatorSample(operator, ELEMENTS, _no_build).with_sizes(size), data_type, layout)
            for size in sizes
            for data_type in types or (None,)
            for layout in layouts or ("packed",)
        ]
    if any(sizes) or types or layouts:
        raise InvalidArgument(
            f"{operator} is measured on a conformance case, which has its own sizes, types and layouts;"
            f" operators with sizes are {', '.join(sorted(SAMPLES))} and the element-wise ones"
        )
    return [of_case(_largest_quick(OPERATOR_CASES[operator.lower()]))]


def of_case(name: str) -> Workload:
    """Return the workload of an operator's conformance case. Raises InvalidArgument if there is no such case."""
    stem = name.partition("-")[0]
    case = OPERATOR_CASES[stem].case(name)
    first = case.desc.inputs[0].tensor if case.desc.inputs else case.desc.outputs[0].tensor
    data_type = "" if first is None else first.data_type.name.lower()
    return Workload(name, case.desc.operator, case.desc, data_type=data_type, case=name)


def _largest_quick(cases: OperatorCases) -> str:
    """Return the name of the quick case with the most elements."""
    names = cases.names("quick") or cases.names("standard")
    return max(names, key=lambda name: sum(math.prod(tensor.sizes) for tensor in _tensors(cases.case(name).desc)))


def _of_row(row: OperatorSample, sizes: Sizes, data_type: DataType, layout: str) -> Workload:
    return Workload(
        _name(row.operator, sizes, data_type, layout),
        row.operator,
        row.build(sizes, TensorMaker(data_type, layout)),
        sizes=dict(sizes),
        data_type=data_type.name.lower(),
        layout=layout,
        contents=row.contents(sizes),
    )


def _of_map(operator: str, sizes: Sizes, data_type: DataType | None, layout: str) -> Workload:
    """Return a map with tensors of rank 1, or 2 if the layout needs it."""
    elements = sizes["elements"]
    case = _map_case(OPERATOR_CASES[operator.lower()], data_type, min(elements, SAMPLE))
    first = DataType[case.name.split("-")[1].upper()]
    lead = (1,) * (min(OPERATOR_CASES[operator.lower()].ranks) - 1)
    shape = (*lead, elements) if layout in ("packed", "strided") else (*lead, *folded(elements))
    changed = {
        field: make.result(*shape) if field in case.desc.output_fields else make(*shape)
        for field, make in (
            (field, TensorMaker(value.data_type, layout))
            for field, value in case.desc.values.items()
            if isinstance(value, TensorDesc)
        )
    }
    return Workload(
        _name(operator, sizes, first, layout),
        operator,
        case.desc.replace(**changed),
        sizes=dict(sizes),
        data_type=first.name.lower(),
        layout=layout,
        case=case.name,
        is_map=True,
    )


def _map_case(cases: OperatorCases, data_type: DataType | None, elements: int) -> Case:
    """Return the case of a map with a number of elements, of float32 if possible."""
    main_type = data_type or DataType.FLOAT32
    candidates = [types for types in cases.types if types[0] is main_type] or (cases.types if data_type is None else ())
    if not candidates:
        known = ", ".join(dict.fromkeys(types[0].name.lower() for types in cases.types))
        raise InvalidArgument(f"{cases.desc_class.operator} has no type {main_type.name.lower()}; there are {known}")
    casts = cases.desc_class.operator == "CAST"
    types = min(candidates, key=lambda candidate: (casts == (len(set(candidate)) == 1), not candidate[-1].is_float))
    sizes = (*(1,) * (min(cases.ranks) - 1), elements)
    return cases.case_of(Key(types, sizes, TensorLayout.PACKED))


def _name(operator: str, sizes: Sizes, data_type: DataType, layout: str) -> str:
    laid = "" if layout == "packed" else f" {layout}"
    shown = {name: size for name, size in sizes.items() if size > 1 or name not in ("batch", "groups", "stride")}
    return f"{operator} {sizes_text(shown)} {data_type.name.lower()}{laid}"


def _tensors(desc: OperatorDesc) -> list[TensorDesc]:
    return [slot.tensor for slot in (*desc.inputs, *desc.outputs) if slot.tensor is not None]


def _no_build(sizes: Sizes, make: TensorMaker) -> OperatorDesc:
    raise AssertionError("maps are built from their cases")


def schedules_of(workload: Workload, target: Target) -> tuple[str, ...]:
    """Return the names of schedules that compile a workload to different kernels, after the empty name of the default
    choice.

    Raises:
        DmlError: If the workload cannot be compiled for the target.
    """
    target = target.for_operators(workload.half_precision)
    render = _renderer(workload)
    known: dict[object, str] = {}
    names = [""]  # grows by those of the choices that others lead to
    for name in names:
        try:
            with observed_choices() as choices:
                known.setdefault(_texts(render(target.with_overrides(schedule=name))), name)
        except DmlError:
            if not name:
                raise
            continue  # it does not fit
        tried = dict.fromkeys(each.name for choice in choices for each in choice.tried)
        names += [name for name in tried if name not in names]
    return tuple(known.values())


def _renderer(workload: Workload) -> Callable[[Target], Program]:
    desc = workload.desc
    if desc is None:
        raise InvalidArgument(f"{workload.name}: models in ONNX have no schedules of their own to compare")
    if isinstance(desc, GraphDesc):
        network = resolve(desc)
        return lambda target: compile_network(network, target, ()).program
    return lambda target: stages(desc, target).program


def _texts(program: Program) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]:
    return tuple((kernel.wgsl, kernel.parameters, tuple(kernel.grid)) for kernel in program.kernels)
