"""What scripts share that compare this checkout with another one: a process of each runs the same call.

The processes take turns, round by round, and measure their own CPU time, so that neither the load of the machine nor
its drift counts. Both run the script of this checkout, each with the package of its own checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import dmlgpu
from dmlgpu.bench.ratios import Ratio, ratio

ROOT = Path(__file__).resolve().parents[1]
"""This checkout."""


class Checkout:
    """A process that runs a call of a script with the package of a checkout.

    Attributes:
        seconds: CPU time of the process after the last call.
    """

    def __init__(self, root: Path, arguments: Sequence[str]):
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(root)},
        )
        package = Path(self._answer()).parent
        if package != root / "dmlgpu":
            raise RuntimeError(f"the process runs {package}, not the package of {root}")
        self.seconds = 0.0

    def run(self, number: int) -> None:
        """Run the call with a running number."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        self.seconds = float(self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        """Return the next line that the process prints."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with exit code {self._process.wait()}")
        return line.strip()


def compare(other: Path, arguments: Sequence[str], *, rounds: int, calls: int) -> Ratio:
    """Return the CPU time of a call in this checkout divided by that in another one.

    Args:
        other: The root of the other checkout.
        arguments: A script that calls ``serve``, and its arguments.
        rounds, calls: As in ``ratio``.
    """
    mine, theirs = (Checkout(root, arguments) for root in (ROOT, other.resolve()))
    try:
        return ratio(mine.run, theirs.run, rounds, calls=calls, warm=5, clock=lambda: mine.seconds + theirs.seconds)
    finally:
        mine.close()
        theirs.close()


def serve(call: Callable[[int], object]) -> None:
    """Run a call for each number that the standard input has, and print the CPU time of the process after it."""
    print(dmlgpu.__file__, flush=True)
    for line in sys.stdin:
        call(int(line))
        print(time.process_time(), flush=True)
