"""The steps of a plan, all kinds of them: what each computes, and nothing of how."""

from dmlgpu.plan.steps.base import (
    Map,
    Plan,
    Repeat,
    Step,
)
from dmlgpu.plan.steps.ordering import (
    Scatter,
    Sort,
    record_lanes,
)
from dmlgpu.plan.steps.products import (
    Attend,
    Contract,
    Convolution,
    Convolve,
    Product,
    Recurrence,
    Space,
)
from dmlgpu.plan.steps.reductions import (
    Compact,
    Reduce,
    Reduction,
    Rows,
    Scan,
    Scanning,
    Stage,
    reduce_stage,
    repeated,
    row_sizes,
    stage_results,
)

__all__ = [
    "Attend",
    "Compact",
    "Contract",
    "Convolution",
    "Convolve",
    "Map",
    "Plan",
    "Product",
    "Recurrence",
    "Reduce",
    "Reduction",
    "Repeat",
    "Rows",
    "Scan",
    "Scanning",
    "Scatter",
    "Sort",
    "Space",
    "Stage",
    "Step",
    "record_lanes",
    "reduce_stage",
    "repeated",
    "row_sizes",
    "stage_results",
]
