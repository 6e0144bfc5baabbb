"""The verbs of the command line, their options and help texts. The work is done by the modules named like the verbs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from dmlgpu import __version__
from dmlgpu.cli import bench_app, demos, export_app, test_app, tune_app
from dmlgpu.cli import dispatch_options as options
from dmlgpu.cli.main import verb
from dmlgpu.cli.options import Adapter, Drivers, Json, Precise, Without, schedules_option, shape_option, subject

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Boxes and colours on a terminal, plain text in a pipe.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dmlgpu {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """DirectML's operators on every GPU that wgpu reaches.

    Exit codes: 0 done; 1 it failed, or a result is wrong; 2 the command line or an input file is wrong; 130
    interrupted. `dmlgpu VERB --help` explains a verb.
    """


@app.command()
def devices(
    adapter: Annotated[
        str | None, typer.Option("--adapter", "-a", metavar="NAME", help="Show only this adapter.")
    ] = None,
    drivers: Drivers = None,
    as_json: Json = False,
) -> None:
    """List the adapters: what they are, their features, limits and data types.

    \b
    Examples:
      dmlgpu devices
      dmlgpu devices --adapter vulkan
      dmlgpu devices --drivers all
      dmlgpu devices --json | jq '.[].name'
    """
    if drivers:
        verb("devices").show_drivers(drivers, adapter, as_json)
    else:
        verb("devices").show(adapter, as_json)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Examine this installation and machine, compute something on every adapter, and say what to install or mend.

    What it prints is all that a bug report needs. Exit code 1: something is to be mended.

    \b
    Examples:
      dmlgpu doctor
      dmlgpu doctor --json > doctor.json
    """
    if not verb("doctor").show(as_json):
        raise typer.Exit(1)


@app.command()
def ops(
    word: Annotated[str | None, subject("WORD", "One operator, such as gather_nd1, or what to look for.")] = None,
    implemented: Annotated[bool, typer.Option("--implemented", help="Only what dmlgpu implements.")] = False,
    as_json: Json = False,
) -> None:
    """List DirectML's operators, tell all about one, or find those that other libraries know by another name.

    A word that is no operator's whole name is searched for in names, in what the operators do, and in the names that
    ONNX, PyTorch, NumPy and WebNN have for them.

    \b
    Examples:
      dmlgpu ops
      dmlgpu ops conv
      dmlgpu ops layer_norm
      dmlgpu ops --implemented
      dmlgpu ops gather_nd1
      dmlgpu ops --json | jq '.[] | select(.implemented | not).name'
    """
    verb("ops").show(word, implemented, as_json)


