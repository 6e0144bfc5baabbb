"""The verbs of the command line: their options and help texts. The module named like a verb does its work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmlgpu import __version__
from dmlgpu.cli import bench_app, demo_app, run_app
from dmlgpu.cli.main import verb
from dmlgpu.cli.options import (
    MAX_SECONDS,
    Adapter,
    Drivers,
    Json,
    Precise,
    Records,
    Sizes,
    Types,
    Without,
    complete_operators,
    complete_profiles,
    complete_suites,
    finite,
    schedules_option,
    shape_option,
    subject,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Boxes and colours on a terminal, plain text in a pipe.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)


def _print_version(requested: bool) -> None:
    if requested:
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
    interrupted. `dmlgpu VERB --help` explains a verb; docs/environment.md has the environment variables.
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
    """Examine this installation and machine, compute something on every adapter, and suggest fixes.

    What it prints is all that a bug report needs. Exit code 1: there is a problem. docs/environment.md has
    the environment variables.

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
    what: Annotated[str, subject("CASE|OPERATOR|MODEL|KERNEL", "What to look into.")],
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
    GraphDesc, an OperatorDesc, or `outputs`, a list of expressions of a Graph. Of a kernel of your own (KERNEL.wgsl):
    entry points, bindings, overrides, and whether it compiles; exit code 1 if not.

    \b
    Examples:
      dmlgpu show gather_nd1
      dmlgpu show gemm --schedules gpu
      dmlgpu show graph-float32-16-s0 --full
      dmlgpu show model.py:outputs --without element-wise
      dmlgpu show model.onnx --shape x=1x3x48x192
      dmlgpu show kernel.wgsl --adapter 0
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


PROFILES_HELP = (
    "quick, standard (10 times as many cases) or full (130 times). quick takes about 2 minutes on an idle "
    "computer with two cores and a software adapter; a busy one takes longer."
)


app.command()(run_app.run)


