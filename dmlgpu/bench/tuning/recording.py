"""What tuning measured, written down, so that the built-in choices can be held against it without measuring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.tuning.search import Finding
from dmlgpu.bench.workload import Workload
from dmlgpu.catalog.enums import DataType


@dataclass(frozen=True)
class Recording:
    """The times of all choices of a question.

    Attributes:
        operator, sizes, data_type: of the workload in which it came up.
        question: what was asked.
        given: answers that were in place when it was asked, by which it came up.
        ratios: of each choice that was measured, its time over that of what was built in then.
    """

    operator: str
    sizes: Mapping[str, int]
    data_type: str
    question: str
    given: Mapping[str, str]
    ratios: Mapping[str, float]

    @classmethod
    def of(cls, workload: Workload, finding: Finding) -> Recording:
        """Return the recording of a finding."""
        ratios = {answer: round(ratio, 3) for answer, ratio in finding.ratios.items()}
        return cls(
            workload.operator, dict(workload.sizes), workload.data_type, finding.question, dict(finding.given), ratios
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Recording:
        """Return the recording that ``to_json`` wrote."""
        return cls(**record)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON has them."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def workload(self) -> Workload:
        """Return the workload again. Raises InvalidArgument where it was no operator with sizes."""
        (match,) = of_operator(self.operator, (self.sizes,), (DataType[self.data_type.upper()],))
        return match

    def excess(self, choice: str) -> float:
        """Return how many times as long a choice takes as the fastest one. Raises KeyError where it was not tried."""
        return self.ratios[choice] / min(self.ratios.values())
