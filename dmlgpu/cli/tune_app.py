"""The verb ``dmlgpu tune``, its options and help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import MAX_SECONDS, Adapter, Sizes, Types, finite, subject


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
        module.tune(module.asked(what or [], sizes or [], types or []), adapter, budget, record)
