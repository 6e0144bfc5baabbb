"""Commands of ``dmlgpu bench``: options and help. ``run`` is the default command."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import (
    MAX_SECONDS,
    Defines,
    Drivers,
    EntryPoint,
    Json,
    NoQuirks,
    Sizes,
    Types,
    complete_measured,
    complete_profiles,
    finite,
    finite_or_none,
    shape_option,
    subject,
)

DEFAULT = "run"


class DefaultGroup(TyperGroup):
    """A group whose default command is DEFAULT."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command if the arguments start with no command."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=DefaultGroup, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Benchmark operators, graphs, models and kernels.

    Times come with confidence intervals and the fraction of the roofline reached. `dmlgpu bench GEMM` is short for
    `dmlgpu bench run GEMM`.

    \b
    Examples:
      dmlgpu bench GEMM
      dmlgpu bench compiled GEMM --family navi31
      dmlgpu bench compare before.jsonl after.jsonl
    """


@app.command()
def run(
    *,
    what: Annotated[
        list[str] | None, subject("OPERATOR|CASE|MODEL|KERNEL|SUITE", "What to benchmark.", complete_measured)
    ] = None,
    sizes: Sizes = None,
    types: Types = None,
    layouts: Annotated[
        list[str] | None,
        typer.Option(
            "--layout", "-l", metavar="LAYOUTS", help="Layouts: packed, strided, padded, transposed, channels-last."
        ),
    ] = None,
    schedules: Annotated[bool, typer.Option("--schedules", help="Compare all schedules.")] = False,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", metavar="NAMES", help="Compare these schedules with the chosen one."),
    ] = None,
    shapes: Annotated[list[str] | None, shape_option("Shape of an input of an ONNX model; repeatable.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SIZES:TYPE", help="Kernel: next input binding; or FILE.npy. Repeatable."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="SIZES:TYPE", help="Kernel: next output binding; for others, same as -o."),
    ] = None,
    uniforms: Annotated[
        list[str] | None,
        typer.Option(
            "--uniform", metavar="NAME=VALUES", help="Kernel: a uniform, n=1024, or its fields, p=1024u,0.5f."
        ),
    ] = None,
    defines: Defines = None,
    grid: Annotated[
        str,
        typer.Option(
            "--grid", metavar="X,Y,Z", help="Kernel: workgroups; defaults to a thread per element of the first output."
        ),
    ] = "",
    entry_point: EntryPoint = "",
    references: Annotated[
        list[str] | None,
        typer.Option(
            "--reference", metavar="EXPRESSION", help="Kernel: expected result in NumPy, 'a + b' or 'c=a + b'."
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="OPERATOR|CASE",
            help="Kernel: measure this in turn with it, with the sizes of -s; repeatable.",
            autocompletion=complete_measured,
        ),
    ] = None,
    flops: Annotated[
        str,
        typer.Option(
            "--flops",
            metavar="EXPRESSION",
            help="Kernel: its floating-point operations, '2*m*n*k' of overrides and uniforms, or 'a.size'.",
        ),
    ] = "",
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance",
            min=0.0,
            max=1e6,
            callback=finite_or_none,
            help="Kernel: tolerance, relative to the largest result.",
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter", "-a", metavar="NAME", help="Part of an adapter's name, its index, or 'all'; repeatable."
        ),
    ] = None,
    drivers: Drivers = None,
    no_quirks: NoQuirks = False,
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            min=0.0001,
            max=1.0,
            callback=finite,
            help="Target half-width of the confidence interval, relative to the median.",
        ),
    ] = 0.03,
    budget: Annotated[
        float,
        typer.Option("--budget", min=0.0, max=MAX_SECONDS, callback=finite, help="Maximum seconds per measurement."),
    ] = 5.0,
    time_limit: Annotated[
        float,
        typer.Option(
            "--time-limit", min=0.1, max=MAX_SECONDS, callback=finite, help="Timeout of a child process, in seconds."
        ),
    ] = 300.0,
    cache: Annotated[
        str,
        typer.Option("--cache", metavar="cold|warm", help="Measure with buffers of 256 MB in turn, or with one set."),
    ] = "",
    ceilings: Annotated[bool, typer.Option("--ceilings", help="Measure the rooflines of the adapters again.")] = False,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Check results against the reference.")] = True,
    numpy: Annotated[bool, typer.Option("--numpy", help="Also measure NumPy, and print the break-even size.")] = False,
    peers: Annotated[
        list[str] | None,
        typer.Option("--peer", metavar="NAMES", help="Peers to compare a suite with; defaults to all."),
    ] = None,
    peer_envs: Annotated[
        list[str] | None,
        typer.Option(
            "--peer-env", metavar="NAME=PATH", help="Python interpreter or environment of a peer; repeatable."
        ),
    ] = None,
    predict: Annotated[
        str,
        typer.Option(
            "--predict", metavar="CARD", help="Predict times on a GPU instead of measuring; 'list' prints the cards."
        ),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png|.svg", help="Plot the roofline, and time against size."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE.jsonl", help="Write the measurements as JSON Lines.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Benchmark compilation, first dispatch and later dispatches.

    Measures until the confidence interval is narrow enough (--precision) or the time is up (--budget). Exit code 1 if
    something cannot be measured, a result is wrong, or a suite's target is missed.

    \b
    Examples:
      dmlgpu bench GEMM
      dmlgpu bench GEMM -s m=k=n=64..4096 -t float16,float32
      dmlgpu bench CONVOLUTION --schedules
      dmlgpu bench ELEMENT_WISE_ADD -s elements=1K..64M --drivers all
      dmlgpu bench GEMM -s m=k=n=64..2048 --numpy --plot gemm.svg
      dmlgpu bench families -o before.jsonl
      dmlgpu bench scaling:GEMM --numpy
      dmlgpu bench peers --peer-env tinygrad=other/.venv
      dmlgpu bench my_rows.toml --budget 20 --precision 0.01
      dmlgpu bench model.onnx --shape x=1x3x48x192 --adapter 0
      dmlgpu bench families --predict "RX 7900 XTX"
      dmlgpu bench add.wgsl --input 1M:float32 --input 1M:float32 --output 1M:float32 --reference 'a + b'
    """
    from dmlgpu.bench import specs  # noqa: PLC0415 - the help needs none of it
    from dmlgpu.bench.aims import aims_of  # noqa: PLC0415 - likewise
    from dmlgpu.bench.peers.contestants import compare_peers, parse_environments  # noqa: PLC0415 - likewise
    from dmlgpu.bench.samples import Patience  # noqa: PLC0415 - likewise
    from dmlgpu.bench.specs import combinations, parse_sizes  # noqa: PLC0415 - likewise

    if predict == "list":
        verb("predict").list_cards(as_json=as_json)
        return
    if not what:
        raise typer.BadParameter("give an operator, a case, a model, a kernel or a suite")
    if cache not in ("", "cold", "warm"):
        raise typer.BadParameter(f"--cache must be cold or warm, got {cache!r}")
    module = verb("bench")
    # A kernel's --output is a buffer; a file's, as of other subjects, is that of the results.
    written = [text for text in outputs or [] if not specs.is_kernel_output(what, text)]
    named = ("all",) if schedules else specs.split_words(schedule or [])
    shared = (
        tuple(combinations(parse_sizes(sizes or []))),
        specs.parse_types(types or []),
        specs.split_words(layouts or []),
        named,
        dict(map(specs.parse_shape, shapes or [])),
    )
    kernel = specs.KernelOptions(
        tuple(inputs or ()),
        tuple(text for text in outputs or [] if specs.is_kernel_output(what, text)),
        tuple(uniforms or ()),
        (),
        tuple(references or ()),
        grid,
        entry_point,
        tolerance,
        flops,
    )
    kernels = [replace(kernel, defines=chosen) for chosen in specs.define_combinations(defines or [])]
    if against and not all(map(specs.is_kernel_file, what)):
        raise typer.BadParameter("--against compares kernels in WGSL, FILE.wgsl")
    others = verb("subjects").find_workloads([specs.BenchSpec(word, *shared, cache=cache) for word in against or ()])
    if against:
        shared = (({},), (), (), named, {})
    request = module.BenchRequest(
        verb("subjects").find_workloads(
            [specs.BenchSpec(word, *shared, kernel=kernel, cache=cache) for word in what for kernel in kernels]
        ),
        tuple(adapter or ()),
        tuple(drivers or ()),
        Patience(precision, budget),
        time_limit,
        ceilings=ceilings,
        checked=check,
        numpy=numpy,
        against=tuple(subject.workload for subject in others),
        peers=specs.split_words(peers or []),
        interpreters=parse_environments(peer_envs or []),
        plot=plot,
        output=output or (Path(written[-1]) if written else None),
        as_json=as_json,
        command=("dmlgpu", *sys.argv[1:]),
    )
    if predict:
        if not verb("predict").bench_predict(predict, request):
            raise typer.Exit(1)
        return
    measured = module.bench(request)
    met = all(peer.is_met for peer in compare_peers(measured)) and all(aim.is_met for aim in aims_of(measured))
    if not measured.is_good or not met:
        raise typer.Exit(1)


