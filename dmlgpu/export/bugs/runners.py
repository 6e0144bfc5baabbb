"""Runners of a bug report: one in Python on wgpu-py, one in C on wgpu-native, neither of which needs dmlgpu."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dmlgpu.export.bugs.programs import BugProgram
from dmlgpu.export.folder import page_file, write_files

PYTHON_RUNNER, C_RUNNER, C_TABLES = "run.py", "run.c", "bug.h"
"""Files of the runners."""

_C_FEATURES: Final = {
    "shader-f16": "WGPUFeatureName_ShaderF16",
    "shader-f64": "(WGPUFeatureName)WGPUNativeFeature_ShaderF64",
    "shader-int64": "(WGPUFeatureName)WGPUNativeFeature_ShaderInt64",
    "subgroup": "(WGPUFeatureName)WGPUNativeFeature_Subgroup",
}
_MAX_BINDINGS: Final = 64


@dataclass(frozen=True)
class RunnerResult:
    """Result of the Python runner.

    Attributes:
        status: ``pass``, ``wrong``, ``error`` (an exception, for example of the compiler), ``crash`` or ``time-out``.
        message: What it printed last, or the exception.
        actual: Files with the outputs, by name; empty if it computed none.
    """

    status: str
    message: str
    actual: Mapping[str, bytes]


def runner_files(manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the files of both runners by name."""
    return {
        PYTHON_RUNNER: page_file("bug_run.py.txt"),
        C_RUNNER: page_file("bug_run.c.txt"),
        C_TABLES: ("\n".join(_c_tables(manifest)) + "\n").encode(),
    }


def run(
    program: BugProgram, adapter: int, time_limit: float, environment: Mapping[str, str] | None = None
) -> RunnerResult:
    """Run the Python runner on a program, in a process that does not import dmlgpu.

    Args:
        program: The program.
        adapter: Index of the adapter in wgpu's list.
        time_limit: Seconds, for the process as well.
        environment: Its environment variables; None takes those of this process.
    """
    with tempfile.TemporaryDirectory(prefix="dmlgpu-bug-") as name:
        folder = Path(name)
        write_files(folder, {**program.all_files, PYTHON_RUNNER: page_file("bug_run.py.txt")})
        command = (sys.executable, str(folder / PYTHON_RUNNER), str(adapter), "--save")
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=time_limit, check=False, env=environment, cwd=folder
            )
        except subprocess.TimeoutExpired:
            return RunnerResult("time-out", f"no result after {time_limit:g} s", {})
        actual = {file.name: file.read_bytes() for file in sorted(folder.glob("actual-*.bin"))}
    printed = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode == 0:
        return RunnerResult("pass", printed[-1] if printed else "", actual)
    if printed and printed[-1].startswith("FAIL"):
        return RunnerResult("wrong", "\n".join(printed[1:]), actual)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    # Python exits with 1 after an exception. A process that dies has the negative number of a signal, on Windows 3
    # (abort) or an NTSTATUS such as 0xC0000005.
    status = "error" if done.returncode == 1 else "crash"
    return RunnerResult(status, "\n".join(lines[-8:]) or f"exit code {_code_text(done.returncode)}", {})


def _code_text(code: int) -> str:
    """Return an exit code, an NTSTATUS in hexadecimal digits as in its documentation."""
    return f"0x{code:08X}" if code >= 1 << 31 else str(code)


def _c_tables(bug: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the header with the content of the manifest."""
    features = ", ".join(_C_FEATURES[name] for name in bug["features"]) or "0"
    yield "// The tables of run.c, from bug.json."
    yield f"enum {{ FEATURES = {len(bug['features'])}, BUFFERS = {len(bug['buffers'])},"
    yield f"       DISPATCHES = {len(bug['dispatches'])}, OUTPUTS = {len(bug['outputs'])} }};"
    yield f"static const WGPUFeatureName features[] = {{{features}}};"
    yield "// start, end: the bytes that kernels may change"
    yield "static const struct { const char *name, *file; size_t start, end; } bug_buffers[] = {"
    for buffer in bug["buffers"]:
        writable = buffer.get("writable", None)
        ranges = [[0, buffer["bytes"]]] if writable is None else writable
        start, end = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
        yield f"    {{{json.dumps(buffer['name'])}, {json.dumps(buffer['file'])}, {start}, {end}}},"
    yield "};"
    yield "static const struct dispatch {"
    yield "    const char *wgsl, *parameters; unsigned grid[3]; int count;"
    yield f"    unsigned long long bind[{_MAX_BINDINGS}][3];"
    yield "} dispatches[] = {"
    for dispatch in bug["dispatches"]:
        wgsl = json.dumps(bug["kernels"][dispatch["kernel"]]["wgsl"])
        bind = ", ".join(_braces(bound) for bound in dispatch["bind"])
        count = len(dispatch["bind"])
        yield f"    {{{wgsl}, {json.dumps(dispatch['parameters'])}, {_braces(dispatch['grid'])}, {count}, {{{bind}}}}},"
    yield "};"
    yield "static const struct output {"
    yield "    const char *label, *type; int width, buffer; size_t offset; int rank; size_t sizes[8], strides[8];"
    yield "    const char *expected, *allowed;"
    yield "} outputs[] = {"
    for output in bug["outputs"]:
        files = f"{json.dumps(output['expected'])}, {json.dumps(output['allowed'])}"
        shape = f"{len(output['sizes'])}, {_braces(output['sizes'])}, {_braces(output['strides'])}"
        width = np.dtype(output["type"]).itemsize
        head = f"{json.dumps(output['label'])}, {json.dumps(output['type'])}, {width}"
        yield f"    {{{head}, {output['buffer']}, {output['offset']}, {shape}, {files}}},"
    yield "};"


def _braces(numbers: list[int]) -> str:
    return f"{{{', '.join(map(str, numbers))}}}"
