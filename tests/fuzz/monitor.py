"""What a call may do: return, or raise an exception of dmlgpu's; in bounded time and memory."""

from __future__ import annotations

import resource
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmlgpu.common.errors import DmlError

PACKAGE = Path(__file__).parents[2] / "dmlgpu"

CPU_LIMIT = 2.0
"""Most seconds that a call may keep its own thread busy."""

WORK_LIMIT = 30.0
"""Maximum CPU seconds that all threads may use during a call, including the driver's.

Seconds of the clock are no measure on a machine that does other things as well; ``child`` bounds these from afar.
"""

GROWTH_LIMIT = 400 << 20
"""Most bytes that a call may add to the largest size of the process."""

MESSAGE_LIMIT = 4000
"""Most characters of an exception's message."""


@dataclass(frozen=True)
class Finding:
    """Something that must not happen.

    Attributes:
        target, adapter, seed: what makes it happen again.
        kind: an exception's type, or one of abort, hang, slow, memory, wrong result and the like.
        place: module and function; findings of one kind at one place count as one.
        detail: the call and its result.
    """

    target: str
    adapter: str
    seed: int
    kind: str
    place: str
    detail: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What tells distinct findings apart."""
        return self.kind, self.place

    @property
    def command(self) -> str:
        """What makes it happen again."""
        return f"scripts/fuzz --target {self.target} --adapter {self.adapter} --seed {self.seed}"

    def to_json(self) -> dict[str, Any]:
        """As child processes report it."""
        return asdict(self)


class FindingRaised(Exception):
    """Raised at a finding where a run is to end there, so that Hypothesis makes the example smaller."""

    def __init__(self, finding: Finding):
        self.finding = finding
        super().__init__(f"{finding.kind} at {finding.place}\n{finding.detail}")


@dataclass(frozen=True)
class Refused:
    """What a call returns that raised instead.

    Attributes:
        error: the exception.
        documented: whether dmlgpu may raise it.
    """

    error: BaseException
    documented: bool = True


class Monitor:
    """Makes calls, counts them and notes what they must not do. Thread-safe.

    Args:
        target, adapter: what is tried on what.
        strict: whether a finding ends the run (``FindingRaised``).

    Attributes:
        seed: what is tried, for the findings.
        subject: says what is tried just now.
        before_call: is called before each call.
        calls, refused: how many there were.
        findings: the findings.
        counts: what targets count, by a name.
    """

    def __init__(self, target: str, adapter: str, *, strict: bool = False):
        self.target, self.adapter, self.strict = target, adapter, strict
        self.seed = 0
        self.subject: Callable[[], str] = str
        self.before_call: Callable[[], None] = lambda: None
        self.calls = self.refused = 0
        self.findings: list[Finding] = []
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call something of dmlgpu's.

        Returns:
            What it returns, or ``Refused``.
        """
        size = _largest_size()
        self.before_call()
        work, busy = time.process_time(), time.thread_time()
        try:
            result = function(*args, **kwargs)
        except Exception as error:  # exceptions of any kind are the findings here
            result = Refused(error, is_documented(error))
        busy, work = time.thread_time() - busy, time.process_time() - work
        with self._lock:
            self.calls += 1
            self.refused += isinstance(result, Refused)
        name = getattr(function, "__qualname__", repr(function))
        if isinstance(result, Refused):
            self._judge(result)
        if busy > CPU_LIMIT or work > WORK_LIMIT:
            self.note("slow", name, f"{busy:.1f} s of its own thread, {work:.1f} s of all")
        if (growth := _largest_size() - size) > GROWTH_LIMIT:
            self.note("memory", name, f"the process grew by {growth >> 20} MiB")
        return result

    def _judge(self, refused: Refused) -> None:
        error = refused.error
        if not refused.documented:
            self.note_exception(error)
        elif len(str(error)) > MESSAGE_LIMIT:
            self.note("long message", place_of(error), f"{len(str(error))} characters: {str(error)[:200]}...")

    def note_exception(self, error: BaseException) -> None:
        """Note an exception that must not have been raised."""
        if isinstance(error, FindingRaised):
            raise error
        last = "".join(traceback.format_exception(error, limit=-4))
        self.note(type(error).__name__, place_of(error), last[-3000:])

    def note(self, kind: str, place: str, detail: str = "") -> None:
        """Note a finding, and what was tried."""
        subject = self.subject()
        detail = f"{subject[:3000]}\n{detail}" if subject else detail
        finding = Finding(self.target, self.adapter, self.seed, kind, place, detail)
        with self._lock:
            self.findings.append(finding)
        if self.strict:
            raise FindingRaised(finding)

    def check(self, condition: bool, kind: str, place: str, detail: str = "") -> None:
        """Note a finding unless a condition holds."""
        if not condition:
            self.note(kind, place, detail)


def is_documented(error: BaseException) -> bool:
    """Whether dmlgpu may raise an exception: its own only."""
    return isinstance(error, DmlError)


def place_of(error: BaseException) -> str:
    """Module and function of dmlgpu's in which an exception was raised, else the innermost ones."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)] or list(frames)
    return "nowhere" if not own else f"{_short(own[-1].filename)}:{own[-1].name}"


def _short(filename: str) -> str:
    path = Path(filename)
    return str(path.relative_to(PACKAGE.parent)) if path.is_relative_to(PACKAGE.parent) else path.name


def _largest_size() -> int:
    """The most bytes that this process has had in memory."""
    try:
        with open("/proc/self/status", "rb") as file:
            return int(file.read().partition(b"VmHWM:")[2].split(maxsplit=1)[0]) << 10
    except (OSError, IndexError):
        # Elsewhere than on Linux; there, a child begins with its parent's number.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def shown(value: object, most: int = 200) -> str:
    """Return the text of any value, truncated."""
    try:
        text = repr(value)
    except Exception as error:  # a foreign __repr__ may do anything, and so do integers of many digits
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= most else text[:most] + "..."
