"""Operators that put elements in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import AxisDirection, DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.compiler.operators.elementwise import cast
from dmlgpu.compiler.operators.lowering import Lowering, check_sizes, input_tensor, invalid, output_tensor
from dmlgpu.compiler.plan import Map, Plan, Sort, Tensor, View, constants, element, record_lanes


class TopK1(Lowering):
    """Sorts by bits, exactly and deterministically; values keep their bits, the payload of a NaN too.

    Where the page is silent: K may be the whole axis, which sorts it. NaN, of either sign, is larger than all numbers:
    it comes first where the direction is DECREASING, last where it is INCREASING (as in NumPy's and PyTorch's sorting
    and ONNX's reference; onnxruntime's order is undefined then). NaNs are equal among each other, as are both zeros; of
    equal elements the one with the lower index comes first, in both directions.
    """

    desc = descs.TopK1
    shaders = ("sorting/top_k1", "sorting/record", "sorting/record_wide")

    @classmethod
    def output_sizes(cls, desc: Any) -> Mapping[str, tuple[int, ...]]:
        sizes = tuple(desc.k if d == desc.axis else size for d, size in enumerate(desc.input_tensor.sizes))
        return {"output_value_tensor": sizes, "output_index_tensor": sizes}

    @classmethod
    def check(cls, desc: Any) -> None:
        rank = desc.input_tensor.dimension_count
        if desc.axis >= rank:
            raise invalid(desc, "axis", f"must be below input_tensor's dimension count ({rank}), got {desc.axis}")
        length = desc.input_tensor.sizes[desc.axis]
        if not 1 <= desc.k <= length:
            raise invalid(desc, "k", f"must be from 1 to input_tensor.sizes[{desc.axis}] ({length}), got {desc.k}")
        for field, sizes in cls.output_sizes(desc).items():
            check_sizes(desc, field, sizes, "input_tensor.sizes with k along the axis")

    @classmethod
    def lower(cls, desc: descs.TopK1) -> Plan:
        """Records of rank and place are sorted; then their places are copied, and the elements there."""
        source, decreasing = input_tensor(desc, "input_tensor"), desc.axis_direction is AxisDirection.DECREASING
        others = (size for dimension, size in enumerate(source.sizes) if dimension != desc.axis)
        lanes = record_lanes(source.data_type)
        records = Tensor.temporary("sorted", DataType.UINT32, (*others, desc.k), view=View.RAW, lanes=lanes)
        places = _places(records, output_tensor(desc, "output_value_tensor").sizes, desc.axis)
        sort = Sort("", source, desc.axis, decreasing, records)
        return Plan(desc.operator, (sort, _values(desc, places), _indices(desc, places)))


def _places(records: Tensor, sizes: tuple[int, ...], axis: int) -> Tensor:
    """Return the places in records, which have the axis last, as indices over dimensions of these sizes."""
    lanes, length = records.lanes, sizes[axis]
    others = packed_strides([1 if dimension == axis else size for dimension, size in enumerate(sizes)])
    strides = tuple(lanes if dimension == axis else lanes * length * one for dimension, one in enumerate(others))
    return Tensor(records.binding, DataType.UINT32, sizes, strides, View.INDEX, offset=lanes // 2)


def _values(desc: descs.TopK1, places: Tensor) -> Map:
    """Return the map that copies the elements at the places."""
    source, output = input_tensor(desc, "input_tensor", View.RAW), output_tensor(desc, "output_value_tensor")
    values = constants(axis=desc.axis)
    body = element(TopK1.shaders[0], output.data_type, output.sizes, values=values, input=source, places=places)
    return Map("values", body, output)


def _indices(desc: descs.TopK1, places: Tensor) -> Map:
    """Return the map that converts the places to the type of the index tensor."""
    output = output_tensor(desc, "output_index_tensor")
    source = Tensor(places.binding, places.data_type, places.sizes, places.strides, offset=places.offset)
    return Map("indices", cast(source, output.data_type), output)


class TopK(Lowering):
    """TOP_K1 with the largest first."""

    desc = descs.TopK
    newer = descs.TopK1
    filled: ClassVar[Mapping[str, Any]] = {"axis_direction": AxisDirection.DECREASING}
