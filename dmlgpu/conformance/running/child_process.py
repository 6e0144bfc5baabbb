"""What child processes and those who start them share: how lines are asked and answered, also where one is lost."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

STARTUP_LIMIT = 120.0
"""Seconds that a child may take more for its first answer: for loading Python, a driver, a device."""

PARENT_INTERVAL = 1.0
"""Seconds between two looks at whether the parent is still there."""

EXIT_LIMIT = 10.0
"""Seconds that a child may take to end after it closed its output; drivers can hang while they are unloaded."""

LAST_LINES = 5
"""Lines of what a child printed before it crashed that are kept."""


@contextlib.contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Standard output, for the caller alone: what drivers print there from now on goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        yield output


def exit_with_parent(interval: float = PARENT_INTERVAL) -> None:
    """End this process when its parent is gone, even one that was killed while a case hangs here.

    Windows does not show it: there a child that is left behind ends with the case.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class NoAnswer(Exception):
    """A child did not answer in time, and was ended.

    Args:
        seconds: how long it was waited for.
    """

    def __init__(self, seconds: float):
        super().__init__(f"no answer after {seconds:g} s")
        self.seconds = seconds


class ChildLost(Exception):
    """A child ended before it had answered; the text says how."""


class LineProcess:
    """A child process that answers lines with lines. It is started by the first one, and anew after each loss.

    Args:
        command: what is run.
        environment: variables that it gets beside this process's.

    Attributes:
        generation: how often it was started: what an earlier process knew is lost.
        asked: the lines that the process which runs now was given.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        self._command, self._environment = command, environment
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in close)
        self._interrupted = False
        self.generation = self.asked = 0

    def ask(self, line: str, time_limit: float) -> Iterator[str]:
        """Give the process a line, and yield those with which it answers, as many as the caller takes.

        Args:
            line: without its end.
            time_limit: seconds for all of the answer; a process that is started for it gets STARTUP_LIMIT more.

        Raises:
            NoAnswer: nothing came in time; the process is ended.
            ChildLost: the process ended, or ``interrupt`` was called.
        """
        if self._interrupted:
            raise ChildLost("interrupted")
        if self._process is None:
            self._start()
            time_limit += STARTUP_LIMIT
        assert self._process is not None and self._process.stdin is not None
        self.asked += 1
        with contextlib.suppress(BrokenPipeError):  # a child that is gone gives no answer either
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        deadline = time.monotonic() + time_limit
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.stop()
                raise NoAnswer(time_limit) from None
            if not answer:
                raise ChildLost(self._crashed())
            yield answer

    def interrupt(self) -> None:
        """End the process from another thread, for good; who waits for its answer is told that it is lost."""
        self._interrupted, process = True, self._process
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """End the process; the next line starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()

    def close(self) -> None:
        """End the process, and give back what was kept for it."""
        self.stop()
        self._errors.close()

    def _start(self) -> None:
        self.generation, self.asked = self.generation + 1, 0
        self._answers = queue.SimpleQueue()
        self._errors.seek(0)
        self._errors.truncate()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **self._environment},
        )
        threading.Thread(target=_listen, args=(self._process, self._answers), daemon=True).start()
        if self._interrupted:
            self._process.kill()

    def _crashed(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(EXIT_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace")
        self.stop()
        return describe_exit(code, printed)


def _listen(process: subprocess.Popen[str], answers: queue.SimpleQueue[str]) -> None:
    """Hand a child's lines on; an empty one says that it has ended."""
    assert process.stdout is not None
    with contextlib.suppress(ValueError):  # closed meanwhile
        for line in process.stdout:
            answers.put(line)
    answers.put("")


def describe_exit(code: int, printed: str) -> str:
    """A crash in words: the exit code, or the signal where it is negative, and the last lines of what was printed."""
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return "\n".join([f"the process ended with {ended}", *printed.splitlines()[-LAST_LINES:]])
