"""Python child processes that answer requests over pipes, with timeouts; killing one kills all its descendants.

A request is a line of JSON on the child's standard input, an answer a line of JSON in a separate pipe, because drivers
print to standard output. Children import dmlgpu from the path of their parent, and nothing from the current folder.
This module uses only the standard library, because it also runs in environments without dmlgpu.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TextIO

STARTUP_LIMIT = 120.0
"""Seconds in which a child must be ready for requests: it loads Python, a driver and a device."""

READY = "ready"
"""First answer of a child, before it reads a request."""

PARENT_INTERVAL = 1.0
"""Seconds between checks whether the parent is alive."""

EXIT_LIMIT = 10.0
"""Seconds in which a child must exit after it closed its answers; drivers can hang while they are unloaded."""

LAST_LINES = 5
"""Lines of a crashed child's output that are reported."""

ANSWERS_VARIABLE = "DMLGPU_ANSWERS"
"""Environment variable with the file descriptor for a child's answers; defaults to standard output."""

_START = """
import sys
sys.path[:] = filter(None, sys.path)  # not the current folder
import importlib, importlib.util
file, is_whole, module = sys.argv[1:4]
del sys.argv[1:4]
if "dmlgpu" not in sys.modules:
    spec = importlib.util.spec_from_file_location("dmlgpu", file)
    sys.modules["dmlgpu"] = package = importlib.util.module_from_spec(spec)
    if is_whole:
        spec.loader.exec_module(package)
sys.exit(importlib.import_module(module).main())
"""


# ---- in the parent ---------------------------------------------------------------------------------------------------


def python_command(module: str, *arguments: str, interpreter: str = "") -> tuple[str, ...]:
    """Return the command that calls ``main()`` of a module of this dmlgpu, not of one in the current folder.

    Args:
        module: Name of the module.
        arguments: ``sys.argv[1:]`` of the process.
        interpreter: Another Python interpreter, in which dmlgpu need not be installed: the module may import other
            modules of dmlgpu, but not dependencies of dmlgpu.
    """
    is_whole = "" if interpreter else "whole"
    package = str(Path(__file__).parents[1] / "__init__.py")
    return (interpreter or sys.executable, "-c", _START, package, is_whole, module, *arguments)


class NoAnswer(Exception):
    """A child did not answer in time, and was killed.

    Args:
        seconds: Seconds that the parent waited.
    """

    def __init__(self, seconds: float):
        super().__init__(f"no answer after {seconds:g} s")
        self.seconds = seconds


class ChildLost(Exception):
    """A child ended before it answered; the message has its exit status.

    Args:
        code: Exit code, or minus a signal's number; None if the child was interrupted.
    """

    def __init__(self, message: str, code: int | None = None):
        super().__init__(message)
        self.code = code


