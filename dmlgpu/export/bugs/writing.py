"""Writes the folder of a bug report: reduces the case, runs it without dmlgpu, and collects everything."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dmlgpu.common import coercion
from dmlgpu.common.errors import DmlError, InvalidArgument
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.conformance.drivers.discovery import all_drivers
from dmlgpu.conformance.running.records import machine
from dmlgpu.export.bugs.amber import amber_script
from dmlgpu.export.bugs.cutting import CutProgram, cut
from dmlgpu.export.bugs.programs import BugProgram, programs_of
from dmlgpu.export.bugs.readme import readme
from dmlgpu.export.bugs.reduction import MAX_TRIES, reduced
from dmlgpu.export.bugs.runners import RunnerResult, run, runner_files
from dmlgpu.export.bugs.spirv import disassembled, mesa_adapter, spirv_of
from dmlgpu.export.cases import Blob, Entry
from dmlgpu.export.conformance import page_files
from dmlgpu.export.folder import path_argument, write_files
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device, as_device

TIME_LIMIT: Final = 60.0
"""Seconds of one run of the program, by default."""

_PAGE_BINDINGS, _PAGE_INVOCATIONS = 8, 256
"""Limits of every device with WebGPU."""


@dataclass(frozen=True)
class BugReport:
    """Summary of a bug report.

    Attributes:
        folder: Output folder.
        case: Name of the case in it, the smallest that fails.
        kernel: The kernel of the case to which the program was cut, and the driver that computed its inputs and
            expected outputs; empty if it is the whole program.
        status: Result of the runner: ``wrong``, ``error`` (an exception), ``crash``, ``time-out`` or ``pass``.
        message: What the runner printed.
        files: Sizes of all files in bytes, by name.
        missing: Files that could not be made, each with the reason.
    """

    folder: Path
    case: str
    kernel: str
    status: str
    message: str
    files: dict[str, int]
    missing: tuple[str, ...]


Progress = Callable[[str, str], None]


def write_bug_report(
    case: str,
    folder: str | os.PathLike[str],
    device: Device | str | None = None,
    *,
    reduce: bool = True,
    time_limit: float = TIME_LIMIT,
    passing: bool = False,
    progress: Progress | None = None,
) -> BugReport:
    """Write a failing test case as a folder that the developers of a driver can run without dmlgpu.

    Args:
        case: Name of a case of ``dmlgpu test`` that fails on the adapter.
        folder: Output folder; created if it does not exist. Files of the same names are replaced.
        device: Device or adapter name; defaults to the default device. Its adapter must be one of wgpu.
        reduce: Whether to look for a smaller case that fails in the same way, and for its first wrong kernel.
        time_limit: Seconds of one run, each of which is a process; a hang takes that long.
        passing: Whether to write the folder even if the case passes.
        progress: Called with the name of each case that was run, and its status.

    Returns:
        The summary. Besides kernels, data and runners, the folder contains a web page, and an Amber script with SPIR-V
        if a Vulkan driver of Mesa is installed.

    Raises:
        InvalidArgument: If no case has this name, or the adapter has no kernels.
        NotSupported: If the adapter lacks what the case needs, or the case does not compare outputs of kernels.
        DmlError: If the case passes, and ``passing`` is False.
        OSError: If a file cannot be written.
    """
    caller = "write_bug_report"
    case = coercion.argument(caller, "case", coercion.text, case)
    target_folder = path_argument(caller, folder)
    reduce = coercion.argument(caller, "reduce", coercion.boolean, reduce)
    passing = coercion.argument(caller, "passing", coercion.boolean, passing)
    time_limit = coercion.argument(caller, "time_limit", coercion.seconds, time_limit)
    device = as_device(caller, device)
    known = _wgpu_adapters()
    if device.adapter not in known:
        raise InvalidArgument(f"{caller}: device must be an adapter of wgpu, got {device.adapter}")
    index = _index_of(device.adapter, known)
    trial = _Trial(device, partial(run, adapter=index, time_limit=time_limit), progress)
    program, result = trial.first_failing(case)
    if result.status == "pass" and not passing:
        raise DmlError(
            f"{case} passes on {device.adapter} as a program of wgpu alone, so there is no fault to report to the"
            f" developers of the driver; if dmlgpu test -k {case} fails, report it to dmlgpu"
        )
    if reduce and result.status != "pass":
        program, result = trial.smallest(program, result)
    kernel, missing = "", list[str]()
    if reduce and result.status == "wrong" and len(program.manifest["dispatches"]) > 1:
        cut_program, judge = trial.cut(program, result, time_limit)
        if cut_program is None:
            missing.append("which kernel is wrong first: no other driver of this machine computes the outputs right")
        else:
            count = len(program.manifest["dispatches"])
            program, result = cut_program.program, cut_program.result
            what = "alone" if cut_program.is_alone else "and those after it"
            kernel = f"{cut_program.kernel} of {count}, {what}; its inputs were computed by {judge}"
    modules = _modules(program, index, time_limit)
    files, others = _files(program, result, device.adapter, modules, case=case, kernel=kernel)
    write_files(target_folder, files)
    sizes = {name: len(data) for name, data in files.items()}
    return BugReport(target_folder, program.case, kernel, result.status, result.message, sizes, (*missing, *others))


def _wgpu_adapters() -> list[AdapterInfo]:
    """Return the adapters that the runners can open, by their index in wgpu's list."""
    return [info for info in adapters() if info.backend not in ("NumPy", "Browser") and not info.is_of_dawn]


def _index_of(adapter: AdapterInfo, known: Sequence[AdapterInfo]) -> int:
    """Return the index of an adapter. Two equal cards compare equal, so the very object goes first."""
    same = [index for index, info in enumerate(known) if info is adapter]
    return same[0] if same else known.index(adapter)


