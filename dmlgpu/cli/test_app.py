"""The verb ``dmlgpu test``, its options and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmlgpu.cli import completion
from dmlgpu.cli.main import verb
from dmlgpu.cli.options import MAX_SECONDS, Drivers, Precise, Records, finite


def test(
    *,
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
            help="Only cases with this in their name, or matching * and ?, in any case. Repeated: one of them.",
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", "-p", help="quick, standard or full.", autocompletion=completion.profiles)
    ] = "quick",
    suite: Annotated[
        str, typer.Option("--suite", help="Which list of cases.", autocompletion=completion.suites)
    ] = "dmlgpu",
    output: Records = None,
    expectations: Annotated[
        list[Path] | None, typer.Option("--expectations", "-e", metavar="FILE.toml", help="Failures that are known.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-n", min=1, max=64, help="Processes at once.")] = 1,
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
    """Test whether adapters compute DirectML's operators right. Each case is compared with the NumPy reference.

    A case that hangs or crashes is recorded, and the run goes on. Exit code 1: something is not as expected.

    \b
    Examples:
      dmlgpu test
      dmlgpu test --adapter all --profile standard -n 2 -o results.jsonl
      dmlgpu test --drivers all -o results.jsonl
      dmlgpu test --drivers all --pairwise --profile full
      dmlgpu test -k gather_nd1 --profile full
      dmlgpu test -k softmax -k gemm
      dmlgpu test --precise -k convolution
      dmlgpu test -k gather_nd1-float32-uint32-2x3-packed-s0 --adapter 0
      dmlgpu test --browser -o results.jsonl
      dmlgpu test --scheduler tcp://10.0.0.1:8786 --profile full -o cluster.jsonl
    """
    request = verb("request").Request(
        adapters=tuple(adapter or ()),
        drivers=tuple(drivers or ()),
        suite=suite,
        profile=profile,
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
    if scheduler:
        passed = verb("cluster").test(request, scheduler, patience)
    else:
        passed = verb("pairwise").compare_adapters(request) if pairwise else verb("test").test(request)
    if not passed:
        raise typer.Exit(1)
