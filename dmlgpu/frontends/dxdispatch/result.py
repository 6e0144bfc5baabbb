"""What happens while a model runs, as values that print themselves in DxDispatch's words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Initialized:
    """A dispatchable was compiled and initialised; time on the host, waiting included."""

    dispatchable: str
    milliseconds: float

    def __str__(self) -> str:
        return f"Initialize '{self.dispatchable}': {self.milliseconds:.4f} ms"


@dataclass(frozen=True)
class Dispatched:
    """A dispatch was recorded, submitted and waited for; time on the host."""

    dispatchable: str
    milliseconds: float

    def __str__(self) -> str:
        return f"Dispatch '{self.dispatchable}': {self.milliseconds:.4f} ms (CPU)"


@dataclass(frozen=True)
class Printed:
    """A resource was printed; ``text`` is its elements."""

    resource: str
    text: str
    verbose: bool = False

    def __str__(self) -> str:
        return f"Resource '{self.resource}':{chr(10) if self.verbose else ' '}{self.text}"


@dataclass(frozen=True)
class Written:
    """A resource was written to a file."""

    resource: str
    file: Path

    def __str__(self) -> str:
        return f"Resource '{self.resource}' written to '{self.file}'"


Event = Initialized | Dispatched | Printed | Written


@dataclass(frozen=True)
class Result:
    """The outcome of a model.

    Attributes:
        resources: each resource that a print or writeFile names, as the last such command saw it.
        events: what happened, in order; ``str`` of one is the line DxDispatch would print.
    """

    resources: Mapping[str, NDArray[Any]]
    events: tuple[Event, ...]

    @property
    def printed(self) -> tuple[Printed, ...]:
        """The printed resources, in order."""
        return tuple(event for event in self.events if isinstance(event, Printed))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files written, in order."""
        return tuple(event.file for event in self.events if isinstance(event, Written))

    @property
    def initialization_milliseconds(self) -> Mapping[str, float]:
        """Time to compile and initialise each dispatchable."""
        return {event.dispatchable: event.milliseconds for event in self.events if isinstance(event, Initialized)}

    @property
    def dispatch_milliseconds(self) -> tuple[tuple[str, float], ...]:
        """Dispatchable and time of each dispatch, in order."""
        return tuple((event.dispatchable, event.milliseconds) for event in self.events if isinstance(event, Dispatched))
