"""The verbs of the command line: options and help. The module with the name of a verb implements it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmlgpu import __version__
from dmlgpu.cli import bench_app, demo_app, generate_app, run_app
from dmlgpu.cli.main import verb
from dmlgpu.cli.options import (
    MAX_SECONDS,
    Adapter,
    CasePatterns,
    Defines,
    Drivers,
    EntryPoint,
    Json,
    NoQuirks,
    OperatorNames,
    Precise,
    Profile,
    Records,
    Sizes,
    Types,
    Without,
    Workers,
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
    # Boxes and colors on a terminal, plain text in a pipe.
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
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """Run, test and benchmark DirectML's operators on any GPU that wgpu supports.

    `dmlgpu COMMAND --help` describes a command. docs/environment.md lists the environment variables. Exit codes: 0
    success; 1 failure, or a wrong result; 2 invalid command line or input file; 130 interrupted.
    """


@app.command()
def devices(
    adapter: Annotated[
        str | None, typer.Option("--adapter", "-a", metavar="NAME", help="Show only this adapter.")
    ] = None,
    drivers: Drivers = None,
    as_json: Json = False,
) -> None:
    """List the adapters with their features, limits and data types.

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
def doctor(as_json: Json = False, no_quirks: NoQuirks = False) -> None:
    """Check the installation and every adapter, and suggest fixes.

    Computes a few test cases on each adapter. Paste the output into a bug report: it is complete. Exit code 1 if there
    is a problem. docs/environment.md lists the environment variables.

    \b
    Examples:
      dmlgpu doctor
      dmlgpu doctor --json > doctor.json
    """
    if not verb("doctor").show(as_json):
        raise typer.Exit(1)