class ChildProcess:
    """A child process that answers requests. Started at the first request, and again after each loss.

    Args:
        command: Command line, such as ``python_command`` returns.
        environment: Additional environment variables.
        startup_limit: Seconds in which it must be ready for requests.

    Attributes:
        generation: Number of starts. A new process has lost the state of the earlier one.
        requests: Number of requests sent to the running process.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        startup_limit: float = STARTUP_LIMIT,
    ):
        self._command, self._environment, self._startup_limit = command, environment or {}, startup_limit
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed in close)
        self._interrupted = False
        self.generation = self.requests = 0

    def ask(self, request: Any, time_limit: float) -> Iterator[Any]:
        """Send a request, and yield as many answers as the caller takes.

        Args:
            request: A JSON-serializable request.
            time_limit: Seconds for all answers, from the time at which the process is ready for requests.

        Raises:
            NoAnswer: If the process is not ready in time, or an answer times out; the process is killed.
            ChildLost: If the process ended, or ``interrupt`` was called.
        """
        if self._interrupted:
            raise ChildLost("interrupted")
        if self._process is None:
            self._start()
            next(self._read(self._startup_limit))
        assert self._process is not None and self._process.stdin is not None
        self.requests += 1
        with contextlib.suppress(BrokenPipeError):  # a child that is gone gives no answer either
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        yield from self._read(time_limit)

    def _read(self, time_limit: float) -> Iterator[Any]:
        """Yield answers until the time is over."""
        deadline = time.monotonic() + time_limit
        while True:
            try:
                line = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self.stop()
                raise NoAnswer(time_limit) from None
            if not line:
                raise self._loss()
            yield json.loads(line)

    def interrupt(self) -> None:
        """Kill the process from another thread; a waiting caller gets ChildLost."""
        self._interrupted, process = True, self._process
        if process is not None:
            process.kill()

    def stop(self) -> None:
        """Kill the process; the next request starts another."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()

    def close(self) -> None:
        """Kill the process and release its resources."""
        self.stop()
        self._output.close()

    def _start(self) -> None:
        self.generation, self.requests = self.generation + 1, 0
        self._answers = queue.SimpleQueue()
        self._output.seek(0)
        self._output.truncate()
        environment = {**os.environ, **self._environment, "PYTHONSAFEPATH": "1"}  # also for grandchildren
        options: Any = {"stdin": subprocess.PIPE, "stderr": self._output, "text": True}
        if sys.platform == "win32":  # which inherit only the standard streams
            self._process = process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, env=environment, **options
            )
            assert process.stdout is not None
            answers: TextIO = process.stdout  # type: ignore[assignment]
        else:
            reading, writing = os.pipe()
            answers = os.fdopen(reading, encoding="utf-8")
            try:
                self._process = process = ProcessGroup(
                    self._command,
                    stdout=self._output,
                    env={**environment, ANSWERS_VARIABLE: str(writing)},
                    pass_fds=(writing,),
                    process_group=0,
                    **options,
                )
            except BaseException:
                answers.close()
                raise
            finally:
                os.close(writing)
        threading.Thread(target=_listen, args=(answers, self._answers), daemon=True).start()
        if self._interrupted:
            process.kill()

    def _loss(self) -> ChildLost:
        assert self._process is not None
        try:
            code = self._process.wait(EXIT_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace")
        self.stop()
        return ChildLost(describe_exit(code, printed), code)


class ProcessGroup(subprocess.Popen[str]):
    """A process that is killed with its descendants; it is started with ``process_group=0``. Ctrl+C in a terminal
    reaches only the parent, which kills it."""

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def _listen(answers: TextIO, lines: queue.SimpleQueue[str]) -> None:
    """Forward a child's lines; an empty line marks the end of its output."""
    with answers:
        for line in answers:
            lines.put(line)
    lines.put("")


def describe_exit(code: int, printed: str) -> str:
    """Describe a crash: the exit code, or the signal if it is negative, and the last lines of the output."""
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    return "\n".join([f"the process ended with {ended}", *printed.splitlines()[-LAST_LINES:]])


# ---- in the child ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def answer_stream() -> Iterator[TextIO]:
    """Open the pipe of answers, which is separate from standard output."""
    descriptor = int(os.environ.pop(ANSWERS_VARIABLE, "1"))
    if descriptor == 1:
        descriptor = os.dup(1)
        os.dup2(2, 1)
    os.set_inheritable(descriptor, False)
    with os.fdopen(descriptor, "w", encoding="utf-8") as answers:
        yield answers


def tell_ready(answers: TextIO) -> None:
    """Say that this process is ready for requests: their time limits begin here."""
    send_answer(answers, READY)


def send_answer(answers: TextIO, answer: Any) -> None:
    """Write a JSON-serializable answer."""
    print(json.dumps(answer), file=answers, flush=True)


def exit_with_parent(interval: float = PARENT_INTERVAL) -> None:
    """End this process and its descendants when its parent is gone, even if it was killed while this one hangs.

    Windows does not show that: there an orphan ends when it has no more to do.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        if sys.platform != "win32" and os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class RequestServer(ABC):
    """Server that answers requests, whose ``do`` names the action. Errors are answers and do not end the server.

    Attributes:
        refusals: Exceptions for unsupported requests.
        failures: Exceptions reported by their message; others are reported with their type.
    """

    refusals: ClassVar[tuple[type[Exception], ...]] = ()
    failures: ClassVar[tuple[type[Exception], ...]] = ()

    @abstractmethod
    def handle(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a request and return the answer."""

    def serve(self, requests: TextIO, answers: TextIO) -> None:
        """Answer requests until they end."""
        tell_ready(answers)
        gc.disable()  # handlers collect garbage between measurements
        for line in requests:
            send_answer(answers, self.answer(json.loads(line)))

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of ``handle``, or ``refused`` or ``failed`` with a message."""
        try:
            return self.handle(request)
        except self.refusals as refusal:
            return {"refused": str(refusal)}
        except self.failures as error:
            return {"failed": str(error)}
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}"}
