"""The verbs of ``dmlgpu bench``, their options and help texts. Other words are what ``run`` measures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import (
    MAX_SECONDS,
    Drivers,
    Json,
    Sizes,
    Types,
    complete_measured,
    finite,
    finite_or_none,
    shape_option,
    subject,
)

DEFAULT = "run"


class DefaultGroup(TyperGroup):
    """A group of verbs whose DEFAULT is meant where none of them is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default verb before arguments that begin with none."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=DefaultGroup, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Measure operators, cases, graphs and models on adapters, each beside what the device can do at most.

    `dmlgpu bench GEMM` is `dmlgpu bench run GEMM`.

    \b
    Examples:
      dmlgpu bench GEMM
      dmlgpu bench compare before.jsonl after.jsonl
    """


@app.command()
def run(
    *,
    what: Annotated[list[str], subject("OPERATOR|CASE|MODEL|KERNEL|SUITE", "What to measure.", complete_measured)],
    sizes: Sizes = None,
    types: Types = None,
    layouts: Annotated[
        list[str] | None,
        typer.Option("--layout", "-l", metavar="LAYOUTS", help="packed, strided, padded, transposed, channels-last."),
    ] = None,
    schedules: Annotated[bool, typer.Option("--schedules", help="Every schedule there is, side by side.")] = False,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", metavar="NAMES", help="These schedules beside the one that is chosen."),
    ] = None,
    shapes: Annotated[list[str] | None, shape_option("An input's sizes, of ONNX models; repeatable.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SIZES:TYPE", help="What a kernel's binding reads, in order; or FILE.npy."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="SIZES:TYPE", help="What a kernel's binding writes, in order; else as -o."),
    ] = None,
    uniforms: Annotated[
        list[str] | None,
        typer.Option("--uniform", metavar="NAME=VALUES", help="A kernel's uniform: n=1024, or fields: p=1024u,0.5f."),
    ] = None,
    defines: Annotated[
        list[str] | None, typer.Option("--define", metavar="NAME=VALUE", help="A kernel's override; repeatable.")
    ] = None,
    grid: Annotated[
        str, typer.Option("--grid", metavar="X,Y,Z", help="Workgroups; else a thread per element of the first output.")
    ] = "",
    entry_point: Annotated[str, typer.Option("--entry-point", metavar="NAME", help="A kernel's function.")] = "",
    references: Annotated[
        list[str] | None,
        typer.Option(
            "--reference", metavar="EXPRESSION", help="What a kernel computes, in NumPy: 'a + b', or 'c=a + b'."
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance", min=0.0, max=1e6, callback=finite_or_none, help="Share of a kernel's largest result."
        ),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            "--adapter", "-a", metavar="NAME", help="Part of an adapter's name, or its number; 'all'; repeatable."
        ),
    ] = None,
    drivers: Drivers = None,
    precision: Annotated[
        float,
        typer.Option(
            "--precision", min=0.0001, max=1.0, callback=finite, help="Half the interval's width that is narrow enough."
        ),
    ] = 0.03,
    budget: Annotated[
        float,
        typer.Option("--budget", min=0.0, max=MAX_SECONDS, callback=finite, help="Seconds for each thing, at most."),
    ] = 5.0,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", min=0.1, max=MAX_SECONDS, callback=finite, help="Seconds for one answer."),
    ] = 300.0,
    ceilings: Annotated[
        bool, typer.Option("--ceilings", help="Measure again what the adapters can do at most.")
    ] = False,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare results with the reference.")] = True,
    numpy: Annotated[bool, typer.Option("--numpy", help="Measure plain NumPy beside, and the break-even.")] = False,
    peers: Annotated[
        list[str] | None,
        typer.Option("--peer", metavar="NAMES", help="These peers beside a suite's rows, in place of all."),
    ] = None,
    peer_envs: Annotated[
        list[str] | None,
        typer.Option("--peer-env", metavar="NAME=PATH", help="The Python, or its environment, of a peer; repeatable."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png|.svg", help="Draw a roofline, and times over the sizes of a range."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE.jsonl", help="Write everything down as JSON Lines.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure until the times are sure, and say how sure: of compiling, of the first dispatch, and of those after it.

    Exit code 1: something could not be measured, a result is wrong, or what a suite aims at is missed.

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
      dmlgpu bench add.wgsl --input 1M:float32 --input 1M:float32 --output 1M:float32 --reference 'a + b'
    """
    from dmlgpu.bench import specs  # noqa: PLC0415 - the help needs none of it
    from dmlgpu.bench.aims import aims_of  # noqa: PLC0415 - likewise
    from dmlgpu.bench.peers.contestants import compare_peers, parse_environments  # noqa: PLC0415 - likewise
    from dmlgpu.bench.samples import Patience  # noqa: PLC0415 - likewise
    from dmlgpu.bench.specs import combinations, parse_sizes  # noqa: PLC0415 - likewise

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
        tuple(defines or ()),
        tuple(references or ()),
        grid,
        entry_point,
        tolerance,
    )
    request = module.BenchRequest(
        verb("subjects").find_workloads([specs.BenchSpec(word, *shared, kernel=kernel) for word in what]),
        tuple(adapter or ()),
        tuple(drivers or ()),
        Patience(precision, budget),
        time_limit,
        ceilings=ceilings,
        checked=check,
        numpy=numpy,
        peers=specs.split_words(peers or []),
        interpreters=parse_environments(peer_envs or []),
        plot=plot,
        output=output or (Path(written[-1]) if written else None),
        as_json=as_json,
        command=("dmlgpu", *sys.argv[1:]),
    )
    measured = module.bench(request)
    met = all(peer.is_met for peer in compare_peers(measured)) and all(aim.is_met for aim in aims_of(measured))
    if not measured.is_good or not met:
        raise typer.Exit(1)


@app.command()
def compare(
    *,
    before: Annotated[Path, typer.Argument(help="What `dmlgpu bench -o` wrote.", metavar="BEFORE.jsonl")],
    after: Annotated[Path, typer.Argument(help="The same, later or elsewhere.", metavar="AFTER.jsonl")],
    threshold: Annotated[
        float,
        typer.Option("--threshold", min=0.0, max=100.0, callback=finite, help="The least share that counts as change."),
    ] = 0.1,
    alpha: Annotated[
        float,
        typer.Option(
            "--alpha", min=1e-12, max=1.0, callback=finite, help="The chance of calling anything changed that is not."
        ),
    ] = 0.01,
    strict: Annotated[
        bool, typer.Option("--strict", help="What was measured on a busy machine counts as slower, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Tell what became slower or faster between two runs, beyond what chance explains (Mann-Whitney, Holm).

    Exit code 1: something is slower, computed wrong, or not measured any more.

    \b
    Examples:
      dmlgpu bench compare before.jsonl after.jsonl
      dmlgpu bench compare main.jsonl branch.jsonl --threshold 0.05
    """
    if not verb("bench").bench_compare(before, after, threshold, alpha, strict=strict, as_json=as_json):
        raise typer.Exit(1)