@app.command()
def ops(
    word: Annotated[str | None, subject("WORD", "Operator, such as gather_nd1, or a word to search for.")] = None,
    implemented: Annotated[
        bool, typer.Option("--implemented", help="List only operators that dmlgpu implements.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List DirectML's operators, describe one, or search by name.

    If WORD is not the full name of an operator, it is searched for in names, in descriptions, and in the names that
    ONNX, PyTorch, NumPy and WebNN use.

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
    what: Annotated[str, subject("CASE|OPERATOR|MODEL|KERNEL", "Case, operator, model or kernel to show.")],
    adapter: Adapter = None,
    wgsl: Annotated[bool, typer.Option("--wgsl", help="Print only the WGSL source of the kernels.")] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Print only the schedules of each step: the one taken, and why no other.")
    ] = False,
    isa: Annotated[
        str | None,
        typer.Option("--isa", metavar="FAMILY", help="Print the instructions for an AMD GPU family, such as navi31."),
    ] = None,
    entry_point: EntryPoint = "",
    defines: Defines = None,
    dump: Annotated[
        Path | None, typer.Option("--dump", metavar="DIR", help="Write plan, schedule, kernels and JSON into DIR.")
    ] = None,
    timings: Annotated[bool, typer.Option("--timings", help="Also compile, and print the time of each stage.")] = False,
    full: Annotated[bool, typer.Option("--full", help="For graphs, also print plan, schedule and program.")] = False,
    schedules: Annotated[str | None, schedules_option("Show CPU or GPU schedules, for any adapter.")] = None,
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="NAME", help="Take this schedule for every step that has it.")
    ] = "",
    precise: Precise = False,
    no_quirks: NoQuirks = False,
    without: Without = None,
    shapes: Annotated[list[str] | None, shape_option("Shape of an input of an ONNX model; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Show how something compiles: plan, schedule, kernels, fusion.

    Each schedule is shown with the reason for which it was chosen; graphs also with fused nodes, bytes moved and
    memory. CASE is the name of a case of `dmlgpu test`. OPERATOR shows its typical case. MODEL is a DxDispatch model
    (MODEL.json), an ONNX model (MODEL.onnx: which nodes run where), a language model (a folder or MODEL.gguf: what
    contexts need of memory), or a Python file (FILE.py, FILE.py:NAME) that
    defines a GraphDesc, an OperatorDesc, or `outputs`, a list of expressions of a Graph. KERNEL is a WGSL file of your
    own (KERNEL.wgsl): entry points, bindings, overrides, and whether it compiles. Exit code 1 if it does not.

    \b
    Examples:
      dmlgpu show gather_nd1
      dmlgpu show gemm --schedules gpu --why
      dmlgpu show gemm --schedule streamed
      dmlgpu show graph-float32-16-s0 --full
      dmlgpu show model.py:outputs --without element-wise
      dmlgpu show model.onnx --shape x=1x3x48x192
      dmlgpu show phi-3-mini
      dmlgpu show kernel.wgsl --adapter 0
      dmlgpu show gather_nd1 --wgsl | less
      dmlgpu show gemm --isa navi31 | less
      dmlgpu show convolution --json | jq '.shown[0].kernels[].reason'
    """
    verb("show").show(
        what,
        adapter,
        as_text=not as_json,
        wgsl=wgsl,
        why=why,
        isa=isa,
        entry_point=entry_point,
        defines=tuple(defines or ()),
        dump=dump,
        timings=timings,
        full=full,
        schedules=schedules,
        schedule=schedule,
        precise=precise,
        without=tuple(without or ()),
        shapes=tuple(shapes or ()),
    )


app.command()(run_app.run)
app.command(cls=generate_app.GenerateCommand)(generate_app.generate)


@app.command()
def transcribe(
    *,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Folder of a Whisper model that Optimum exported.", show_default=False),
    ],
    audio: Annotated[
        Path, typer.Argument(metavar="AUDIO", help="Sound file: WAV, FLAC, Ogg, MP3.", show_default=False)
    ],
    language: Annotated[
        str | None,
        typer.Option("--language", metavar="CODE", help="Language, such as en or de; by default, it is detected."),
    ] = None,
    translate: Annotated[bool, typer.Option("--translate", help="Translate into English.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Print the start and end of each segment.")] = False,
    srt: Annotated[bool, typer.Option("--srt", help="Print subtitles in the format SubRip.")] = False,
    no_fallback: Annotated[
        bool,
        typer.Option("--no-fallback", help="Neither sample unlikely text again nor skip windows without speech."),
    ] = False,
    adapter: Adapter = None,
) -> None:
    """Write down the speech in a sound file.

    MODEL is a folder with encoder_model.onnx, decoder_model_merged.onnx (or decoder_model.onnx and
    decoder_with_past_model.onnx), config.json, generation_config.json and tokenizer.json. The text goes to standard
    output, a segment per line, speed and memory to standard error. Audio of more than 30 seconds is transcribed in
    windows, each of which begins at the end of the last complete segment.

    \b
    Examples:
      dmlgpu transcribe whisper-base speech.flac
      dmlgpu transcribe whisper-base speech.wav --language de --timestamps
      dmlgpu transcribe whisper-base film.ogg --translate --srt > film.srt
    """
    verb("transcribe").transcribe(
        model,
        audio,
        adapter,
        language=language,
        translate=translate,
        timestamps=timestamps,
        srt=srt,
        fallback=not no_fallback,
    )


@app.command()
def test(
    *,
    operators: Annotated[
        list[str] | None, subject("OPERATOR", "Operators to test, such as GEMM, or names of cases.")
    ] = None,
    also: OperatorNames = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter", "-a", metavar="NAME", help="Part of an adapter's name, its index, or 'all'; repeatable."
        ),
    ] = None,
    pattern: CasePatterns = None,
    profile: Profile = "quick",
    suite: Annotated[str, typer.Option("--suite", help="Test suite.", autocompletion=complete_suites)] = "dmlgpu",
    output: Records = None,
    expectations: Annotated[
        list[Path] | None, typer.Option("--expectations", "-e", metavar="FILE.toml", help="Known failures.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE.xml", help="Write the results as JUnit XML, for CI.")
    ] = None,
    workers: Workers = None,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit", min=0.1, max=MAX_SECONDS, callback=finite, help="Timeout of one case, in seconds."
        ),
    ] = 60.0,
    repeat: Annotated[
        int, typer.Option("--repeat", min=1, help="Run each case N times; the results must be identical.")
    ] = 1,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", "-x", help="Stop at the first unexpected result.")] = False,
    exercised: Annotated[
        bool, typer.Option("--exercised", help="Print which functions, types and features of WGSL kernels used.")
    ] = False,
    schedules: Annotated[
        str, typer.Option(metavar="cpu|gpu|both", help="Use CPU or GPU schedules, or both in turn, on any adapter.")
    ] = "",
    precise: Precise = False,
    no_quirks: NoQuirks = False,
    drivers: Drivers = None,
    pairwise: Annotated[
        bool, typer.Option("--pairwise", help="Compare adapters with each other instead of with the reference.")
    ] = False,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on every distinct adapter of a Dask cluster."),
    ] = None,
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=MAX_SECONDS,
            callback=finite,
            help="Seconds to wait for a new worker after the last one with an adapter is lost.",
        ),
    ] = 60.0,
    browser: Annotated[
        bool, typer.Option("--browser", help="Also test a browser's GPU: waits until the page is open.")
    ] = False,
    pages: Annotated[
        int, typer.Option("--pages", min=1, max=64, metavar="N", help="With --browser: number of pages to wait for.")
    ] = 1,
    only_list: Annotated[
        bool, typer.Option("--list", help="Print the names of the cases instead of running them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --list: print JSON.")] = False,
) -> None:
    """Test operators on adapters against the NumPy reference.

    Cases run in child processes: one that hangs or crashes is recorded, and the run continues. Exit code 1 if a result
    is unexpected.

    \b
    Examples:
      dmlgpu test
      dmlgpu test GEMM activation_softmax1 --profile standard
      dmlgpu test --adapter all --profile standard -o results.jsonl
      dmlgpu test --junit results.xml
      dmlgpu test --drivers all -o results.jsonl
      dmlgpu test --drivers all --pairwise --profile full
      dmlgpu test gather_nd1 --profile full
      dmlgpu test -k softmax -k gemm --fail-fast
      dmlgpu test --suite driver --exercised
      dmlgpu test --precise -k convolution
      dmlgpu test --schedules both -k reduce
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
        fail_fast=fail_fast,
        exercised=exercised,
        schedules=schedules,
    )
    if as_json and not only_list:
        raise typer.BadParameter("--json needs --list; use --output to write the results of a run as JSON Lines")
    if only_list:
        verb("test").list_cases(request, as_json)
        return
    if scheduler and pairwise:
        raise typer.BadParameter("--pairwise cannot be combined with --scheduler: it compares local adapters")
    if fail_fast and (scheduler or pairwise):
        raise typer.BadParameter("--fail-fast cannot be combined with --pairwise or --scheduler")
    if exercised and (scheduler or pairwise):
        raise typer.BadParameter("--exercised cannot be combined with --pairwise or --scheduler")
    if schedules and (scheduler or browser):
        raise typer.BadParameter("--schedules cannot be combined with --scheduler or --browser")
    if browser and (scheduler or pairwise):
        raise typer.BadParameter("--browser cannot be combined with --pairwise or --scheduler")

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
        subject(
            "[OPERATOR|CASE|MODEL|SUITE]...",
            "What to tune; defaults to matrix products and convolutions of common sizes.",
        ),
    ] = None,
    sizes: Sizes = None,
    types: Types = None,
    adapter: Adapter = None,
    budget: Annotated[
        float,
        typer.Option(
            "--budget",
            min=0.0,
            max=MAX_SECONDS,
            callback=finite,
            help="Seconds to compare the last two candidates of each choice.",
        ),
    ] = 2.0,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE.json", help="Also write the time of every candidate."),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Print the stored choices.")] = False,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the choices stored for the adapter.")] = False,
    share: Annotated[
        Path | None, typer.Option("--share", metavar="FILE.json", help="Export the choices stored for the adapter.")
    ] = None,
    take: Annotated[
        Path | None, typer.Option("--take", metavar="FILE.json", help="Import choices that --share wrote.")
    ] = None,
) -> None:
    """Find the fastest schedules and tile sizes for an adapter.

    Candidates are measured interleaved with the built-in choice and checked against the reference. A candidate is
    stored only if it is faster beyond measurement noise, and is used by everything compiled later. Choices are stored
    per adapter and driver in the user's cache folder, or in the folder DMLGPU_TUNED; DMLGPU_TUNED=off ignores them.
    See docs/tuning.md.

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
        raise typer.BadParameter("--list, --clear, --share and --take can be combined with --adapter only")
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
        str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on; 0.0.0.0 admits other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 picks a free one.")] = 0,
    many: Annotated[bool, typer.Option("--many", help="Accept several pages at a time.")] = False,
    certificate: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE.pem", help="Serve over TLS with this certificate.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE.pem", help="Private key of the certificate.")
    ] = None,
) -> None:
    """Serve the page that lends a browser's GPU to other commands.

    Runs until it is interrupted. Set DMLGPU_BROWSER to the value it prints, and pass --adapter browser to other
    commands. Commands without DMLGPU_BROWSER start a server of their own on the loopback address.

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
        subject(
            "MODEL.onnx|MODEL.json[:NAME]|demo|FILE.py[:NAME]|OPERATOR", "Model, graph, demo or operator to export."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Output folder; created if it does not exist.")
    ],
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            metavar="quick|standard|full",
            help="Export a page that runs the cases of a profile of `dmlgpu test`.",
            autocompletion=complete_profiles,
        ),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option("-k", metavar="PATTERN", help="With --suite: only matching cases; repeatable."),
    ] = None,
    shapes: Annotated[
        list[str] | None,
        shape_option("Shape, or shapes, of an input of an ONNX model; repeatable.", "NAME=1x3"),
    ] = None,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weights",
            metavar="NAME=FILE.npy",
            help="Weights: values of a graph's input, written into the folder; repeatable.",
        ),
    ] = None,
    schedules: Annotated[str, schedules_option("Schedules for CPUs or GPUs.")] = "gpu",
    half: Annotated[
        bool, typer.Option("--half", help="Compute in float16 if the browser supports shader-f16.")
    ] = False,
    matrices: Annotated[
        str,
        typer.Option(
            "--matrices",
            metavar="MxNxK",
            help="Multiply float16 on matrix units of this size, such as 16x16x16, which the browser must have.",
        ),
    ] = "",
    without: Without = None,
) -> None:
    """Export a model to a web page that runs it with WebGPU.

    The folder has the kernels, the weights, a JavaScript runtime with TypeScript types, and a demo page. It needs no
    Python, and also runs under Node with the package webgpu. It takes the input shapes that are given: a dimension may
    have several sizes. A model that needs the host while it runs (for computation or control flow) is rejected, and the
    error names the nodes. See docs/export.md.

    With --suite, the page tests its visitor's GPU and saves results for `dmlgpu report`.

    \b
    Examples:
      dmlgpu export demo -o palette
      dmlgpu export model.onnx -o folder --shape image=1x3x224x224
      dmlgpu export model.onnx -o folder --shape line=1x3x48x160..640/32
      dmlgpu export graphs.py:network -o folder --weights filter=filter.npy
      dmlgpu export --suite quick -o conformance
    """
    several = tuple(shapes or ()), tuple(weights or ())
    options = verb("export").Options(*several, schedules, half, tuple(without or ()), matrices)
    if (what is None) == (suite is None):
        raise typer.BadParameter("give either what to export or --suite")
    if suite is None:
        if pattern:
            raise typer.BadParameter("-k needs --suite")
        verb("export").export_model(what, output, options)
    elif shapes or weights or half or without or matrices:
        raise typer.BadParameter("--shape, --weights, --half, --matrices and --without cannot be combined with --suite")
    else:
        verb("export").export_suite(suite, tuple(pattern or ()), output, schedules)


