"""What all scheduled steps share, and schedules of several."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dmlgpu.plan import Binding, Role, Tensor
from dmlgpu.plan.parts import replace_parts
from dmlgpu.schedule.launch import Launch
from dmlgpu.target import Target


@dataclass(frozen=True)
class Scheduled:
    """A step whose text is decided; each kind is a subclass.

    Attributes:
        label: the schedule and what is special about it, for profilers and messages.
        launch: the shape of the dispatch.
        output: what it writes.
    """

    label: str
    launch: Launch
    output: Tensor

    @property
    def lanes(self) -> int:
        """Elements of a unit, which labels show."""
        return self.output.lanes


@dataclass(frozen=True)
class ScheduledRepeat:
    """Scheduled steps that are executed in turn, again and again (see ``plan.Repeat``)."""

    steps: tuple[Scheduled, ...]
    turns: int
    advances: tuple[tuple[Binding, int], ...]


AnyScheduled = Scheduled | ScheduledRepeat


@dataclass(frozen=True)
class Steps:
    """Scheduled steps, in order.

    Attributes:
        steps: executed at each dispatch.
        initialization: executed once, when the operator is initialised: they read inputs that are OWNED_BY_DML and
            write persistent tensors, where ``steps`` find them.
    """

    steps: tuple[AnyScheduled, ...] = ()
    initialization: tuple[AnyScheduled, ...] = ()

    def __add__(self, other: Steps) -> Steps:
        return Steps(self.steps + other.steps, self.initialization + other.initialization)

    @property
    def as_initialization(self) -> Steps:
        """The same steps, executed once; what is temporary for them lies in the persistent resource, too."""
        return Steps((), tuple(replace_parts(step, Binding, _kept) for step in self.initialization + self.steps))


def _kept(binding: Binding) -> Binding:
    return replace(binding, role=Role.PERSISTENT) if binding.role is Role.TEMPORARY else binding


@dataclass(frozen=True)
class Schedule:
    """How a plan is computed on a target: kernels in order, every choice made.

    Attributes:
        operator: DirectML's operator name, for labels and messages.
        target: what the schedule is for.
        steps, initialization: as for ``Steps``.
    """

    operator: str
    target: Target
    steps: tuple[AnyScheduled, ...]
    initialization: tuple[AnyScheduled, ...] = ()
