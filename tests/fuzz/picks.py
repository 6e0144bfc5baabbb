"""The objects that a state machine has made, and rules that draw from them.

Hypothesis has bundles for this; an example in which one of them is empty is given up there, and most of them are.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, rule

Method = TypeVar("Method", bound=Callable[..., Any])


_MADE = Bundle("made")
"""Results of rules; Hypothesis requires the bundle, but no rule draws from it."""


@dataclass(frozen=True)
class Pick:
    """One of the objects in some pools, or None while there are none."""

    kinds: tuple[str, ...]
    number: int

    def __repr__(self) -> str:
        return f"{'|'.join(self.kinds)}[{self.number}]"


def one_of(*kinds: str) -> st.SearchStrategy[Pick]:
    """Picks one object of some kinds."""
    return st.builds(Pick, st.just(kinds), st.integers(0, 31))


def any_of(*kinds: str, most: int = 3) -> st.SearchStrategy[list[Pick]]:
    """Picks some objects of some kinds."""
    return st.lists(one_of(*kinds), max_size=most)


class Pools(defaultdict[str, list[Any]]):
    """Objects by kind, in the order in which they were made."""

    def __init__(self) -> None:
        super().__init__(list)

    def resolve(self, value: Any) -> Any:
        """The object that a pick means; those that a list of picks means."""
        if isinstance(value, list | tuple):
            items = [self.resolve(item) for item in value]
            return type(value)(items)
        if not isinstance(value, Pick):
            return value
        candidates = [candidate for kind in value.kinds for candidate in self[kind]]
        # Small numbers are the latest objects: what is done to these follows on what was done before.
        return candidates[-1 - value.number % len(candidates)] if candidates else None


def rule_of(target: str = "", /, **strategies: Any) -> Callable[[Method], Method]:
    """A rule of a machine with ``pools``, whose picks are resolved; what it returns goes to the pool ``target``."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def act(self: Any, *args: Any, **kwargs: Any) -> Any:
            arguments = [self.pools.resolve(arg) for arg in args]
            result = method(self, *arguments, **{name: self.pools.resolve(value) for name, value in kwargs.items()})
            if target and result is not None:
                self.pools[target].append(result)
            return result

        wrapped: Method = rule(**({"target": _MADE} if target else {}), **strategies)(act)
        return wrapped

    return decorate