@app.command()
def compiled(
    *,
    what: Annotated[
        list[str] | None,
        subject("OPERATOR|CASE|MODEL|KERNEL|SUITE", "What to compile.", complete_measured),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family",
            "-f",
            metavar="NAME",
            help="GPU family, as Mesa's RADV names it; repeatable. Defaults to navi31, navi21, gfx1201, vega10.",
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            "-p",
            metavar="quick|standard|full",
            help="Also compile all operator cases of this profile of `dmlgpu test`.",
            autocompletion=complete_profiles,
        ),
    ] = "",
    sizes: Sizes = None,
    types: Types = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", metavar="NAMES", help="Compile under these schedules."),
    ] = None,
    entry_point: EntryPoint = "",
    defines: Defines = None,
    shapes: Annotated[list[str] | None, shape_option("Shape of an input of an ONNX model; repeatable.")] = None,
    listing: Annotated[
        Path | None,
        typer.Option("--listing", metavar="FOLDER", help="Write the WGSL and the GPU's instructions of each kernel."),
    ] = None,
    validation: Annotated[
        bool,
        typer.Option("--validate", help="Also validate the kernels as SPIR-V, and translated to MSL and HLSL."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.jsonl", help="Write the statistics for `dmlgpu bench compare`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile kernels for AMD GPUs, without a GPU, and print statistics of the compiled code.

    Per kernel: vector registers, waves per SIMD unit, shared memory and code in bytes, instructions by kind, and the
    length of the busiest loop with its share of multiply-adds (FMA). --json and -o have all statistics. Needs Linux
    with Mesa's RADV and a C compiler; see docs/compiled.md. Exit code 1 if a kernel does not compile, spills
    registers or is invalid.

    \b
    Examples:
      dmlgpu bench compiled GEMM CONVOLUTION
      dmlgpu bench compiled GEMM -s m=k=n=1024,4096 -t float16 --family navi31
      dmlgpu bench compiled families --profile quick -o before.jsonl
      dmlgpu bench compiled kernel.wgsl --define TILE=16 --listing kernel
      dmlgpu bench compiled GEMM --family navi31 --validate
      dmlgpu bench compare before.jsonl after.jsonl
    """
    from dmlgpu.bench import specs  # noqa: PLC0415 - the help needs none of it

    if not what and not profile:
        raise typer.BadParameter("give an operator, a case, a model, a kernel or a suite, or --profile")
    shared = (
        tuple(specs.combinations(specs.parse_sizes(sizes or []))),
        specs.parse_types(types or []),
        (),
        specs.split_words(schedule or []),
        dict(map(specs.parse_shape, shapes or [])),
    )
    rows = [
        specs.BenchSpec(word, *shared, kernel=specs.KernelOptions(defines=chosen, entry_point=entry_point))
        for word in what or ()
        for chosen in specs.define_combinations(defines or [])
    ]
    workloads = verb("subjects").compiled_workloads(rows, profile)
    if not verb("bench").bench_compiled(
        workloads, tuple(family or ()), output=output, listing=listing, validation=validation, as_json=as_json
    ):
        raise typer.Exit(1)


@app.command()
def compare(
    *,
    before: Annotated[Path, typer.Argument(help="File written by `dmlgpu bench -o`.", metavar="BEFORE.jsonl")],
    after: Annotated[Path, typer.Argument(help="File of a later run, or of another machine.", metavar="AFTER.jsonl")],
    threshold: Annotated[
        float,
        typer.Option("--threshold", min=0.0, max=100.0, callback=finite, help="Smallest relative change to report."),
    ] = 0.1,
    alpha: Annotated[
        float,
        typer.Option(
            "--alpha", min=1e-12, max=1.0, callback=finite, help="Probability of a false positive, over all rows."
        ),
    ] = 0.01,
    strict: Annotated[bool, typer.Option("--strict", help="Also count slowdowns measured on a busy machine.")] = False,
    as_json: Json = False,
) -> None:
    """Compare two benchmark runs for significant changes.

    Significance by the Mann-Whitney test with Holm's correction. Exit code 1 if something is slower, wrong, or no
    longer measured.

    Files of `dmlgpu bench --predict CARD -o` are compared with each other only, by --threshold.

    Files of `dmlgpu bench compiled -o` are compared exactly. Exit code 1 if a kernel no longer compiles, spills more
    registers, has more than 128 vector registers and more than before, or loses multiply-add share in its busiest loop.

    \b
    Examples:
      dmlgpu bench compare before.jsonl after.jsonl
      dmlgpu bench compare main.jsonl branch.jsonl --threshold 0.05
    """
    predict = verb("predict")
    if predict.are_predictions(before, after):
        good = predict.compare_predicted(before, after, threshold, as_json=as_json)
    else:
        good = verb("bench").bench_compare(before, after, threshold, alpha, strict=strict, as_json=as_json)
    if not good:
        raise typer.Exit(1)
