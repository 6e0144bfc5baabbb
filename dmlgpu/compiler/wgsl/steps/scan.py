"""Scans: accumulators carried along lines, serial or by workgroups."""

from __future__ import annotations

from dataclasses import dataclass

from dmlgpu.compiler.schedule.steps import ScanSchedule, ScheduledScan
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.builder import Builder, Result
from dmlgpu.compiler.wgsl.steps.step import monoid_operands, render_step
from dmlgpu.compiler.wgsl.types import LANE_NAMES, scalar_of


@dataclass(frozen=True)
class _Lane:
    """A lane of a unit: its number, how to take it out of the unit, and which accumulator it is merged into."""

    number: int
    part: str
    state: int


@render_step.register
def _scan(step: ScheduledScan, builder: Builder) -> str:
    portable, output, lanes = step.scanning.portable, step.output, _lanes(step)
    store, values = builder.store(output, portable, atomic=output.unit_bits < 32)
    text = store + builder.source("input", step.source, raw=False, portable=portable)
    text += "" if step.starts is None else builder.load("starts", step.starts, portable)
    values |= {
        "launch": step.launch,
        "walk": step.walk,
        "source": step.source,
        "output": output,
        "axes": step.axes,
        "lines": step.lines,
        "units": step.units,
        "length": step.length,
        "held": step.held,
        "lanes": lanes,
        "states": 1 + max(lane.state for lane in lanes),
        "starts": step.starts,
        "exclusive": step.scanning.exclusive,
        "decreasing": step.scanning.decreasing,
        "of_totals": step.of_totals,
        "total": step.is_total,
        **dict(step.constants),
    }
    text += _monoid(step, builder) + f"alias state_t = array<acc_t, {values['states']}>;\n"
    return text + templates.render(step.advance, **values) + templates.render(_schedule_file(step), **values)


def _schedule_file(step: ScheduledScan) -> str:
    if step.schedule is ScanSchedule.SERIAL:
        return "schedules/scan_serial"
    return "schedules/scan_tree_total" if step.is_total else "schedules/scan_tree"


def _lanes(step: ScheduledScan) -> list[_Lane]:
    """Return the lanes of a unit in the order in which they are merged; neighbouring lines have accumulators of their
    own."""
    if step.lanes == 1:
        return [_Lane(0, "", 0)]
    lanes = [_Lane(lane, f".{LANE_NAMES[lane]}", lane if step.across else 0) for lane in range(step.lanes)]
    return lanes[::-1] if step.scanning.decreasing and not step.across else lanes


def _monoid(step: ScheduledScan, builder: Builder) -> str:
    """Return the body with ``start``, ``lift``, ``merge`` and ``finish``."""
    target, portable = builder.target, step.scanning.portable
    kind, output_kind = (scalar_of(data_type, target, portable) for data_type in (step.element, step.output.data_type))
    output = Result(step.output.data_type, output_kind, portable, (), target)
    return templates.render(step.scanning.file, output=output, **monoid_operands(kind, step.element, target))
