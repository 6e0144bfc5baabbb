"""What ``dmlgpu test`` prints of cases that did not come out as they should."""

from __future__ import annotations

from collections.abc import Iterator

from dmlgpu.conformance.running.outcome import Outcome


class FailurePrinter:
    """Prints failures as they come. An error of compiling that several cases have is told with the first of them; the
    names of the others follow in the end.

    Args:
        where: what the adapter is called, if that is to be said.
    """

    def __init__(self, where: str = ""):
        self._where = where
        self._compile_errors: dict[str, list[str]] = {}

    def tell(self, outcome: Outcome, again: str) -> None:
        """Print a failure and the command to see it again, unless it is an error of compiling that was told."""
        error = outcome.compile_error
        if error:
            cases = self._compile_errors.setdefault(error, [])
            cases.append(outcome.case)
            if len(cases) > 1:
                return
        print("\n".join(lines(outcome, again, self._where)), flush=True)

    def finish(self) -> None:
        """Print which cases the errors of compiling failed beside those with which they were told."""
        on = f" on {self._where}" if self._where else ""
        for first, *others in self._compile_errors.values():
            if others:
                count = len(others) + 1
                print(f"{count} cases{on} do not compile, for the reason that {first} does not:")
                print("\n".join(f"  {case}" for case in (first, *others)), flush=True)


def lines(outcome: Outcome, again: str, where: str) -> Iterator[str]:
    """What is wrong, where if that is to be said, the kernels that ran, and the command to see it again."""
    yield f"{outcome.status} on {where}: {outcome.case}" if where else f"{outcome.status}: {outcome.case}"
    if outcome.message:
        yield f"  {outcome.message}"
    if outcome.wrong:
        yield f"  {outcome.wrong_elements}"
    if outcome.kernels:
        yield f"  {'would run' if outcome.compile_error else 'ran'} as: {'; '.join(outcome.kernels)}"
    if outcome.reason:
        yield f"  a failure was expected: {outcome.reason}"
    yield f"  again: {again}"
