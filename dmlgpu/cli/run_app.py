"""Options and help of ``dmlgpu run``."""

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
    shape_option,
)

ManyPatterns = Annotated[
    list[str] | None,
    typer.Option(
        "--inputs",
        metavar="FILES",
        help="Run an ONNX model once per file: a pattern such as 'pictures/*.png', a folder, .npy, .npz or images; "
        "repeatable.",
    ),
]
ManyAdapters = Annotated[
    list[str] | None,
    typer.Option("--adapters", metavar="NAME", help="Adapter for --inputs, or 'all'; repeatable."),
]
ManyScheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Dask cluster for --inputs, such as tcp://10.0.0.1:8786."),
]
Strict = Annotated[bool, typer.Option("--strict", help="With --inputs: stop at the first file that fails.")]
PictureSize = Annotated[
    str | None,
    typer.Option("--size", metavar="HxW", help="Resize images; defaults to the model's input size, else no resizing."),
]
PixelScale = Annotated[
    float | None, typer.Option("--scale", metavar="NUMBER", help="Pixel scale; defaults to 0.00392 (1/255).")
]
PixelMean = Annotated[
    str | None, typer.Option("--mean", metavar="R,G,B", help="Mean, subtracted from scaled pixels; defaults to 0.")
]
PixelStd = Annotated[
    str | None, typer.Option("--std", metavar="R,G,B", help="Standard deviation, divides the result; defaults to 1.")
]


def _show_adapters(requested: bool) -> None:
    if requested:
        verb("devices").show(None, False)
        raise typer.Exit


def run(
    *,
    model: Annotated[Path, typer.Argument(help="DxDispatch or ONNX model.", metavar="MODEL.json|MODEL.onnx")],
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", "--outputs", "-o", metavar="DIR", help="Output folder; defaults to the current one."
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="Input of an ONNX model; repeatable."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare every node with the NumPy reference, and with onnxruntime or onnx.")
    ] = False,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Print the time per kernel and per node, and the fraction of the device's roofline.",
        ),
    ] = False,
    profile_json: Annotated[
        Path | None, typer.Option("--profile-json", metavar="FILE.json", help="Write the profile as JSON.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE.json", help="Write a Chrome trace of host and device.")
    ] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Run N times, and print the times.")] = 1,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="Compile an ONNX model ahead of time, for the shapes of --shape; do not run it."),
    ] = False,
    shapes: Annotated[
        list[str] | None,
        shape_option("With --warm: shape of an input, or size of a dimension; repeatable, also for the same name."),
    ] = None,
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
        typer.Option("--allow-paths", help="Let the model read and write any file. Use only with models you trust."),
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
            help="List the adapters and exit.",
        ),
    ] = False,
) -> None:
    """Run an ONNX or DxDispatch model.

    An ONNX model prints its outputs; a DxDispatch model runs its commands (dispatch, print, writeFile). A DxDispatch
    model reads files from its own folder and writes into the output folder, unless --allow-paths is given. The options
    for timing and free dimensions are DxDispatch's. With one of them and without --input, an ONNX model runs on zeros
    and prints its times, as in DxDispatch.

    \b
    Examples:
      dmlgpu run model.json
      dmlgpu run model.json --dispatch_iterations 100 -v 1
      dmlgpu run model.onnx -f batch:8 -t 2000
      dmlgpu run model.json --output-dir results --adapter numpy
      dmlgpu run model.onnx --input x=picture.npy --output-dir results
      dmlgpu run model.onnx --input x=picture.npy --profile --repeat 20
      dmlgpu run model.onnx --warm --shape x=1x3x48x192 --shape x=8x3x48x192
      dmlgpu run model.onnx --inputs 'pictures/*.png' --adapters all --outputs results
    """
    module = verb("run")
    from dmlgpu.frontends.dxdispatch import TimingOptions  # noqa: PLC0415 - slow to import

    timing = TimingOptions(dispatch_iterations, dispatch_repeat, milliseconds_to_run, dispatch_interval, warmup_samples)
    overrides = module.onnx_options(name_overrides, denotation_overrides, binding_shapes)
    dispatching = module.DispatchOptions(timing, timing_verbosity, overrides, print_onnx_bindings)
    onnx = {"inputs": tuple(inputs or ()), "check": check, "profile": profile, "profile_json": profile_json}
    onnx |= {"trace": trace, "repeat": repeat, "warm": warm, "shapes": tuple(shapes or ())}
    pictures = {"size": size, "scale": scale, "mean": mean, "std": std}
    many = {"patterns": patterns, "adapters": adapters, "scheduler": scheduler, "strict": strict, **pictures}
    if any(value not in (None, False) for value in many.values()):
        module.run_many(model, output_dir, adapter, many, precise=precise, dispatching=dispatching, **onnx)
        return
    module.run(model, output_dir, adapter, precise=precise, allow_paths=allow_paths, dispatching=dispatching, **onnx)
