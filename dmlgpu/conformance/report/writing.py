"""Runs side by side: operators by adapters, what is wrong and how to see it again. As a page, Markdown or JUnit XML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.common.files import whole_file
from dmlgpu.conformance.drivers.pairwise import Comparison
from dmlgpu.conformance.report.junit import as_junit
from dmlgpu.conformance.report.markdown import as_markdown
from dmlgpu.conformance.report.model import Cell, Report, reproduce
from dmlgpu.conformance.report.page import as_html
from dmlgpu.conformance.report.times import Times
from dmlgpu.conformance.running.records import Run

__all__ = ["FORMATS", "Cell", "Report", "as_html", "as_junit", "as_markdown", "reproduce", "write_report"]

FORMATS: Mapping[str, Callable[[Report], str]] = {".html": as_html, ".md": as_markdown, ".xml": as_junit}
"""How a report is written, by a file's suffix."""


def write_report(
    runs: Sequence[Run], path: Path, comparisons: Sequence[Comparison] = (), times: Sequence[Times] = ()
) -> None:
    """Write runs, comparisons of adapters and times down in the format of a file's suffix.

    Raises:
        InvalidArgument: when there is nothing to report, or no such format.
        OSError: when the file cannot be written.
    """
    if not runs and not comparisons and not times:
        raise InvalidArgument("there is no run to report")
    if path.suffix not in FORMATS:
        raise InvalidArgument(f"{path}: the suffix must be one of {', '.join(FORMATS)}, got {path.suffix!r}")
    text = FORMATS[path.suffix](Report(tuple(runs), tuple(comparisons), tuple(times)))
    with whole_file(path) as stream:
        stream.write(text.encode())
