"""Options shared by several commands, and their shell completion."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

# ---- shell completion; loads no driver, since completion must be instant


def complete_operators(incomplete: str) -> list[str]:
    """Return the operators whose names start with `incomplete`, in upper case if `incomplete` is."""
    from dmlgpu import catalog as schema  # noqa: PLC0415 - only a shell asks for it

    names = schema.catalog()
    return _starting_with(incomplete, names if incomplete.isupper() else map(str.lower, names))


def complete_measured(incomplete: str) -> list[str]:
    """Return the benchmark suites and operators whose names start with `incomplete`."""
    from dmlgpu.bench.specs import suite_names  # noqa: PLC0415 - likewise

    return [*_starting_with(incomplete, suite_names()), *complete_operators(incomplete)]


def complete_suites(incomplete: str) -> list[str]:
    """Return the test suites whose names start with `incomplete`, including those of other packages."""
    from dmlgpu.conformance.suites.registry import suite_names  # noqa: PLC0415 - likewise

    return _starting_with(incomplete, suite_names())


def complete_passes(incomplete: str) -> list[str]:
    """Return the passes of the graph compiler whose names start with `incomplete`."""
    from dmlgpu.compiler.graph.passes import PASSES  # noqa: PLC0415 - likewise

    return _starting_with(incomplete, PASSES)


def complete_profiles(incomplete: str) -> list[str]:
    """Return the profiles of the test suite whose names start with `incomplete`."""
    return _starting_with(incomplete, ("quick", "standard", "full"))


def complete_schedules(incomplete: str) -> list[str]:
    """Return the families of schedules whose names start with `incomplete`."""
    return _starting_with(incomplete, ("cpu", "gpu"))


def complete_adapters(incomplete: str) -> list[str]:
    """Return the adapters whose names start with `incomplete` and that are known without loading a driver."""
    return _starting_with(incomplete, ("numpy",))


def _starting_with(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


# ---- options

MAX_SECONDS = 1e6
"""Longest timeout. The limit of system clocks is not much longer on some platforms."""

Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        "-a",
        envvar="DMLGPU_ADAPTER",
        metavar="NAME",
        help="Part of an adapter's name, or its index.",
        autocompletion=complete_adapters,
    ),
]
Precise = Annotated[bool, typer.Option("--precise", help="Never trade accuracy for speed, as Device(precise=True).")]


def _ignore_quirks(requested: bool) -> None:
    """Ignore quirks in this process and its children."""
    if requested:
        os.environ["DMLGPU_QUIRKS"] = "off"


NoQuirks = Annotated[
    bool,
    typer.Option(
        "--no-quirks",
        callback=_ignore_quirks,
        help="Do not avoid known faults of drivers, as with DMLGPU_QUIRKS=off (docs/adapters.md).",
    ),
]
Defines = Annotated[
    list[str] | None,
    typer.Option("--define", metavar="NAME=VALUE", help="Kernel: value of an override; TILE=8,16 compares."),
]
EntryPoint = Annotated[str, typer.Option("--entry-point", metavar="NAME", help="Kernel: entry point.")]
Drivers = Annotated[
    list[str] | None,
    typer.Option(
        "--drivers",
        "-d",
        metavar="all|MANIFEST",
        help="Drivers to use: 'all' drivers of the machine, or a manifest, or a folder of manifests. Each "
        "driver runs in processes of its own. Repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Records = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.jsonl", help="Write the results as JSON Lines.")
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size", "-s", metavar="NAME=NUMBERS", help="Sizes, such as m=64..4096 or m=k=n=512,1024; repeatable."
    ),
]
Types = Annotated[
    list[str] | None, typer.Option("--type", "-t", metavar="TYPES", help="Data types, such as float16,float32.")
]
OperatorNames = Annotated[
    list[str] | None,
    typer.Option(
        "--operator",
        metavar="NAME",
        help="Same as OPERATOR; repeatable.",
        autocompletion=complete_operators,
    ),
]
CasePatterns = Annotated[
    list[str] | None,
    typer.Option(
        "-k",
        metavar="PATTERN",
        help="Only cases whose names contain these words ('add' matches element_wise_add1, not padded); if none does, "
        "names that contain the text. * and ? are wildcards. Case-insensitive. Repeat -k to match any of several.",
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        "-p",
        help="quick, standard (7 times as many cases) or full (90 times). quick takes about 2 minutes on an idle "
        "two-core machine with a software adapter.",
        autocompletion=complete_profiles,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-n",
        min=1,
        max=64,
        help="Number of worker processes. Defaults to the number of cores, up to 8 on software adapters, 4 on GPUs, "
        "and one per 4 GiB of memory.",
        show_default=False,
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="PASS",
        help="Disable a pass of the graph compiler; repeatable.",
        autocompletion=complete_passes,
    ),
]


def subject(metavar: str, meaning: str, complete: Callable[[str], list[str]] = complete_operators) -> Any:
    """Return the positional argument of a command.

    Args:
        metavar: Name in the usage line.
        meaning: Help text.
        complete: Shell completion.
    """
    return typer.Argument(metavar=metavar, help=meaning, show_default=False, autocompletion=complete)


def shape_option(meaning: str, metavar: str = "NAME=1x3x48x192") -> Any:
    """Return the option ``--shape``, the shape of a model's input."""
    return typer.Option("--shape", metavar=metavar, help=meaning)


