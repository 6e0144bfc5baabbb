"""Which choices there are in scheduling something: what schedules ask of a target's tuned choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dmlgpu.bench.workload import Workload
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.description import GraphDesc
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.stages import stages
from dmlgpu.compiler.target import Target, Tuned


class RecordingTable(Tuned):
    """A table that takes note of the questions, in the order in which they come."""

    def __init__(self, answers: tuple[tuple[str, str], ...] = ()):
        super().__init__(answers)
        object.__setattr__(self, "questions", {})

    questions: dict[str, tuple[str, ...]]

    def answer(self, question: str, possible: Callable[[], Sequence[str]]) -> str:
        """Return the answer, as any table does, and list the possible ones."""
        self.questions[question] = tuple(possible())
        return super().answer(question, possible)


def questions_of(workload: Workload, target: Target, answers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the questions that scheduling a workload asks where some are answered, and what may be answered, the
    built-in choice first.

    Raises:
        InvalidArgument: the workload is a model in ONNX, whose graphs depend on its inputs.
        DmlError: it cannot be compiled for the target.
    """
    desc = workload.desc
    if desc is None:
        raise InvalidArgument(f"{workload.name}: models in ONNX are not tuned; their operators can be")
    table = RecordingTable(Tuned.of(answers).answers)
    target = replace(target.for_operators(workload.half_precision), tuned=table)
    if isinstance(desc, GraphDesc):
        compile_network(resolve(desc), target)
    else:
        stages(desc, target)
    return table.questions