@app.command()
def test(
    *,
    operators: Annotated[
        list[str] | None, subject("OPERATOR", "Only the cases of these operators, such as GEMM; or a case's name.")
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            "--operator",
            metavar="NAME",
            help="Only this operator's cases, as OPERATOR; may be repeated.",
            autocompletion=complete_operators,
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter", "-a", metavar="NAME", help="Part of an adapter's name, or its number; 'all'; may be repeated."
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(
            "-k",
            metavar="PATTERN",
            help="Only cases with these words in their names ('add': element_wise_add1, not padded), or, if none has "
            "them, with this part; or matching * and ?. In any case. Repeated: one of them.",
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help=PROFILES_HELP, autocompletion=complete_profiles)
    ] = "quick",
    suite: Annotated[
        str, typer.Option("--suite", help="Which list of cases.", autocompletion=complete_suites)
    ] = "dmlgpu",
    output: Records = None,
    expectations: Annotated[
        list[Path] | None, typer.Option("--expectations", "-e", metavar="FILE.toml", help="Failures that are known.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE.xml", help="Write the outcomes as JUnit's XML, for CI.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-n",
            min=1,
            max=64,
            help="Processes at once; by default the cores, at most 8 on software adapters, 4 on graphics "
            "cards, and one for every 4 GiB of memory.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", min=0.1, max=MAX_SECONDS, callback=finite, help="Seconds for one case."),
    ] = 60.0,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Runs of each case, which must not differ.")] = 1,
    precise: Precise = False,
    drivers: Drivers = None,
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Compare the adapters with each other instead of with the reference.")
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on every distinct adapter of this Dask cluster's workers."),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=MAX_SECONDS,
            callback=finite,
            help="Seconds to wait for another worker when the last one with an adapter is lost.",
        ),
    ] = 60.0,
    browser: Annotated[
        bool, typer.Option("--browser", help="Also test a browser's GPU: wait for the page to be opened.")
    ] = False,
    pages: Annotated[
        int, typer.Option("--pages", min=1, max=64, metavar="N", help="With --browser: wait for so many pages.")
    ] = 1,
    only_list: Annotated[bool, typer.Option("--list", help="Print the cases' names instead of running them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    """Test whether adapters compute DirectML's operators correctly, each case against the NumPy reference.

    A case that hangs or crashes is recorded, and the run goes on. Exit code 1: something is not as expected.

    \b
    Examples:
      dmlgpu test
      dmlgpu test GEMM activation_softmax1 --profile standard
      dmlgpu test --adapter all --profile standard -o results.jsonl
      dmlgpu test --junit results.xml
      dmlgpu test --drivers all -o results.jsonl
      dmlgpu test --drivers all --pairwise --profile full
      dmlgpu test gather_nd1 --profile full
      dmlgpu test -k softmax -k gemm
      dmlgpu test --precise -k convolution
      dmlgpu test -k gather_nd1-float32-uint32-2x3-packed-s0 --adapter 0
      dmlgpu test --browser -o results.jsonl
      dmlgpu test --scheduler tcp://10.0.0.1:8786 --profile full -o cluster.jsonl
    """
    request = verb("test").ConformanceRequest(
        adapters=tuple(adapter or ()),
        drivers=tuple(drivers or ()),
        suite=suite,
        profile=profile,
        operators=(*(operators or ()), *(also or ())),
        patterns=tuple(pattern or ()),
        output=output,
        expectations=tuple(expectations or ()),
        workers=workers,
        time_limit=time_limit,
        repeat=repeat,
        pages=pages if browser else 0,
        precise=precise,
    )
    if as_json and not only_list:
        raise typer.BadParameter("--json is for --list; what a run finds is written as JSON Lines by --output")
    if only_list:
        verb("test").list_cases(request, as_json)
        return
    if scheduler and pairwise:
        raise typer.BadParameter("--pairwise compares adapters of this machine, not those of a cluster")
    if browser and (scheduler or pairwise):
        raise typer.BadParameter("--browser goes neither with --pairwise nor with --scheduler")

    def run_all(selected_request: Any) -> bool:
        if scheduler:
            return bool(verb("cluster").test(selected_request, scheduler, patience))
        return bool(
            verb("test").compare_adapters(selected_request) if pairwise else verb("test").test(selected_request)
        )

    if not (verb("test").with_junit(request, junit, run_all) if junit else run_all(request)):
        raise typer.Exit(1)


@app.command()
def tune(
    *,
    what: Annotated[
        list[str] | None,
        subject("[OPERATOR|CASE|MODEL|SUITE]...", "What to tune; by default products and convolutions of usual sizes."),
    ] = None,
    sizes: Sizes = None,
    types: Types = None,
    adapter: Adapter = None,
    budget: Annotated[
        float,
        typer.Option(
            "--budget", min=0.0, max=MAX_SECONDS, callback=finite, help="Seconds for the last two of each choice."
        ),
    ] = 2.0,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE.json", help="Write down the time of everything that was tried, too."),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the choices that are kept.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Forget the adapter's choices.")] = False,
    share: Annotated[
        Path | None, typer.Option("--share", metavar="FILE.json", help="Write the adapter's choices for others.")
    ] = None,
    take: Annotated[
        Path | None, typer.Option("--take", metavar="FILE.json", help="Take choices that somebody shared.")
    ] = None,
) -> None:
    """Find the fastest schedules and tiles on the adapter at hand, and keep them for everything that is compiled later.

    Each choice is measured beside the built-in one, in turn, and compared with the reference; it is kept only where it
    is surely faster. Choices lie in the user's cache folder, or where DMLGPU_TUNED says, for an adapter under a driver;
    DMLGPU_TUNED=off has them ignored. docs/tuning.md tells more.

    \b
    Examples:
      dmlgpu tune
      dmlgpu tune GEMM -s m=k=n=64..4096 -t float16,float32
      dmlgpu tune CONVOLUTION --adapter 0 --budget 10
      dmlgpu tune model.py:outputs
      dmlgpu tune --list
      dmlgpu tune --share lavapipe.json
      dmlgpu tune --take lavapipe.json
    """
    others = [only_list, clear, share is not None, take is not None]
    if sum(others) > 1 or (any(others) and (what or sizes or types or record)):
        raise typer.BadParameter("--list, --clear, --share and --take each go alone, with --adapter at most")
    module = verb("tune")
    if only_list:
        module.print_kept()
    elif clear:
        module.clear(adapter)
    elif share is not None:
        module.share(adapter, share)
    elif take is not None:
        module.take(adapter, take)
    else:
        module.tune(module.find_requested(what or [], sizes or [], types or []), adapter, budget, record)


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


@app.command()
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
            autocompletion=complete_profiles,
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


app.add_typer(bench_app.app, name="bench")
app.add_typer(demo_app.app, name="demo")
