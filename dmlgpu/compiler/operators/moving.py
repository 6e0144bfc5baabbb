"""What operators share whose whole result is moved."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dmlgpu.compiler.operators.lowering import Lowering
from dmlgpu.compiler.plan import Plan, Role, Tensor, View
from dmlgpu.compiler.rewrites.moves import copy


class Moving(Lowering):
    """An operator that copies move by move. Its kernels bind one input and one output each, however many there are."""

    shaders = ("layout/slice1",)

    @classmethod
    def lower(cls, desc: Any) -> Plan:
        moves = cls.moves(desc)
        pieces = Counter(move.output for move in moves)
        inputs = [Tensor.of(Role.INPUT, number, slot.tensor, View.RAW) for number, slot in enumerate(desc.inputs)]
        outputs = [Tensor.of(Role.OUTPUT, number, slot.tensor) for number, slot in enumerate(desc.outputs)]
        steps = tuple(
            copy(move, inputs[move.input], outputs[move.output], keeps_neighbours=pieces[move.output] > 1)
            for move in moves
        )
        return Plan(desc.operator, steps)
