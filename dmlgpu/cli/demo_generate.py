"""``dmlgpu demo generate``: the speed of a language model, by default of a tiny one with random weights."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from dmlgpu.cli.generate import load
from dmlgpu.cli.run import CompileStatus, frontend
from dmlgpu.common.errors import InvalidArgument, counted

PROMPT = "the banana has a banal panorama"

_HEAD = 64


def demo(model: Path | None, adapter: str | None, *, tokens: int, layers: int, width: int) -> None:
    """Generate text twice, the second time without compiling, and print the speed.

    Args:
        model: Folder or file of a model; None for one with random weights.
        adapter: Part of an adapter's name, or its index; None selects the default.
        tokens: Number of tokens.
        layers: Layers of the model with random weights.
        width: Its width, a multiple of 64.

    Raises:
        InvalidArgument: If the width is no multiple of 64.
        DmlError: As ``Generator.load`` and ``Generator.generate``.
    """
    if width % _HEAD:
        raise InvalidArgument(f"demo generate: --width must be a multiple of {_HEAD}, got {width}")
    frontend()
    if model is not None:
        _measure(model, adapter, tokens)
        return
    from dmlgpu.demo.language_model import DecoderSizes, write  # noqa: PLC0415 - an extra

    heads = width // _HEAD
    kv_heads = 2 if heads % 2 == 0 else 1
    feed_forward = -(-width * 11 // 4 // 32) * 32
    sizes = DecoderSizes(layers, heads, kv_heads, feed_forward=feed_forward, vocabulary=2000, context=512)
    with tempfile.TemporaryDirectory(prefix="dmlgpu-") as folder:
        write(Path(folder) / "random", sizes)
        description = f"{counted(layers, 'layer')} of width {width}, random 4-bit weights"
        print(f"no model is given: {description}; the text is meaningless", flush=True)
        _measure(Path(folder) / "random", adapter, tokens)


def _measure(model: Path, adapter: str | None, tokens: int) -> None:
    generator = load(model, adapter, None)
    with CompileStatus.shown():
        text = "".join(generator.generate(PROMPT, max_tokens=tokens))
    print(f"{PROMPT}{text}")
    print(f"first: {generator.statistics}")
    again = "".join(generator.generate(f"{PROMPT},", max_tokens=tokens))
    print(f"again: {generator.statistics}")
    if not again:
        print("the model ended its answer at once", file=sys.stderr)
