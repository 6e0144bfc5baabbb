"""The verbs of the command line, their options and help texts. The work is done by the modules named like the verbs."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dmlgpu import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Boxes and colours on a terminal, plain text in a pipe.
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)

Adapter = Annotated[
    str | None,
    typer.Option(
        "--adapter", "-a", envvar="DMLGPU_ADAPTER", metavar="NAME", help="Part of an adapter's name, or its number."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _verb(name: str) -> Any:
    # Imported when the verb runs: `dmlgpu ops` need not load a GPU driver, nor `dmlgpu devices` an image library.
    return importlib.import_module(f"dmlgpu.cli.{name}")


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

    Exit codes: 0 done; 1 it failed, or a result is wrong; 2 the command line or an input file is wrong.
    """


@app.command()
def devices(
    adapter: Annotated[
        str | None, typer.Option("--adapter", "-a", metavar="NAME", help="Show only this adapter.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the adapters: what they are, their features, limits and data types.

    \b
    Examples:
      dmlgpu devices
      dmlgpu devices --adapter vulkan
      dmlgpu devices --json | jq '.[].name'
    """
    _verb("devices").show(adapter, as_json)


@app.command()
def ops(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One operator, such as gather_nd1.", show_default=False)
    ] = None,
    implemented: Annotated[bool, typer.Option("--implemented", help="Only what dmlgpu implements.")] = False,
    as_json: Json = False,
) -> None:
    """List DirectML's operators, or tell all about one.

    \b
    Examples:
      dmlgpu ops
      dmlgpu ops --implemented
      dmlgpu ops gather_nd1
      dmlgpu ops --json | jq '.[] | select(.implemented | not).name'
    """
    _verb("ops").show(name, implemented, as_json)


@app.command()
def run(
    model: Annotated[Path, typer.Argument(help="A model in DxDispatch's JSON format.", metavar="MODEL.json")],
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", metavar="DIR", help="Where files with relative paths go.")
    ] = None,
    adapter: Adapter = None,
) -> None:
    """Run a DxDispatch model: initialise, dispatch, print, write files.

    \b
    Examples:
      dmlgpu run model.json
      dmlgpu run model.json --output-dir results --adapter numpy
    """
    _verb("run").run(model, output_dir, adapter)


@app.command()
def demo(
    *,
    photo: Annotated[
        Path | None,
        typer.Argument(metavar="PHOTO", help="Any picture; left out: an astronaut's portrait.", show_default=False),
    ] = None,
    colors: Annotated[int, typer.Option("--colors", "-c", min=2, max=64, help="Colours in the palette.")] = 16,
    iterations: Annotated[int, typer.Option("--iterations", "-i", min=0, max=100, help="Rounds of k-means.")] = 8,
    size: Annotated[int, typer.Option("--size", "-s", min=16, max=2048, help="Longer side in pixels, at most.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Picks the colours to start from.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.png", help="The picture.")] = Path("demo.png"),
    adapter: Adapter = None,
) -> None:
    """Reduce a photograph to a palette with DirectML operators, each dispatch checked against NumPy.

    \b
    Examples:
      dmlgpu demo
      dmlgpu demo holiday.jpg --colors 6 --output holiday.png
      dmlgpu demo --adapter numpy
    """
    _verb("demo").demo(photo, output, adapter, size=size, colors=colors, iterations=iterations, seed=seed)
