"""The verb ``dmlgpu export``, its options and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmlgpu.cli import completion
from dmlgpu.cli.main import verb
from dmlgpu.cli.options import Without, schedules_option, shape_option, subject


def export(
    *,
    what: Annotated[
        str | None,
        subject("MODEL.onnx|MODEL.json[:NAME]|demo|FILE.py[:NAME]|OPERATOR", "What to export."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder; it is made where it is missing.")
    ],
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="quick|standard|full",
            help="Export the cases of a profile of `dmlgpu test`, as a page that runs them.",
            autocompletion=completion.profiles,
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option("-k", metavar="PATTERN", help="Only the suite's cases that match; may be repeated."),
    ] = None,
    shapes: Annotated[
        list[str] | None,
        shape_option("Sizes of an input of a model in ONNX; may be repeated.", "NAME=1x3"),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weights", metavar="NAME=FILE.npy", help="What the folder holds of a graph's input; may be repeated."
        ),
    ] = None,
    schedules: Annotated[str, schedules_option("The schedules for processors or GPUs.")] = "gpu",
    half: Annotated[
        bool, typer.Option("--half", help="Compute 16-bit floats natively, where the browser has shader-f16.")
    ] = False,
    without: Without = None,
) -> None:
    """Write a folder that computes a model in any page with WebGPU, without Python; or a page that runs cases.

    It holds the kernels, the weights, a runtime in JavaScript with types for TypeScript, and a page that shows it
    working; it also runs under Node with the package webgpu. Sizes of inputs are fixed. What the host would have to
    compute or to decide while the model runs is refused, with the names of the nodes. docs/export.md has more.

    With --suite it is a page that tests the GPU of whoever opens it, and saves what came of it for `dmlgpu report`.

    \b
    Examples:
      dmlgpu export demo -o palette
      dmlgpu export model.onnx -o folder --shape image=1x3x224x224
      dmlgpu export graphs.py:network -o folder --weights filter=filter.npy
      dmlgpu export --suite quick -o conformance
    """
    options = verb("export").Options(tuple(shapes or ()), tuple(weights or ()), schedules, half, tuple(without or ()))
    if (what is None) == (suite is None):
        raise typer.BadParameter("give what to export, or --suite, and not both")
    if suite is None:
        if pattern:
            raise typer.BadParameter("-k is for --suite")
        verb("export").export_model(what, output, options)
    elif shapes or weights or half or without:
        raise typer.BadParameter("--shape, --weights, --half and --without are not for --suite")
    else:
        verb("export").export_suite(suite, tuple(pattern or ()), output, schedules)
