"""Operators whose results are exact, for programs made at random."""

from __future__ import annotations

from typing import Any

from dmlgpu import DataType, TensorDesc, TensorFlags, descs
from dmlgpu.catalog.enums import AxisDirection, ReduceFunction


def _row(data_type: DataType, *sizes: int, owned: bool = False) -> TensorDesc:
    return TensorDesc(data_type, sizes, flags=TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE)


def _pair(kind: Any, tensor: TensorDesc, b: TensorDesc | None = None) -> Any:
    return kind(a_tensor=tensor, b_tensor=b or tensor, output_tensor=tensor)


_INTS, _BYTES = _row(DataType.INT32, 1, 1, 2, 8), _row(DataType.UINT8, 3, 5)
DESCS = (
    _pair(descs.ElementWiseSubtract, _INTS),
    _pair(descs.ElementWiseMultiply, _INTS, _row(DataType.INT32, 1, 1, 2, 8, owned=True)),
    _pair(descs.ElementWiseAdd, _INTS, TensorDesc(DataType.INT32, (1, 1, 2, 8), (0, 0, 0, 1))),
    _pair(descs.ElementWiseMax, _BYTES),
    descs.ElementWiseIdentity(
        input_tensor=TensorDesc(DataType.UINT16, (4, 6), (1, 4)), output_tensor=_row(DataType.UINT16, 4, 6)
    ),
    descs.Gather(
        input_tensor=_row(DataType.INT32, 1, 1, 4, 4, owned=True),
        indices_tensor=_row(DataType.UINT32, 1, 1, 1, 3),
        output_tensor=_row(DataType.INT32, 1, 1, 3, 4),
        axis=2,
        index_dimensions=1,
    ),
    descs.Reduce(
        function=ReduceFunction.SUM,
        input_tensor=_row(DataType.INT32, 1, 1, 16, 33),
        output_tensor=_row(DataType.INT32, 1, 1, 1, 33),
        axes=(2,),
    ),
    descs.CumulativeSummation(
        input_tensor=_row(DataType.UINT32, 1, 1, 1, 300),
        output_tensor=_row(DataType.UINT32, 1, 1, 1, 300),
        axis=3,
        axis_direction=AxisDirection.INCREASING,
        has_exclusive_sum=False,
    ),
)
"""Operators that compute integers, exactly; some own inputs, work in place, or need temporary memory."""
