"""Options that several verbs of the command line have."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dmlgpu.cli import completion

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
        autocompletion=completion.adapters,
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
        autocompletion=completion.passes,
    ),
]


def subject(metavar: str, meaning: str, complete: Callable[[str], list[str]] = completion.operators) -> Any:
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
    return typer.Option("--schedules", metavar="cpu|gpu", help=meaning, autocompletion=completion.schedules)


def finite(seconds: float) -> float:
    """Return a number of seconds.

    Raises:
        typer.BadParameter: for NaN, which is in no range but passes for one.
    """
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds")
    return seconds
