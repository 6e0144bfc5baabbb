"""Cases of the operators that move blocks between height and width and channels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DepthSpaceOrder
from dmlgpu.conformance.cases.case import Case
from dmlgpu.conformance.cases.families.layout import MovingCases, moving_case
from dmlgpu.conformance.cases.keys import Key, SizesList, Types
from dmlgpu.conformance.cases.operator_cases import draw_tensors, register

DEPTH_FIRST = "depth"  # DEPTH_COLUMN_ROW
COLUMN_FIRST = "column"  # COLUMN_ROW_DEPTH
_ORDERS = {DEPTH_FIRST: DepthSpaceOrder.DEPTH_COLUMN_ROW, COLUMN_FIRST: DepthSpaceOrder.COLUMN_ROW_DEPTH}


class _BlockCases(MovingCases):
    """Blocks of 1 to 4; the key has batches, channels of the side of space, rows and columns of the side of depth."""

    standard_count = 16
    ranks = (4,)
    large_sizes: ClassVar[SizesList] = ((1, 5, 257, 513),)
    to_depth: ClassVar[bool]

    def build(self, key: Key, name: str, rng: np.random.Generator) -> Case:
        batch, channels, height, width = key.sizes
        block = int(rng.integers(1, 5))
        space = (batch, channels, height * block, width * block)
        depth = (batch, channels * block * block, height, width)
        given, made = (space, depth) if self.to_depth else (depth, space)
        source, output = draw_tensors(key, rng, (key.types[0], given, False), (key.types[0], made, True))
        fields: dict[str, Any] = {"input_tensor": source, "output_tensor": output, "block_size": block}
        if "order" in {field.python_name for field in self.schema.python_fields}:
            fields["order"] = _ORDERS.get(key.variant, DepthSpaceOrder.COLUMN_ROW_DEPTH)
        return moving_case(name, self.desc_class(**fields))


class _OrderedBlockCases(_BlockCases):
    """Both orders."""

    standard_count = 28

    def variants(self, types: Types) -> tuple[str, ...]:
        return tuple(_ORDERS)


register(_OrderedBlockCases, descs.SpaceToDepth1, to_depth=True)
register(_BlockCases, descs.SpaceToDepth, to_depth=True)
register(_OrderedBlockCases, descs.DepthToSpace1, to_depth=False)
register(_BlockCases, descs.DepthToSpace, to_depth=False)