@dataclass(frozen=True)
class _Trial:
    """Runs the programs of cases on an adapter, each in a process of its own."""

    device: Device
    run: Callable[[BugProgram], RunnerResult]
    progress: Progress | None

    def first_failing(self, name: str, status: str = "", *, portable: bool = False) -> tuple[BugProgram, RunnerResult]:
        """Return the shortest program of a case that fails, else the longest, with its result.

        Args:
            name: Name of the case.
            status: Status of the failure to look for; empty for any.
            portable: As for ``programs_of``.
        """
        target, info = self.device.backend.target, self.device.adapter
        programs = programs_of(name, target, info, portable=portable)
        for program in sorted(programs, key=lambda program: len(program.manifest["dispatches"])):
            result = self.run(program)
            if self.progress is not None:
                self.progress(name, result.status)
            if result.status != "pass" and status in ("", result.status):
                break
        return program, result

    def smallest(self, program: BugProgram, result: RunnerResult) -> tuple[BugProgram, RunnerResult]:
        """Return the smallest program that fails in the same way: smaller sizes, then without optional features."""
        failing = {program.case: (program, result)}

        def fails(name: str, *, portable: bool = False) -> bool:
            try:
                candidate = self.first_failing(name, result.status, portable=portable)
            except (DmlError, ArithmeticError, AssertionError, LookupError, ValueError):
                return False  # no case has these sizes, or the operator needs the features
            if candidate[1].status == result.status:
                failing[name] = candidate
            return candidate[1].status == result.status

        name = reduced(program.case, fails, MAX_TRIES)
        if failing[name][0].manifest["features"]:
            fails(name, portable=True)
        return failing[name]

    def cut(self, program: BugProgram, result: RunnerResult, time_limit: float) -> tuple[CutProgram | None, str]:
        """Return a failing program, cut to its first wrong kernel, and the adapter that computed its inputs; None if no
        other driver of the machine computes the outputs right."""
        own = self.device.adapter
        for located in all_drivers().adapters:
            info = located.info
            is_other = (info.backend, info.driver) != (own.backend, own.driver)
            if info.backend in ("NumPy", "Browser") or info.is_of_dawn or not is_other:
                continue
            environment = {**os.environ, **dict(located.environment)}
            judge = partial(run, adapter=located.index, time_limit=time_limit, environment=environment)
            cut_program = cut(program, result, self.run, judge)
            if cut_program is not None:
                if self.progress is not None:
                    self.progress(f"kernel {cut_program.kernel} of {program.case}", cut_program.result.status)
                return cut_program, str(info)
        return None, ""


def _files(
    program: BugProgram,
    result: RunnerResult,
    info: AdapterInfo,
    modules: Mapping[int, bytes],
    *,
    case: str,
    kernel: str,
) -> tuple[dict[str, bytes], list[str]]:
    """Return all files of a report, and the reasons why others are missing."""
    missing = list[str]()
    versions = machine()
    manifest: dict[str, Any] = {
        **program.manifest,
        "reduced_from": case,
        "kernel_of_case": kernel,
        "adapter": {"name": info.name, "backend": info.backend, "kind": info.kind, "driver": info.driver},
        "versions": {name: versions[name] for name in ("dmlgpu", "wgpu", "python", "os")},
        "status": result.status,
    }
    files: dict[str, bytes] = {**runner_files(manifest), **result.actual}
    if modules:
        manifest["kernels"] = [
            {**kernel, "spirv": f"kernel-{index}.spv"} for index, kernel in enumerate(manifest["kernels"])
        ]
        files |= {f"kernel-{index}.spv": module for index, module in modules.items()}
        texts = {f"kernel-{index}.spvasm": disassembled(module) for index, module in modules.items()}
        files |= {name: text for name, text in texts.items() if text}
        titles = {"case": program.case, "adapter": str(info), "run": "amber bug.amber"}
        script = amber_script(replace(program, manifest=manifest), modules, titles)
        files["bug.amber"] = script.encode()
    else:
        missing.append("SPIR-V and the Amber script: they need a Vulkan driver of Mesa, version 25 or newer")
    page = page_of(program, "cpu" if info.is_software else "gpu")
    files |= page
    if not page:
        missing.append("the web page: the kernels need features or limits that not every browser has")
    files |= replace(program, manifest=manifest).all_files
    files["README.md"] = readme(manifest, result.status, result.message, files, missing).encode()
    return files, missing


def _modules(program: BugProgram, adapter: int, time_limit: float) -> Mapping[int, bytes]:
    """Return the SPIR-V of all kernels; empty if a kernel's is missing."""
    chosen = mesa_adapter(adapter, _wgpu_adapters())
    modules = {} if chosen is None else spirv_of(program, chosen, time_limit)
    return modules if len(modules) == len(program.manifest["kernels"]) else {}


def page_of(program: BugProgram, schedules: str) -> dict[str, bytes]:
    """Return the files of a page that runs the program; empty if it needs more than every device with WebGPU has."""
    sizes = [match for text in program.kernels for match in re.findall(r"@workgroup_size\((\d+)", text)]
    bindings = max(len(dispatch["bind"]) for dispatch in program.manifest["dispatches"])
    if (
        program.manifest["features"]
        or bindings > _PAGE_BINDINGS
        or any(int(size) > _PAGE_INVOCATIONS for size in sizes)
    ):
        return {}

    def entry_of(blob: Blob) -> Entry:
        blob.uploads.place(program.data)  # at the start of a new part, as the entry expects
        return program.entry

    files = page_files([entry_of], profile="quick", pattern=program.case, schedules=schedules)
    return {f"page/{name}": data for name, data in files.items()}
