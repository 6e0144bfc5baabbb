"""Every operator's function, on the conformance cases: what it infers is what the cases say."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from dmlgpu import DataType, Graph, OperatorDesc, OperatorNode, TensorDesc
from dmlgpu.catalog import catalog
from dmlgpu.catalog.enums import InterpolationMode, QuantizationType, ReduceFunction
from dmlgpu.conformance.cases import registry
from dmlgpu.ops import directml as functions

ROOT = Path(__file__).parents[3]

QUICK = (ROOT / "dmlgpu/conformance/cases/quick.txt").read_text(encoding="utf-8").split()

LEADING_ONES = ("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1", "NONZERO_COORDINATES")
"""Operators whose outputs have as many leading 1s as their description says; the builder gives them none."""


def quick_cases() -> dict[str, list[OperatorDesc]]:
    """The descriptions of all quick cases, by operator."""
    result: dict[str, list[OperatorDesc]] = {}
    for name in QUICK:
        desc = registry.case_by_name(name).desc
        result.setdefault(desc.operator, []).append(desc)
    return result


CASES = quick_cases()


def rebuilt(desc: OperatorDesc) -> OperatorDesc:
    """The description that an operator's function makes of a case's inputs and attributes."""
    function = getattr(functions, desc.stem)
    parameters = inspect.signature(function).parameters
    graph = Graph()

    def argument(value: Any) -> Any:
        if isinstance(value, tuple) and value and isinstance(value[0], TensorDesc):
            return [graph.input(tensor) for tensor in value]
        return graph.input(value) if isinstance(value, TensorDesc) else value

    def parameter(field: str) -> str:
        return field.replace("_tensors", "s").removesuffix("_tensor")

    arguments = {
        parameter(field): argument(value) for field, value in desc.values.items() if field not in desc.output_fields
    }
    present = [slot.tensor for slot in desc.outputs if slot.tensor is not None]
    for field in desc.output_fields:
        if parameter(field) in parameters:
            arguments[parameter(field)] = getattr(desc, field) is not None
    if "graph" in parameters:
        arguments["graph"] = graph
    if "output_sizes" in parameters:
        arguments["output_sizes"] = present[0].sizes
        if desc.operator == "SPLIT":
            arguments["output_sizes"] = [tensor.sizes for tensor in present]
        if desc.operator == "ROI_ALIGN_GRAD" and desc.output_gradient_tensor is None:
            del arguments["output_sizes"]
    if "output_type" in parameters:
        arguments["output_type"] = present[-1].data_type
    function(**arguments)
    built = graph.nodes[-1].desc
    assert isinstance(built, OperatorDesc)
    return built


def shape(desc: OperatorDesc, tensor: TensorDesc | None) -> Any:
    if tensor is None:
        return None
    sizes = list(tensor.sizes)
    while desc.operator in LEADING_ONES and sizes and sizes[0] == 1:
        sizes.pop(0)
    return tensor.data_type.name, sizes


@pytest.mark.parametrize("operator", catalog())
def test_outputs_are_inferred(operator: str) -> None:
    assert CASES[operator]
    for desc in CASES[operator]:
        built = rebuilt(desc)
        assert type(built) is type(desc)
        assert built.replace(**{field: getattr(desc, field) for field in desc.output_fields}) == desc
        if operator == "NONZERO_COORDINATES":  # a case may request fewer coordinates
            assert [slot.tensor.data_type for slot in built.outputs if slot.tensor] == [
                slot.tensor.data_type for slot in desc.outputs if slot.tensor
            ]
            continue
        assert [shape(desc, slot.tensor) for slot in built.outputs] == [
            shape(desc, slot.tensor) for slot in desc.outputs
        ]
        assert all(slot.tensor is None or slot.tensor.strides is None for slot in built.outputs)


def test_sizes_that_the_caller_may_choose_have_usual_ones() -> None:
    graph = Graph()
    image = graph.input((1, 2, 4, 5))
    resampled = functions.resample3(image, interpolation_mode=InterpolationMode.LINEAR, scales=(1, 1, 1.5, 0.7))
    assert resampled.sizes == (1, 2, 6, 3)
    sliced = functions.slice1(image, input_window_sizes=(1, 2, 4, 5), input_window_strides=(1, 1, -3, 2))
    assert sliced.sizes == (1, 2, 2, 3)
    result = functions.nonzero_coordinates(image)
    assert (result.output_count.sizes, result.output_coordinates.sizes) == ((1,), (40, 4))
    gradient = functions.resample_grad1(image, interpolation_mode=InterpolationMode.LINEAR, output_sizes=(1, 2, 2, 10))
    (node,) = graph.desc([gradient]).nodes
    assert isinstance(node, OperatorNode) and node.desc.scales == (1, 1, 2, 0.5)


def test_types_that_the_caller_may_choose_have_usual_ones() -> None:
    graph = Graph()
    x, scale = graph.input((2, 4)), graph.input((2, 2))
    signed, words = graph.input((2, 2), DataType.INT8), graph.input((2, 4), DataType.INT8)
    kind = QuantizationType.SCALE
    assert functions.quantize(x, [scale], quantization_type=kind).data_type is DataType.UINT8
    assert functions.dequantize(words, [scale], quantization_type=kind).data_type is DataType.FLOAT32
    kind = QuantizationType.SCALE_ZERO_POINT
    assert functions.quantize(x, [scale, signed], quantization_type=kind).data_type is DataType.INT8
    assert functions.element_wise_is_nan(x).data_type is DataType.UINT8
    assert functions.argmax(x).data_type is DataType.UINT32
    assert functions.top_k1(x, axis=1, k=1).output_index.data_type is DataType.UINT32
    assert functions.reduce(words, function=ReduceFunction.MAX).data_type is DataType.INT8
    assert functions.reduce(words, function=ReduceFunction.ARGMIN).data_type is DataType.UINT32


def test_every_function_names_its_parameters() -> None:
    for operator in catalog().values():
        function = getattr(functions, operator.stem)
        parameters = inspect.signature(function).parameters
        assert function.__doc__ is not None
        assert [name for name in parameters if f"\n        {name}: " not in function.__doc__] == []
