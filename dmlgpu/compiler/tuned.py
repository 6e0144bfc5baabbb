"""What tuning found fastest on an adapter: answers to the questions that schedules ask, as plain data of a target."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tuned:
    """An immutable table of choices, so that scheduling stays a function of plan and target alone.

    Attributes:
        answers: pairs of a question and its answer, such as ``product 1x512x512x512`` and ``register 16x2``. What an
            answer means, and whether it is one of those there are, decides who asks.
    """

    answers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", dict(self.answers))
        object.__setattr__(self, "_hash", zlib.crc32(repr(self.answers).encode()))

    def __hash__(self) -> int:
        """Return a number that was computed once: programs are looked up by their target again and again."""
        return self._hash  # type: ignore[attr-defined]

    @classmethod
    def of(cls, answers: Mapping[str, str]) -> Tuned:
        """Return the table of some answers, whatever their order."""
        return cls(tuple(sorted(answers.items())))

    def answer(self, question: str, possible: Callable[[], Sequence[str]]) -> str:
        """Return the answer to a question; empty where it is not known.

        Args:
            question: about one choice.
            possible: lists the answers there are, the built-in choice first, for who tries them all.
        """
        return self._known.get(question, "")  # type: ignore[attr-defined]


UNTUNED = Tuned()
"""No answers: every choice is the built-in one."""
