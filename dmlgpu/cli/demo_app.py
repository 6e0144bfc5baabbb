"""Commands of ``dmlgpu demo``: options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dmlgpu.cli.main import verb
from dmlgpu.cli.options import Adapter

app = typer.Typer(no_args_is_help=True)

Target = Annotated[Path, typer.Option("--output", "-o", metavar="FILE.png", help="Output image.")]


@app.callback()
def root() -> None:
    """Run a demo: read text, train a network, quantize colors, generate text.

    \b
    Examples:
      dmlgpu demo ocr
      dmlgpu demo train
      dmlgpu demo palette
      dmlgpu demo generate
    """


@app.command()
def ocr(
    *,
    image: Annotated[
        Path | None,
        typer.Argument(
            metavar="IMAGE", help="Image file; defaults to a sample with text in two fonts.", show_default=False
        ),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", "-s", min=32, max=4096, help="Maximum longer side for text detection, in pixels.")
    ] = 960,
    output: Target = Path("ocr.png"),
    adapter: Adapter = None,
) -> None:
    """Find and read the text in an image (PP-OCRv4, three ONNX models).

    The models come with the package rapidocr-onnxruntime. If onnxruntime is installed, it reads the image as well.
    The exit code is 1 if a recognized line differs, or a probability differs by more than 0.001.

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
    steps: Annotated[int, typer.Option("--steps", min=1, max=100_000, help="Number of batches.")] = 500,
    batch: Annotated[int, typer.Option("--batch", "-b", min=2, max=1024, help="Batch size.")] = 64,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Seed for held-out digits, batches and initial parameters.")
    ] = 0,
    with_torch: Annotated[
        bool, typer.Option("--torch", help="Train with PyTorch's modules, autograd and optimizer on its device 'dml'.")
    ] = False,
    output: Target = Path("loss.png"),
    adapter: Adapter = None,
) -> None:
    """Train a network to read handwritten digits.

    Forward pass, backward pass and ADAM are one graph of DirectML's operators. The digits are scikit-learn's; some are
    held out. If torch is installed, it trains the same network on the same batches. Exit code 1 if the first losses
    differ by more than a thousandth.

    \b
    Examples:
      dmlgpu demo train
      dmlgpu demo train --steps 1000 --batch 128 --output loss.png
      dmlgpu demo train --adapter numpy --steps 50
      dmlgpu demo train --torch
    """
    verb("demo_train").demo(output, adapter, steps=steps, batch=batch, seed=seed, with_torch=with_torch)


@app.command()
def palette(
    *,
    photo: Annotated[
        Path | None,
        typer.Argument(metavar="PHOTO", help="Image file; defaults to a portrait of an astronaut.", show_default=False),
    ] = None,
    colors: Annotated[int, typer.Option("--colors", "-c", min=2, max=64, help="Number of colors.")] = 16,
    iterations: Annotated[int, typer.Option("--iterations", "-i", min=0, max=100, help="Iterations of k-means.")] = 8,
    size: Annotated[int, typer.Option("--size", "-s", min=16, max=2048, help="Maximum longer side, in pixels.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for the initial colors.")] = 0,
    output: Target = Path("palette.png"),
    adapter: Adapter = None,
) -> None:
    """Reduce a photograph to a palette of colors by k-means.

    Every dispatch is checked against NumPy. Exit code 1 if one differs.

    \b
    Examples:
      dmlgpu demo palette
      dmlgpu demo palette holiday.jpg --colors 6 --output holiday.png
      dmlgpu demo palette --adapter numpy
    """
    verb("demo_palette").demo(photo, output, adapter, size=size, colors=colors, iterations=iterations, seed=seed)


@app.command()
def generate(
    *,
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="Language model; defaults to a tiny one with random weights.", show_default=False
        ),
    ] = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=2, max=400, help="Number of tokens.")] = 64,
    layers: Annotated[int, typer.Option("--layers", min=1, max=64, help="Layers of the tiny model.")] = 2,
    width: Annotated[int, typer.Option("--width", min=64, max=8192, help="Width of the tiny model.")] = 256,
    adapter: Adapter = None,
) -> None:
    """Generate text with a language model, and show the speed.

    Without MODEL, the demo makes a model with random 4-bit weights and a tokenizer of its own, whose text is
    meaningless.

    \b
    Examples:
      dmlgpu demo generate
      dmlgpu demo generate --layers 4 --width 512 --adapter vulkan
      dmlgpu demo generate phi-3-mini
    """
    verb("demo_generate").demo(model, adapter, tokens=tokens, layers=layers, width=width)
