"""Scan: accumulators carried along lines, serial or by workgroups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dmlgpu.enums import DataType
from dmlgpu.kernels.grid import Launch, loop_launch
from dmlgpu.kernels.scan import TOTAL, Scan, ScanSchedule, tree_launch, units_held
from dmlgpu.kernels.sources import leaves
from dmlgpu.kernels.walk import choose_walk
from dmlgpu.plan import Binding, Role, Tensor
from dmlgpu.target import Target
from dmlgpu.tensor import packed_strides
from dmlgpu.wgsl import templates
from dmlgpu.wgsl.builder import Builder, Result
from dmlgpu.wgsl.steps.step import Rendered, monoid_operands, render_step
from dmlgpu.wgsl.types import LANE_NAMES, scalar_of


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and which accumulator it is merged into."""

    number: int
    part: str
    state: int


@render_step.register
def _scan(step: Scan, builder: Builder, target: Target) -> Rendered:
    portable, output = step.scanning.portable, step.output
    store, values = builder.store(output, portable, atomic=output.unit_bits < 32)
    text = store + builder.source("input", step.source, raw=False, portable=portable)
    starts = () if step.starts is None else (step.starts,)
    text += "".join(builder.load("starts", tensor, portable) for tensor in starts)
    launch = _launch(step, target)
    values |= {**_values(step), **dict(step.constants)}
    text += _monoid(step, target) + f"alias state_t = array<acc_t, {values['states']}>;\n"
    text += templates.render(step.advance, **values)
    text += templates.render(_schedule_file(step), launch=launch, **values)
    return Rendered(text, launch, (output, *leaves(step.source), *starts), len(values["lanes"]))


def _launch(step: Scan, target: Target) -> Launch:
    blocks = step.lines * step.blocks
    return loop_launch(blocks, target) if _is_serial(step) else tree_launch(blocks, step.length, target)


def _is_serial(step: Scan) -> bool:
    return step.schedule is ScanSchedule.SERIAL


def _schedule_file(step: Scan) -> str:
    if _is_serial(step):
        return "schedules/scan_serial"
    return "schedules/scan_tree_total" if step.advance == TOTAL else "schedules/scan_tree"


def _values(step: Scan) -> dict[str, Any]:
    """What the templates know beside the output's place."""
    lanes = _lanes(step)
    return {
        "walk": choose_walk(_counted(step.line_sizes)),
        "source": step.source,
        "output": step.output,
        "axes": step.axes,
        "lines": step.lines,
        "units": step.units,
        "length": step.length,
        "held": units_held(step.length),
        "lanes": lanes,
        "states": 1 + max(lane.state for lane in lanes),
        "starts": step.starts,
        "exclusive": step.scanning.exclusive,
        "decreasing": step.scanning.decreasing,
        "of_totals": step.of_totals,
        "total": step.advance == TOTAL,
    }


def _counted(sizes: tuple[int, ...]) -> Tensor:
    """Numbers of things in row-major order, to be walked."""
    return Tensor(Binding(Role.TEMPORARY, 0), DataType.UINT32, sizes, packed_strides(sizes))


def _lanes(step: Scan) -> list[_Lane]:
    """The lanes of a unit in the order in which they are merged; neighbouring lines have accumulators of their own."""
    count = 1 if step.of_totals else step.source.lanes
    if count == 1:
        return [_Lane(0, "", 0)]
    lanes = [_Lane(lane, f".{LANE_NAMES[lane]}", lane if step.across else 0) for lane in range(count)]
    return lanes[::-1] if step.scanning.decreasing and not step.across else lanes


def _monoid(step: Scan, target: Target) -> str:
    """The body with ``start``, ``lift``, ``merge`` and ``finish``."""
    portable = step.scanning.portable
    kind = scalar_of(step.element, target, portable)
    output = Result(step.output.data_type, scalar_of(step.output.data_type, target, portable), portable, (), target)
    return templates.render(step.scanning.file, output=output, **monoid_operands(kind, step.element, target))
