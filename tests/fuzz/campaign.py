"""A campaign: child processes run seeds of targets; what they find, and what kills them, is gathered."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmlgpu.common.processes import describe_exit
from tests.fuzz.child import CALL_LIMIT, CALL_LIMIT_VARIABLE
from tests.fuzz.monitor import PACKAGE, Finding

CALLS_OF_SILENCE = 10
"""A child that reports nothing for this multiple of a call's limit is killed, since it may hang unnoticed."""

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+ in (?P<function>\S+)')


@dataclass
class Tally:
    """Results of some seeds.

    Attributes:
        seeds, calls, refused: how many there were.
        findings: the first of each distinct one.
        counts: how often each was met.
        counted: what the target counts, by a name.
        next_seed: the first seed that did not run.
    """

    seeds: int = 0
    calls: int = 0
    refused: int = 0
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    next_seed: int = 0

    def add(self, finding: Finding) -> None:
        """Note a finding."""
        self.findings.setdefault(finding.key, finding)
        self.counts[finding.key] += 1

    def update(self, other: Tally) -> None:
        """Take over what another run came to."""
        self.seeds += other.seeds
        self.calls += other.calls
        self.refused += other.refused
        for key, finding in other.findings.items():
            self.findings.setdefault(key, finding)
        self.counts.update(other.counts)
        self.counted.update(other.counted)


def run_seeds(
    target: str,
    adapter: str,
    first: int,
    count: int,
    *,
    seconds: float = float("inf"),
    call_limit: float = CALL_LIMIT,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> Tally:
    """Run seeds of a target in child processes, a new one after each loss.

    Args:
        target, adapter: what is tried on what.
        first, count: the seeds.
        seconds: after which no further seed is begun.
        call_limit: seconds for one call.
        on_finding: called with each finding.
    """
    tally = Tally(next_seed=first)
    end = time.monotonic() + seconds
    while tally.next_seed < first + count and (remaining := end - time.monotonic()) > 0:
        seeds = range(tally.next_seed, first + count)
        child = _Child([target, adapter, str(seeds.start), str(len(seeds)), str(remaining)], call_limit)
        begun = tally.next_seed
        for record in child.records():
            if "seed" in record:
                tally.next_seed = record["seed"] + 1
            elif "finding" in record:
                finding = Finding(**record["finding"])
                tally.add(finding)
                on_finding(finding)
            else:
                tally.seeds += 1
                tally.calls += record["calls"]
                tally.refused += record["refused"]
                tally.counted.update(record.get("counted", {}))
        if child.loss is None:
            break
        finding = Finding(target, adapter, max(begun, tally.next_seed - 1), *child.loss)
        tally.seeds += 1
        tally.add(finding)
        on_finding(finding)
        tally.next_seed = finding.seed + 1
    return tally


class _Child:
    """A child process that runs seeds.

    Attributes:
        loss: kind, place and detail of its abnormal end, None if it ended normally.
    """

    def __init__(self, arguments: Sequence[str], call_limit: float):
        self.loss: tuple[str, str, str] | None = None
        self._limit = call_limit
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in records)
        environment = {**os.environ, "PYTHONHASHSEED": "0", CALL_LIMIT_VARIABLE: str(call_limit)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.child", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            stdin=subprocess.DEVNULL,
            cwd=PACKAGE.parent,
            env=environment,
            text=True,
        )

    def records(self) -> Iterator[dict[str, Any]]:
        """What it reports, until it ends."""
        assert self._process.stdout is not None
        silent = threading.Event()
        watch = self._watch(silent)
        try:
            for line in self._process.stdout:
                watch.cancel()
                watch = self._watch(silent)
                with contextlib.suppress(json.JSONDecodeError):  # a line that a dying child did not end
                    yield json.loads(line)
            code = self._process.wait()
        finally:
            watch.cancel()
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace")
        self._errors.close()
        if code or silent.is_set():
            self.loss = _loss(code, printed, silent.is_set())

    def _watch(self, silent: threading.Event) -> threading.Timer:
        def kill() -> None:
            silent.set()
            self._process.send_signal(signal.SIGABRT)  # faulthandler says where it hangs

        timer = threading.Timer(CALLS_OF_SILENCE * self._limit, kill)
        timer.daemon = True
        timer.start()
        return timer


def _loss(code: int, printed: str, was_silent: bool) -> tuple[str, str, str]:
    """Kind, place and detail of a child's end."""
    hung = was_silent or "Timeout (" in printed
    kind = "hang" if hung else "abort" if code < 0 else f"exit code {code}"
    return kind, _place(printed), f"{describe_exit(code, '')}\n{printed[-3000:]}"


def _place(printed: str) -> str:
    """Module and function of dmlgpu's in which a child was when faulthandler printed its threads, else innermost."""
    _, marked, current = printed.rpartition("Current thread")
    # The thread that fails is marked; where none is, the main one is the last.
    thread = current if marked else printed.rpartition("Thread 0x")[2]
    frames = [(match["file"], match["function"]) for match in _FRAME.finditer(thread.partition("\n\n")[0])]
    own = [(file, function) for file, function in frames if file.startswith(str(PACKAGE))] or frames
    return "nowhere" if not own else ":".join(own[0]).removeprefix(f"{PACKAGE.parent}/")