@app.command()
def survey(
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the survey; created if it does not exist.")
    ] = Path("survey"),
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter", "-a", metavar="NAME", help="Part of an adapter's name, its index, or 'all'; repeatable."
        ),
    ] = None,
    drivers: Drivers = None,
    budget: Annotated[
        float, typer.Option("--budget", min=0.0, max=MAX_SECONDS, callback=finite, help="Seconds.")
    ] = 480.0,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", metavar="PART", help="Run this part only; repeatable. Defaults to all parts."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="Also survey a browser's GPU: waits until the page is open.")
    ] = False,
    pages: Annotated[
        int, typer.Option("--pages", min=1, max=64, metavar="N", help="With --browser: number of pages to wait for.")
    ] = 1,
) -> None:
    """Test and measure the machine's adapters, and write one file to send.

    Runs the quick cases, measures ceilings, operators and a token of a language model, and predicts times, on every
    driver, in eight minutes. What does not fit is listed; the same command continues, also after Ctrl-C. The file
    DIR/survey.json.gz has no names of users, computers or folders. `dmlgpu report` shows any number of them.

    \b
    Examples:
      dmlgpu survey
      dmlgpu survey --adapter nvidia -o h100
      dmlgpu survey --budget 1800
      dmlgpu survey --browser --part driver --part conformance
    """
    verb("survey").survey(
        output,
        tuple(adapter or ()),
        tuple(drivers or ()),
        budget,
        only=tuple(part or ()),
        pages=pages if browser else 0,
    )


