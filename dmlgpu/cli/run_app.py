"""``dmlgpu run``: its options and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import (
    Adapter,
    BindingShapes,
    DenotationOverrides,
    DispatchInterval,
    DispatchIterations,
    DispatchRepeat,
    MillisecondsToRun,
    NameOverrides,
    Precise,
    PrintBindings,
    TimingVerbosity,
    WarmupSamples,
)

ManyPatterns = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="FILES",
        help="Run an ONNX model on each of many files: a pattern such as 'pictures/*.png', a folder, .npy, .npz, "
        "pictures; may be repeated.",
    ),
]
ManyAdapters = Annotated[
    list[str] | None,
    typer.Option("--adapters", metavar="NAME", help="An adapter for --inputs, or 'all'; may be repeated."),
]
ManyScheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="A Dask cluster for --inputs, such as tcp://10.0.0.1:8786."),
]
Strict = Annotated[bool, typer.Option("--strict", help="The first file that fails ends --inputs.")]
PictureSize = Annotated[
    str | None, typer.Option("--size", metavar="HxW", help="Size of pictures; the model's, or their own, without it.")
]
PixelScale = Annotated[
    float | None, typer.Option("--scale", metavar="NUMBER", help="Factor of pixels, 0.00392 (1/255) by default.")
]
PixelMean = Annotated[
    str | None, typer.Option("--mean", metavar="R,G,B", help="Subtracted from scaled pixels; 0 by default.")
]
PixelStd = Annotated[
    str | None, typer.Option("--std", metavar="R,G,B", help="What pixels are divided by at last; 1 by default.")
]


def _show_adapters(requested: bool) -> None:
    if requested:
        verb("devices").show(None, False)
        raise typer.Exit


def run(
    *,
    model: Annotated[
        Path, typer.Argument(help="A model: DxDispatch's JSON, or ONNX.", metavar="MODEL.json|MODEL.onnx")
    ],
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "--outputs", "-o", metavar="DIR", help="Where files are written.")
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="An input of an ONNX model; may be repeated."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare every node with the reference, and with onnxruntime or onnx.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Print where the time of a run goes, by kernel and by node, and the share of the device's ceiling.",
        ),
    ] = False,
    profile_json: Annotated[
        Path | None, typer.Option("--profile-json", metavar="FILE.json", help="Write the same as JSON.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Write a trace of host and device for Chrome.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Run so many times, and print the times.")] = 1,
    patterns: ManyPatterns = None,
    adapters: ManyAdapters = None,
    scheduler: ManyScheduler = None,
    strict: Strict = False,
    size: PictureSize = None,
    scale: PixelScale = None,
    mean: PixelMean = None,
    std: PixelStd = None,
    adapter: Adapter = None,
    precise: Precise = False,
    allow_paths: Annotated[
        bool,
        typer.Option("--allow-paths", help="Let the model read and write files anywhere; only for models you trust."),
    ] = False,
    dispatch_iterations: DispatchIterations = 1,
    dispatch_repeat: DispatchRepeat = 1,
    milliseconds_to_run: MillisecondsToRun = None,
    dispatch_interval: DispatchInterval = 0,
    warmup_samples: WarmupSamples = 1,
    timing_verbosity: TimingVerbosity = 0,
    name_overrides: NameOverrides = None,
    denotation_overrides: DenotationOverrides = None,
    binding_shapes: BindingShapes = None,
    print_onnx_bindings: PrintBindings = False,
    show_adapters: Annotated[
        bool,
        typer.Option(
            "--show-adapters",
            "--show_adapters",
            "-s",
            callback=_show_adapters,
            is_eager=True,
            help="List the adapters.",
        ),
    ] = False,
) -> None:
    """Run a model: DxDispatch's initialises, dispatches, prints, writes files; an ONNX model prints its outputs.

    A DxDispatch model reads files of its own folder and writes into the output directory, unless --allow-paths is
    given. Options of timing and of free dimensions are DxDispatch's; with one of them, and without --input, an ONNX
    model runs as DxDispatch runs it: on inputs of zeros, for its times.

    \b
    Examples:
      dmlgpu run model.json
      dmlgpu run model.json --dispatch_iterations 100 -v 1
      dmlgpu run model.onnx -f batch:8 -t 2000
      dmlgpu run model.json --output-dir results --adapter numpy
      dmlgpu run model.onnx --input x=picture.npy --output-dir results
      dmlgpu run model.onnx --input x=picture.npy --profile --repeat 20
      dmlgpu run model.onnx --inputs 'pictures/*.png' --adapters all --outputs results
    """
    module = verb("run")
    timing = module.TimingOptions(
        dispatch_iterations, dispatch_repeat, milliseconds_to_run, dispatch_interval, warmup_samples
    )
    overrides = module.onnx_options(name_overrides, denotation_overrides, binding_shapes)
    dispatching = module.DispatchOptions(timing, timing_verbosity, overrides, print_onnx_bindings)
    onnx = {"inputs": tuple(inputs or ()), "check": check, "profile": profile, "profile_json": profile_json}
    onnx |= {"trace": trace, "repeat": repeat}
    pictures = {"size": size, "scale": scale, "mean": mean, "std": std}
    many = {"patterns": patterns, "adapters": adapters, "scheduler": scheduler, "strict": strict, **pictures}
    if any(value not in (None, False) for value in many.values()):
        module.run_many(model, output_dir, adapter, many, precise=precise, dispatching=dispatching, **onnx)
        return
    module.run(model, output_dir, adapter, precise=precise, allow_paths=allow_paths, dispatching=dispatching, **onnx)
