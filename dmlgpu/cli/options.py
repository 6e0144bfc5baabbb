"""Options that several verbs of the command line have."""

from __future__ import annotations

import math
from typing import Annotated

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


def finite(seconds: float) -> float:
    """Return a number of seconds.

    Raises:
        typer.BadParameter: for NaN, which is in no range but passes for one.
    """
    if not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds")
    return seconds


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