@app.command()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(help="Files written by `survey`, `test -o` and `bench -o`.", metavar="FILES"),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Web page (.html), Markdown (.md) or JUnit XML (.xml)."),
    ],
) -> None:
    """Report surveys and runs of `dmlgpu test` side by side, as HTML, Markdown or JUnit.

    A table of operators by adapters, then each failure with the command that reproduces it. Times measured by
    `dmlgpu bench` are shown with the test results of the same adapter. Surveys of several cards also give their speeds
    side by side, and what differs between vendors.

    \b
    Examples:
      dmlgpu report lavapipe.jsonl nvidia.jsonl -o report.html
      dmlgpu report results.jsonl bench.jsonl -o report.html
      dmlgpu report h100.json.gz arc.json.gz -o cards.html
    """
    verb("report").report(files, output)


@app.command("report-bug")
def report_bug(
    *,
    case: Annotated[str, subject("CASE", "Name of a case of `dmlgpu test` that fails.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Output folder; created if it does not exist.")
    ],
    adapter: Adapter = None,
    record: Annotated[
        Path | None,
        typer.Option(
            "--run", metavar="FILE.jsonl", help="File of `dmlgpu test -o` with the failure: selects its adapter."
        ),
    ] = None,
    keep_size: Annotated[
        bool, typer.Option("--keep-size", help="Do not look for a smaller case that fails as well.")
    ] = False,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", min=0.1, max=MAX_SECONDS, callback=finite, help="Timeout of a run, in seconds."),
    ] = 60.0,
    passing: Annotated[
        bool, typer.Option("--passing", help="Write the folder even if the case passes on this adapter.")
    ] = False,
    precise: Precise = False,
    no_quirks: NoQuirks = False,
) -> None:
    """Write a failing case as a folder for the developers of the driver.

    The folder runs without dmlgpu: kernels in WGSL and SPIR-V, contents of buffers, expected and actual outputs,
    runners in Python and C, an Amber script, a web page, and a README that says how to see it fail and where to report
    it. The case is reduced first, as long as it fails in the same way. Exit code 1 if it passes. See
    docs/is-it-my-driver.md.

    \b
    Examples:
      dmlgpu report-bug gather_nd1-float32-uint32-2x3-packed-s0 -o bug
      dmlgpu report-bug gather_nd1-float32-uint32-2x3-packed-s0 -o bug --run results.jsonl
    """
    fails = verb("report_bug").report_bug(
        case,
        output,
        adapter,
        record,
        reduce=not keep_size,
        time_limit=time_limit,
        passing=passing,
        precise=precise,
    )
    if not (fails or passing):
        raise typer.Exit(1)


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="File written by `dmlgpu test -o`.", metavar="BEFORE.jsonl")],
    after: Annotated[Path, typer.Argument(help="File of a later run, or of another machine.", metavar="AFTER.jsonl")],
    as_json: Json = False,
) -> None:
    """Compare two runs of `dmlgpu test`; regressions come first.

    Exit code 1 if a case that passed before now fails, is unsupported, or is missing.

    \b
    Examples:
      dmlgpu compare mesa-25.0.jsonl mesa-25.1.jsonl
      dmlgpu compare before.jsonl after.jsonl --json | jq '.pairs[].changes[] | select(.kind == "regression").case'
    """
    if not verb("compare").compare(before, after, as_json):
        raise typer.Exit(1)


app.add_typer(bench_app.app, name="bench")
app.add_typer(demo_app.app, name="demo")
