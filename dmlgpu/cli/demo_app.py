"""The verbs of ``dmlgpu demo``: their options and help texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import Adapter

app = typer.Typer(no_args_is_help=True)

Target = Annotated[Path, typer.Option("--output", "-o", metavar="FILE.png", help="The picture.")]


@app.callback()
def root() -> None:
    """Show what DirectML's operators do on this machine: read text, train a network, paint with a palette.

    \b
    Examples:
      dmlgpu demo ocr
      dmlgpu demo train
      dmlgpu demo palette
    """


@app.command()
def ocr(
    *,
    image: Annotated[
        Path | None,
        typer.Argument(metavar="IMAGE", help="Any picture; left out: one with lines in two fonts.", show_default=False),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", "-s", min=32, max=4096, help="Lines are looked for with this longer side, at most.")
    ] = 960,
    output: Target = Path("ocr.png"),
    adapter: Adapter = None,
) -> None:
    """Find and read the text in a picture with three ONNX models, PP-OCRv4, computed by DirectML's operators.

    They are in the package rapidocr-onnxruntime. Where onnxruntime is installed, it reads the picture, too. Exit code
    1: it reads something else, or probabilities differ by more than 0.001.

    \b
    Examples:
      dmlgpu demo ocr
      dmlgpu demo ocr receipt.jpg --output read.png
      dmlgpu demo ocr --adapter vulkan
    """
    verb("demo_ocr").demo(image, output, adapter, longest_side=size)


@app.command()
def train(
    *,
    steps: Annotated[int, typer.Option("--steps", min=1, max=100_000, help="Batches that it learns from.")] = 500,
    batch: Annotated[int, typer.Option("--batch", "-b", min=2, max=1024, help="Images in a batch.")] = 64,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Picks held-out digits, batches and parameters to start from.")
    ] = 0,
    output: Target = Path("loss.png"),
    adapter: Adapter = None,
) -> None:
    """Train a network to read handwritten digits: forward, backward and ADAM are one graph of DirectML's operators.

    The digits are scikit-learn's, some of them held out. Where torch is installed, it trains the same network on the
    same batches. Exit code 1: its first losses differ by more than a thousandth.

    \b
    Examples:
      dmlgpu demo train
      dmlgpu demo train --steps 1000 --batch 128 --output loss.png
      dmlgpu demo train --adapter numpy --steps 50
    """
    verb("demo_train").demo(output, adapter, steps=steps, batch=batch, seed=seed)


@app.command()
def palette(
    *,
    photo: Annotated[
        Path | None,
        typer.Argument(metavar="PHOTO", help="Any picture; left out: an astronaut's portrait.", show_default=False),
    ] = None,
    colors: Annotated[int, typer.Option("--colors", "-c", min=2, max=64, help="Colours in the palette.")] = 16,
    iterations: Annotated[int, typer.Option("--iterations", "-i", min=0, max=100, help="Rounds of k-means.")] = 8,
    size: Annotated[int, typer.Option("--size", "-s", min=16, max=2048, help="Longer side in pixels, at most.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Picks the colours to start from.")] = 0,
    output: Target = Path("palette.png"),
    adapter: Adapter = None,
) -> None:
    """Reduce a photograph to a palette with DirectML operators, each dispatch checked against NumPy.

    \b
    Examples:
      dmlgpu demo palette
      dmlgpu demo palette holiday.jpg --colors 6 --output holiday.png
      dmlgpu demo palette --adapter numpy
    """
    verb("demo_palette").demo(photo, output, adapter, size=size, colors=colors, iterations=iterations, seed=seed)
