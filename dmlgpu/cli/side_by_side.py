"""Runs that go on at the same time, written to one file, in which they follow each other."""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from dmlgpu.conformance.running.outcome import Outcome
from dmlgpu.conformance.running.records import write_run
from dmlgpu.files import NamedFile, growing_file

Write: TypeAlias = Callable[[str, Outcome | None], None]
"""Writes the next outcome of the run of some name; None ends it."""


class _Part:
    """A run in a file of its own."""

    def __init__(self, path: Path, header: dict[str, Any]):
        self.path = path
        self._file = io.TextIOWrapper(io.BufferedWriter(NamedFile(path, "wb", str(path))), encoding="utf-8")
        self._inbox: deque[Outcome | None] = deque()
        self._written = write_run(self._file, header, iter(self._inbox.popleft, None))

    def put(self, outcome: Outcome | None) -> None:
        self._inbox.append(outcome)
        next(self._written, None)

    def close(self) -> str:
        """What was written."""
        self._file.close()
        return self.path.read_text(encoding="utf-8")


@contextlib.contextmanager
def side_by_side(output: Path | None, headers: Mapping[str, dict[str, Any]]) -> Iterator[Write]:
    """Write runs with these headers, by their names; without an output nothing.

    Each is written to a file beside the output, ``results.jsonl.0`` and so on, as it goes on. In the end, be it early,
    they are put together; should this process be killed or the disk be full, each file is the beginning of its run.

    Raises:
        OSError: when a file cannot be written.
    """
    if output is None:
        yield lambda name, outcome: None
        return
    numbered = enumerate(headers.items())
    with growing_file(output) as file:
        parts = {name: _Part(output.with_name(f"{output.name}.{number}"), one) for number, (name, one) in numbered}
        try:
            yield lambda name, outcome: parts[name].put(outcome)
        finally:
            file.writelines(part.close() for part in parts.values())
            file.flush()
            for part in parts.values():
                part.path.unlink()