def schedules_option(meaning: str) -> Any:
    """Return the option ``--schedules``, a family of schedules."""
    return typer.Option("--schedules", metavar="cpu|gpu", help=meaning, autocompletion=complete_schedules)


def finite(seconds: float) -> float:
    """Return `seconds` if they are finite.

    Raises:
        typer.BadParameter: If `seconds` is NaN, which passes click's check of ranges.
    """
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"must be a number of seconds, got {seconds}")
    return seconds


def finite_or_none(number: float | None) -> float | None:
    """Return a finite number, or None. Raises as ``finite``."""
    return None if number is None else finite(number)


_MAX_COUNT = 2**31


def _names(name: str) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", f"--{name}"


DispatchIterations = Annotated[
    int,
    typer.Option(*_names("dispatch_iterations"), min=1, max=_MAX_COUNT, help="Iterations of bind, dispatch and wait."),
]
DispatchRepeat = Annotated[
    int,
    typer.Option(*_names("dispatch_repeat"), "-r", min=1, max=2**16, help="Dispatches within each iteration."),
]
MillisecondsToRun = Annotated[
    int | None,
    typer.Option(
        *_names("milliseconds_to_run"),
        "-t",
        min=1,
        max=_MAX_COUNT,
        help="Duration in milliseconds; overrides the iterations.",
    ),
]
DispatchInterval = Annotated[
    int,
    typer.Option(
        *_names("dispatch_interval"), "-I", min=0, max=_MAX_COUNT, help="Minimum milliseconds between iterations."
    ),
]
WarmupSamples = Annotated[
    int,
    typer.Option(
        *_names("warmup_samples"), "-w", min=0, max=_MAX_COUNT, help="Number of first samples that count as cold."
    ),
]
TimingVerbosity = Annotated[
    int,
    typer.Option(
        *_names("timing_verbosity"),
        "-v",
        min=0,
        max=2,
        help="0: hot timings; 1: init, cold and hot; 2: each iteration.",
    ),
]
NameOverrides = Annotated[
    list[str] | None,
    typer.Option(
        *_names("onnx_free_dim_name_override"),
        "-f",
        metavar="NAME:SIZE",
        help="Set a free dimension by name; repeatable.",
    ),
]
DenotationOverrides = Annotated[
    list[str] | None,
    typer.Option(
        *_names("onnx_free_dim_denotation_override"),
        "-F",
        metavar="DENOTATION:SIZE",
        help="Set free dimensions by denotation; repeatable.",
    ),
]
BindingShapes = Annotated[
    list[str] | None,
    typer.Option(*_names("binding_shape"), "-b", metavar="TENSOR:2,3", help="Shape of an ONNX tensor; repeatable."),
]
PrintBindings = Annotated[
    bool, typer.Option(*_names("print_onnx_bindings"), "-p", help="Print the bindings of ONNX models.")
]
