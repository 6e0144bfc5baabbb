"""SPIR-V of kernels as wgpu's compiler (naga) writes it, saved by Mesa's Vulkan drivers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dmlgpu.bench.radv import SPIRV_VARIABLE
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.export.bugs.programs import BugProgram
from dmlgpu.export.bugs.runners import run

TEXT_TOOL: Final = "spirv-dis"
"""Program that prints SPIR-V as text, of the package spirv-tools."""


def mesa_adapter(chosen: int, known: Sequence[AdapterInfo]) -> int | None:
    """Return the index of an adapter whose driver saves SPIR-V, preferably the chosen one; None if there is none."""
    indices = [index for index, info in enumerate(known) if info.backend == "Vulkan" and "Mesa" in info.driver]
    return chosen if chosen in indices else next(iter(indices), None)


def spirv_of(program: BugProgram, adapter: int, time_limit: float) -> dict[int, bytes]:
    """Return the SPIR-V of each kernel by its index; kernels of which Mesa saved nothing are missing.

    Args:
        program: The program.
        adapter: Index of an adapter with Mesa 25 or newer.
        time_limit: Seconds for each kernel.
    """
    modules: dict[int, bytes] = {}
    for index in range(len(program.manifest["kernels"])):
        first = next(dispatch for dispatch in program.manifest["dispatches"] if dispatch["kernel"] == index)
        alone: dict[str, Any] = {**program.manifest, "dispatches": [first], "outputs": []}
        with tempfile.TemporaryDirectory(prefix="dmlgpu-spirv-") as folder:
            environment = {**os.environ, SPIRV_VARIABLE: folder, "MESA_SHADER_CACHE_DISABLE": "true"}
            run(replace(program, manifest=alone), adapter, time_limit, environment)
            # wgpu compiles kernels of its own when it opens the device: the program's is the last.
            files = sorted(Path(folder).iterdir(), key=lambda file: file.stat().st_mtime_ns)
            if files:
                modules[index] = files[-1].read_bytes()
    return modules


def disassembled(spirv: bytes) -> bytes:
    """Return SPIR-V as text; empty if the tool for it is not installed."""
    if shutil.which(TEXT_TOOL) is None:
        return b""
    done = subprocess.run((TEXT_TOOL, "-"), input=spirv, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""
