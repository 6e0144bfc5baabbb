"""The OCR models of the package rapidocr-onnxruntime on a picture with text, on dmlgpu and on onnxruntime.

Of each model, how much of a run is spent in Python, and the ratios to onnxruntime's providers.

    python benchmarks/models.py llvmpipe --picture 640x480 --peers webgpu cpu

Pictures go in and results come out as arrays on both sides; results agree within 1e-3 or the program ends.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from native_time import python_time
from numpy.typing import NDArray

from dmlgpu.bench.ratios import ratio
from dmlgpu.frontends.onnx import load

Picture = NDArray[np.float32]

MODELS = {
    "detection": ("ch_PP-OCRv4_det_infer.onnx", None),
    "direction": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192)),
    "recognition": ("ch_PP-OCRv4_rec_infer.onnx", (48, 320)),
}
"""Files, and the height and width that a model wants; None for the picture's."""

TOLERANCE = 1e-3

MAX_PYTHON = 0.05
"""Share of a run."""

REST = 0.2
"""Seconds before each call, in which threads of the one before stop spinning."""


def picture(height: int, width: int) -> Picture:
    """A line of text across a picture, in the range of the models' inputs."""
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415

    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(min(height * 3 // 4, 36))
    ImageDraw.Draw(image).text((4, height // 2), "DirectML on every GPU", "black", font, "lm")
    pixels = np.asarray(image, np.float32) / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]


def model_file(name: str) -> Path:
    """Where the package keeps a model."""
    import rapidocr_onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415

    return Path(rapidocr_onnxruntime.__file__).parent / "models" / name


def theirs(path: Path, provider: str) -> Callable[[Picture], Picture]:
    """Return a model on a provider of onnxruntime's."""
    import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if provider == "webgpu":
        from dmlgpu.bench.peers.programs.webgpu_provider import devices  # noqa: PLC0415

        options.add_provider_for_devices(devices(), {})
    session: Any = onnxruntime.InferenceSession(str(path), options)
    name = session.get_inputs()[0].name
    return lambda image: session.run(None, {name: image})[0]  # type: ignore[no-any-return]


def on(image: Picture, model: Callable[[Picture], Picture]) -> Callable[[int], Picture]:
    """Return a call of a model on a picture."""
    return lambda _: model(image)


def main() -> None:
    """Measure the models of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter")
    parser.add_argument("--picture", default="640x480", help="width x height")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--peers", nargs="*", default=["webgpu", "cpu"])
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    width, height = map(int, options.picture.split("x"))
    for label in options.models:
        file, sides = MODELS[label]
        path, image = model_file(file), picture(*(sides or (height, width)))
        start = time.perf_counter()
        session = load(path, options.adapter)
        (name,), (output,) = ([declared.name for declared in side] for side in (session.inputs, session.outputs))

        def ours(image: Picture, session: Any = session, name: str = name, output: str = output) -> Picture:
            return session.run({name: image})[output]  # type: ignore[no-any-return]

        pictures = ours(image)
        print(f"{label} {image.shape[3]}x{image.shape[2]}: loaded and run in {time.perf_counter() - start:.2f} s")
        spent = python_time(lambda image=image, ours=ours: ours(image), options.rounds)
        print(f"  {'met   ' if spent.share <= MAX_PYTHON else 'MISSED'} {spent}", flush=True)
        for provider in options.peers:
            other = theirs(path, provider)
            np.testing.assert_allclose(pictures, other(image), rtol=0, atol=TOLERANCE)
            measured = ratio(on(image, ours), on(image, other), options.rounds, rest=REST)
            print(f"  ours / {provider}: {measured}", flush=True)


if __name__ == "__main__":
    main()