@app.command()
def show(
    *,
    what: Annotated[str, subject("CASE|OPERATOR|MODEL", "What to look into.")],
    adapter: Adapter = None,
    wgsl: Annotated[bool, typer.Option("--wgsl", help="Print the kernels' text, and nothing else.")] = False,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write plan, schedule, kernels and JSON into a folder.")
    ] = None,
    timings: Annotated[bool, typer.Option("--timings", help="Compile, too, and tell where the time goes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Of graphs, also print plan, schedule and program.")] = False,
    schedules: Annotated[str | None, schedules_option("The schedules for processors or GPUs, whatever it is.")] = None,
    precise: Precise = False,
    without: Without = None,
    shapes: Annotated[list[str] | None, shape_option("An input's sizes, of ONNX models; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Look inside: description, plan, schedule with its reasons, kernels; of graphs what fused, bytes and memory.

    CASE is any name that `dmlgpu test` knows; OPERATOR shows its typical case; MODEL is a DxDispatch model
    (MODEL.json), an ONNX model (MODEL.onnx: what runs where), or a Python file (FILE.py, FILE.py:NAME) that defines a
    GraphDesc, an OperatorDesc, or `outputs`, a list of expressions of a Graph.

    \b
    Examples:
      dmlgpu show gather_nd1
      dmlgpu show gemm --schedules gpu
      dmlgpu show graph-float32-16-s0 --full
      dmlgpu show model.py:outputs --without element-wise
      dmlgpu show model.onnx --shape x=1x3x48x192
      dmlgpu show gather_nd1 --wgsl | less
      dmlgpu show convolution --json | jq '.shown[0].kernels[].reason'
    """
    verb("show").show(
        what,
        adapter,
        as_text=not as_json,
        wgsl=wgsl,
        dump=dump,
        timings=timings,
        full=full,
        schedules=schedules,
        precise=precise,
        without=tuple(without or ()),
        shapes=tuple(shapes or ()),
    )


def _show_adapters(wanted: bool) -> None:
    if wanted:
        verb("devices").show(None, False)
        raise typer.Exit


@app.command()
def run(
    *,
    model: Annotated[
        Path, typer.Argument(help="A model: DxDispatch's JSON, or ONNX.", metavar="MODEL.json|MODEL.onnx")
    ],
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", metavar="DIR", help="Where files are written.")
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
    adapter: Adapter = None,
    precise: Precise = False,
    allow_paths: Annotated[
        bool,
        typer.Option("--allow-paths", help="Let the model read and write files anywhere; only for models you trust."),
    ] = False,
    dispatch_iterations: options.Iterations = 1,
    dispatch_repeat: options.Repeat = 1,
    milliseconds_to_run: options.MillisecondsToRun = None,
    dispatch_interval: options.Interval = 0,
    warmup_samples: options.Warmup = 1,
    timing_verbosity: options.Verbosity = 0,
    name_overrides: options.NameOverrides = None,
    denotation_overrides: options.DenotationOverrides = None,
    binding_shapes: options.Shapes = None,
    print_onnx_bindings: options.PrintBindings = False,
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
    """
    dispatching = verb("dispatching")
    timing = dispatching.TimingOptions(
        dispatch_iterations, dispatch_repeat, milliseconds_to_run, dispatch_interval, warmup_samples
    )
    overrides = dispatching.onnx_options(name_overrides, denotation_overrides, binding_shapes)
    chosen = dispatching.DispatchOptions(timing, timing_verbosity, overrides, print_onnx_bindings)
    onnx = {"inputs": tuple(inputs or ()), "check": check, "profile": profile, "profile_json": profile_json}
    onnx |= {"trace": trace, "repeat": repeat}
    verb("run").run(model, output_dir, adapter, precise=precise, allow_paths=allow_paths, dispatching=chosen, **onnx)


app.command()(test_app.test)
app.add_typer(bench_app.app, name="bench")
app.command()(tune_app.tune)


@app.command()
def serve(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where pages are served: 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="There; 0 takes a free one.")] = 0,
    many: Annotated[bool, typer.Option("--many", help="Take several pages at a time.")] = False,
    certificate: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE.pem", help="Serve by TLS, with this certificate.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE.pem", help="The certificate's key.")] = None,
) -> None:
    """Serve the page that lends a browser's GPU, until it is interrupted.

    Other commands find it by the environment variable DMLGPU_BROWSER, whose value is printed, and take the page's
    adapter by --adapter browser. Without a server, they start one themselves, on the loopback address.

    \b
    Examples:
      dmlgpu serve
      dmlgpu serve --host 0.0.0.0 --cert cert.pem --key key.pem --many
    """
    verb("serve").serve(host, port, many=many, certificate=certificate, key=key)


app.command()(export_app.export)


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="What `test -o` and `bench -o` wrote.", metavar="FILES.jsonl")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="A page (.html), Markdown (.md) or JUnit XML (.xml).")
    ],
) -> None:
    """Put runs of `dmlgpu test` side by side: operators by adapters, what is wrong and how to see it again.

    What `dmlgpu bench` measured stands beside: times, and whether the same adapter computes the operator right.

    \b
    Examples:
      dmlgpu report lavapipe.jsonl nvidia.jsonl -o report.html
      dmlgpu report results.jsonl bench.jsonl -o report.html
    """
    verb("report").report(files, output)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="What `dmlgpu test -o` wrote.", metavar="BEFORE.jsonl")],
    after: Annotated[Path, typer.Argument(help="The same, later or elsewhere.", metavar="AFTER.jsonl")],
    as_json: Json = False,
) -> None:
    """Tell what changed between two runs of `dmlgpu test`, regressions first.

    Exit code 1: a case that passed fails, is refused, or is missing.

    \b
    Examples:
      dmlgpu compare mesa-25.0.jsonl mesa-25.1.jsonl
      dmlgpu compare before.jsonl after.jsonl --json | jq '.pairs[].changes[] | select(.kind == "regression").case'
    """
    if not verb("compare").compare(before, after, as_json):
        raise typer.Exit(1)


app.add_typer(demos.app, name="demo")
