"""Options that several verbs have, and their completion in a shell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

# ---- what a shell offers; drivers are not asked, since a shell must answer at once


def complete_operators(incomplete: str) -> list[str]:
    """Return the complete_operators whose names begin with a text, in capitals where that has them."""
    from dmlgpu import catalog as schema  # noqa: PLC0415 - only a shell asks for it

    names = schema.catalog()
    return _starting_with(incomplete, names if incomplete.isupper() else map(str.lower, names))


def complete_measured(incomplete: str) -> list[str]:
    """Return the complete_operators and the complete_suites of measurements whose names begin with a text."""
    from dmlgpu.bench.specs import suite_names  # noqa: PLC0415 - likewise

    return [*_starting_with(incomplete, suite_names()), *complete_operators(incomplete)]


def complete_suites(incomplete: str) -> list[str]:
    """Return the complete_suites of cases whose names begin with a text, those of other packages included."""
    from dmlgpu.conformance.suites.registry import suite_names  # noqa: PLC0415 - likewise

    return _starting_with(incomplete, suite_names())


def complete_passes(incomplete: str) -> list[str]:
    """Return the complete_passes of the graph compiler whose names begin with a text."""
    from dmlgpu.compiler.graph.passes import PASSES  # noqa: PLC0415 - likewise

    return _starting_with(incomplete, PASSES)


def complete_profiles(incomplete: str) -> list[str]:
    """Return the complete_profiles of the cases of dmlgpu whose names begin with a text."""
    return _starting_with(incomplete, ("quick", "standard", "full"))


def complete_schedules(incomplete: str) -> list[str]:
    """Return the families of complete_schedules whose names begin with a text."""
    return _starting_with(incomplete, ("cpu", "gpu"))


def complete_adapters(incomplete: str) -> list[str]:
    """Return the complete_adapters that need no driver to be known, whose names begin with a text."""
    return _starting_with(incomplete, ("numpy",))


def _starting_with(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


# ---- options

MAX_SECONDS = 1e6
"""The longest time to wait for something; that which the system's clocks take is hardly longer everywhere."""

Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        "-a",
        envvar="DMLGPU_ADAPTER",
        metavar="NAME",
        help="Part of an adapter's name, or its number.",
        autocompletion=complete_adapters,
    ),
]
Precise = Annotated[
    bool, typer.Option("--precise", help="As on Device(precise=True): nothing trades digits for speed.")
]
Drivers = Annotated[
    list[str] | None,
    typer.Option(
        "--drivers",
        "-d",
        metavar="all|MANIFEST",
        help="Take 'all' drivers of the machine, each in processes of its own; or a Vulkan driver's manifest, or a "
        "folder with such; may be repeated.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Records = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.jsonl", help="Write everything down as JSON Lines.")
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", "-s", metavar="NAME=NUMBERS", help="Such as m=64..4096 or m=k=n=512,1024; repeatable."),
]
Types = Annotated[
    list[str] | None, typer.Option("--type", "-t", metavar="TYPES", help="Data types, such as float16,float32.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="PASS",
        help="Leave a pass of the graph compiler out; may be repeated.",
        autocompletion=complete_passes,
    ),
]


def subject(metavar: str, meaning: str, complete: Callable[[str], list[str]] = complete_operators) -> Any:
    """Return the argument that says what a verb is about.

    Args:
        metavar: what may be named.
        meaning: its help text.
        complete: what a shell offers.
    """
    return typer.Argument(metavar=metavar, help=meaning, show_default=False, autocompletion=complete)


def shape_option(meaning: str, metavar: str = "NAME=1x3x48x192") -> Any:
    """Return the option ``--shape``, for the sizes of a model's inputs."""
    return typer.Option("--shape", metavar=metavar, help=meaning)


def schedules_option(meaning: str) -> Any:
    """Return the option ``--schedules``, for a family of schedules."""
    return typer.Option("--schedules", metavar="cpu|gpu", help=meaning, autocompletion=complete_schedules)


def finite(seconds: float) -> float:
    """Return a number of seconds.

    Raises:
        typer.BadParameter: for NaN, which is in no range but passes for one.
    """
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds")
    return seconds


def finite_or_none(number: float | None) -> float | None:
    """Return a number that may be left out. Raises as ``finite``."""
    return None if number is None else finite(number)


_MOST = 2**31


def _names(name: str) -> tuple[str, str]:
    return f"--{name.replace('_', '-')}", f"--{name}"


DispatchIterations = Annotated[
    int,
    typer.Option(*_names("dispatch_iterations"), min=1, max=_MOST, help="Iterations of bind, dispatch and wait."),
]
DispatchRepeat = Annotated[
    int,
    typer.Option(*_names("dispatch_repeat"), "-r", min=1, max=2**16, help="Dispatches within each iteration."),
]
MillisecondsToRun = Annotated[
    int | None,
    typer.Option(
        *_names("milliseconds_to_run"), "-t", min=1, max=_MOST, help="Iterate for so long; overrides the iterations."
    ),
]
DispatchInterval = Annotated[
    int,
    typer.Option(*_names("dispatch_interval"), "-I", min=0, max=_MOST, help="Least milliseconds between iterations."),
]
WarmupSamples = Annotated[
    int,
    typer.Option(*_names("warmup_samples"), "-w", min=0, max=_MOST, help="Samples at the start that count as cold."),
]
TimingVerbosity = Annotated[
    int,
    typer.Option(
        *_names("timing_verbosity"), "-v", min=0, max=2, help="0 hot timings; 1 init, cold and hot; 2 each iteration."
    ),
]
NameOverrides = Annotated[
    list[str] | None,
    typer.Option(
        *_names("onnx_free_dim_name_override"), "-f", metavar="NAME:SIZE", help="A free dimension by name; repeatable."
    ),
]
DenotationOverrides = Annotated[
    list[str] | None,
    typer.Option(
        *_names("onnx_free_dim_denotation_override"),
        "-F",
        metavar="DENOTATION:SIZE",
        help="Free dimensions by denotation; repeatable.",
    ),
]
BindingShapes = Annotated[
    list[str] | None,
    typer.Option(*_names("binding_shape"), "-b", metavar="TENSOR:2,3", help="The shape of an ONNX tensor; repeatable."),
]
PrintBindings = Annotated[
    bool, typer.Option(*_names("print_onnx_bindings"), "-p", help="Print what tensors of ONNX models are bound to.")
]
