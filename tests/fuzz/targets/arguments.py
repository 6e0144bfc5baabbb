"""Objects of devices in any order, with arguments of any kind."""

from __future__ import annotations

import numbers
import random
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize

from tests.fuzz.machine import LifeCycle, run_machine
from tests.fuzz.memory import SKIPPED
from tests.fuzz.monitor import Monitor, Refused
from tests.fuzz.values import strange


class Arguments(LifeCycle):
    """The same machine; every fourth call gets a strange argument, after which nothing is known of memory."""

    knows = False
    rng = random.Random(0)

    @initialize(number=st.integers(0, 2**32))
    def seed(self, number: int) -> None:
        """Which arguments become strange, and what they become."""
        self.rng = random.Random(number)

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if self.rng.random() > 0.25 or not (args or kwargs):
            return super().call(function, *args, **kwargs)
        changed: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        if (place := self.rng.choice(list(changed))) == 0 and getattr(function, "__name__", "") in METHODS:
            return SKIPPED
        value = changed[place]
        if place == 1 and getattr(function, "__name__", "") == "wait":
            # A long timeout is a wait that no event ends.
            changed[place] = _timeout(self.rng)
        elif isinstance(value, list) and value and self.rng.random() < 0.5:
            value = list(value)
            value[self.rng.randrange(len(value))] = strange(self.rng)
            changed[place] = value
        else:
            changed[place] = strange(self.rng)
        positional = [value for key, value in changed.items() if isinstance(key, int)]
        result = super().call(function, *positional, **{key: changed[key] for key in kwargs})
        # What was accepted is something else than the shadows know.
        return result if isinstance(result, Refused) else SKIPPED


METHODS = frozenset({"repr", "name"})
"""Functions whose first argument is the object itself."""


def _timeout(rng: random.Random) -> Any:
    """A strange value that is not many seconds."""
    value = strange(rng)
    return -1 if isinstance(value, numbers.Real) and value > 1 else value


def run(seed: int, monitor: Monitor) -> None:
    """Run some examples of the machine."""
    run_machine(Arguments, seed, monitor)
