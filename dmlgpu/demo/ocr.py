"""Find and read text in an image with the PP-OCRv4 models, run by dmlgpu or onnxruntime. Needs the ``ocr`` extra."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from dmlgpu.common.errors import NotSupported
from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, SCALE, paste_rounded, write
from dmlgpu.demo.text_regions import (
    DIRECTION_WIDTH,
    Picture,
    Points,
    batches,
    boxes,
    bucket,
    cut,
    detection_input,
    line_width,
)
from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device

BLANK = 0
"""Class of no character, which also separates equal characters."""


def alphabet(metadata: str) -> tuple[str, ...]:
    """Return the characters of the classes from the model's metadata: one per line, then the space.

    The first class, blank, is the empty string.
    """
    return ("", *metadata.splitlines(), " ")


def decode(probabilities: NDArray[np.float32], characters: Sequence[str]) -> tuple[str, float]:
    """Return the most probable text and the mean probability of its characters.

    Args:
        probabilities: Per position along the line and class, {positions, classes}.
        characters: Characters of the classes.

    Returns:
        The character of each run of positions with the same most probable class, without blanks. The probability of an
            empty text is 0.
    """
    best = probabilities.argmax(axis=1)
    begins = np.append(True, best[1:] != best[:-1]) & (best != BLANK)
    text = "".join(characters[index] for index in best[begins])
    return text, float(probabilities.max(axis=1)[begins].mean()) if begins.any() else 0.0


Array = NDArray[np.float32]

PACKAGE = "rapidocr_onnxruntime"
FILES = {
    "detection": "ch_PP-OCRv4_det_infer.onnx",
    "direction": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "recognition": "ch_PP-OCRv4_rec_infer.onnx",
}


@dataclass(frozen=True)
class ModelCall:
    """One run of a model: input, output and seconds."""

    input: Array
    output: Array
    seconds: float


@dataclass
class OcrModel:
    """A model with one input and one output that records its runs."""

    compute: Callable[[Array], Array]
    calls: list[ModelCall] = field(default_factory=list)

    def __call__(self, array: Array) -> Array:
        """Run the model."""
        start = time.perf_counter()
        result = self.compute(array)
        self.calls.append(ModelCall(array, result, time.perf_counter() - start))
        return result


@dataclass(frozen=True)
class OcrModels:
    """Models of a reader.

    Attributes:
        detection: Maps an image {1, 3, height, width} to the probability of text per pixel, {1, 1, height, width}.
        direction: Maps lines {count, 3, 48, 192} to the probabilities of upright and upside-down text, {count, 2}.
        recognition: Maps lines {count, 3, 48, width} to the probabilities of characters, {count, width / 8, classes}.
        characters: Characters of the classes.
    """

    detection: OcrModel
    direction: OcrModel
    recognition: OcrModel
    characters: tuple[str, ...]

    @property
    def stages(self) -> dict[str, OcrModel]:
        """Models by name."""
        return {name: getattr(self, name) for name in FILES}

    def forget(self) -> None:
        """Discard recorded runs."""
        for model in self.stages.values():
            model.calls.clear()


def on_device(device: Device) -> OcrModels:
    """Return the models on a device of dmlgpu.

    Raises:
        NotSupported: If the package with the models is not installed.
    """
    return _models(lambda path: _ours(path, device))


def on_onnxruntime() -> OcrModels:
    """Return the models on onnxruntime's CPU provider.

    Raises:
        ModuleNotFoundError: If onnxruntime is not installed.
        NotSupported: If the package with the models is not installed.
    """
    import onnxruntime  # noqa: PLC0415  only to compare with

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3

    def theirs(path: Path) -> Callable[[Array], Array]:
        session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        name = session.get_inputs()[0].name
        return lambda array: session.run(None, {name: array})[0]

    return _models(theirs)


def _ours(path: Path, device: Device) -> Callable[[Array], Array]:
    session = load(path, device)
    (model_input,), (model_output,) = session.inputs, session.outputs
    return lambda array: session.run({model_input.name: array})[model_output.name]


def _models(make: Callable[[Path], Callable[[Array], Array]]) -> OcrModels:
    folder = models_folder()
    detection, direction, recognition = (OcrModel(make(folder / file)) for file in FILES.values())
    return OcrModels(detection, direction, recognition, _characters(folder / FILES["recognition"]))


def models_folder() -> Path:
    """Return the folder of the models, without importing the package, which would import onnxruntime.

    Raises:
        NotSupported: If the package is not installed, or is one without these models.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in () if spec is None else spec.submodule_search_locations or ():
        folder = Path(place) / "models"
        if all((folder / file).exists() for file in FILES.values()):
            return folder
    raise NotSupported(
        "demo ocr: the models are in the package rapidocr-onnxruntime, which is not installed: "
        "pip install 'dmlgpu[ocr]'; from Python 3.13 on: "
        "pip install --no-deps --ignore-requires-python 'rapidocr-onnxruntime>=1.4'"
    )


def _characters(path: Path) -> tuple[str, ...]:
    model = onnx.load(path, load_external_data=False)
    return alphabet(next(prop.value for prop in model.metadata_props if prop.key == "character"))


UPSIDE_DOWN = 0.9
"""Probability from which a line is rotated."""

MIN_PROBABILITY = 0.5
"""Minimum mean probability of the characters of a line."""

LONGEST_SIDE = 960
"""Maximum longer side of the image for detection, in pixels."""


@dataclass(frozen=True)
class TextLine:
    """A line of text.

    Attributes:
        text: The text.
        probability: Mean probability of its characters.
        corners: Clockwise from the top left, {4, 2}, in pixels of the image.
    """

    text: str
    probability: float
    corners: Points


def read_text(image: Image.Image, models: OcrModels, longest_side: int = LONGEST_SIDE) -> list[TextLine]:
    """Find and read the lines of text in an RGB image, in reading order."""
    scores = models.detection(detection_input(image, longest_side))
    corners = [box.corners for box in boxes(scores[0, 0], *image.size)]
    picture = np.asarray(image)
    lines = upright([cut(picture, corner) for corner in corners], models)
    texts = [("", 0.0)] * len(lines)
    for numbers, batch in batches(lines, [bucket(line_width(line)) for line in lines]):
        probabilities = models.recognition(batch)
        for row, index in enumerate(numbers):
            texts[index] = decode(probabilities[row], models.characters)
    read = [TextLine(text, probability, place) for (text, probability), place in zip(texts, corners, strict=True)]
    return [line for line in read if line.text and line.probability >= MIN_PROBABILITY]


def upright(lines: list[Picture], models: OcrModels) -> list[Picture]:
    """Return lines, with those rotated that the direction model classifies as upside down."""
    turned = list(lines)
    for numbers, batch in batches(lines, [DIRECTION_WIDTH] * len(lines)):
        probabilities = models.direction(batch)
        for row, index in enumerate(numbers):
            if probabilities[row, 1] > UPSIDE_DOWN:
                turned[index] = np.rot90(lines[index], 2)
    return turned


TOLERANCE = 1e-3
"""Allowed difference of probabilities: a hundred layers sum in different orders."""


@dataclass(frozen=True)
class OcrComparison:
    """Two readings of one image.

    Attributes:
        lines: Lines read by the other models.
        same: Whether all recognized lines are equal.
        seconds: Times of the other models' second runs, by stage.
        differences: Largest difference of probabilities for equal inputs, by stage.
    """

    lines: Sequence[TextLine]
    same: bool
    seconds: Mapping[str, float]
    differences: Mapping[str, float]

    @property
    def ok(self) -> bool:
        """Whether all lines are equal and all probabilities are within tolerance."""
        return self.same and all(difference <= TOLERANCE for difference in self.differences.values())


def compare(
    image: Image.Image, lines: Sequence[TextLine], models: OcrModels, others: OcrModels, longest_side: int
) -> OcrComparison:
    """Read an image with other models, and compare.

    Args:
        image: RGB image.
        lines: Lines read by ``models``.
        models: Models with recorded runs.
        others: Models to compare with.
        longest_side: As for ``read_text``.
    """
    their_lines = read_text(image, others, longest_side)
    others.forget()
    read_text(image, others, longest_side)  # the first one compiled for the later ones
    seconds = {name: sum(call.seconds for call in model.calls) for name, model in others.stages.items()}
    differences = {
        name: max(
            (float(np.abs(call.output - other.compute(call.input)).max()) for call in models.stages[name].calls),
            default=0.0,
        )
        for name, other in others.stages.items()
    }
    return OcrComparison(
        their_lines, [line.text for line in their_lines] == [line.text for line in lines], seconds, differences
    )


TITLE = "DirectML on every GPU"
LINES = ("177 operators in WGSL", "Graphs fused into few kernels", "No CUDA, no vendor lock-in")
COMMAND = "dmlgpu demo ocr"
UPSIDE_DOWN_TEXT = "This line stands on its head"
CLIMBING = "and this one climbs a hill"
TEXTS = (TITLE, *LINES, COMMAND, UPSIDE_DOWN_TEXT, CLIMBING)
"""Text of the sample image, from top to bottom."""

SIZE = (640, 448)
SAMPLE_MARGIN = 32
PAPER, DARK, BLUE, RED, GREEN = "#faf7f0", "#22252b", "#1f4e8c", "#a63a2b", "#7ee08a"


def sample() -> Image.Image:
    """Return the sample image, 640 x 448."""
    image = Image.new("RGB", SIZE, PAPER)
    image.paste(_outlines(TITLE, 40, BLUE), (SAMPLE_MARGIN, 20))
    for text, top in zip(LINES, (82, 128, 174), strict=True):
        image.paste(_outlines(text, 29, DARK), (SAMPLE_MARGIN, top))
    image.paste(_pixels(COMMAND, 2), (SAMPLE_MARGIN, 228))
    around = _outlines(UPSIDE_DOWN_TEXT, 29, DARK).rotate(180)
    image.paste(around, (SIZE[0] - around.width - SAMPLE_MARGIN, 280))
    hill = _outlines(CLIMBING, 31, RED).rotate(10, Image.Resampling.BICUBIC, expand=True, fillcolor=PAPER)
    image.paste(hill, (SAMPLE_MARGIN, SIZE[1] - hill.height - 8))
    return image


def _outlines(text: str, size: int, ink: str) -> Image.Image:
    """Return a line in the outline font (Aileron)."""
    font = ImageFont.load_default(size)
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("RGB", (math.ceil(right - left) + 8, math.ceil(bottom - top) + 8), PAPER)
    ImageDraw.Draw(image).text((4 - left, 4 - top), text, ink, font)
    return image


def _pixels(text: str, scale: int) -> Image.Image:
    """Return a line in the pixel font, enlarged."""
    font = ImageFont.load_default_imagefont()
    _, _, width, height = font.getbbox(text)
    image = Image.new("RGB", (math.ceil(width) + 12, math.ceil(height) + 8), DARK)
    ImageDraw.Draw(image).text((6, 4), text, GREEN, font)
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)


MARGIN, GAP, TOP = 36, 28, 110
LONGEST, PANEL, ROW = 640, 500, 46
COLORS = ("#f4a261", "#2a9d8f", "#e76f51", "#4895ef", "#b5179e", "#8ab17d", "#e9c46a", "#9b5de5")


def compose(image: Image.Image, lines: Sequence[TextLine], subtitle: str) -> Image.Image:
    """Return the output image: boxes around lines on the left, recognized text on the right, numbered and colored."""
    scale = min(1.0, LONGEST / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    height = max(size[1], ROW * max(len(lines), 1))
    canvas = Image.new("RGB", (2 * MARGIN + size[0] + GAP + PANEL, TOP + height + MARGIN), BACKGROUND)
    write(canvas, (MARGIN, MARGIN - 4), f"{len(lines)} {'line' if len(lines) == 1 else 'lines'} of text", INK, 30)
    write(canvas, (MARGIN, MARGIN + 38), subtitle, FAINT, 16)
    paste_rounded(canvas, _boxed(image, lines, size), (MARGIN, TOP), size)
    left = MARGIN + size[0] + GAP
    for index, line in enumerate(lines):
        top, color = TOP + index * ROW, COLORS[index % len(COLORS)]
        write(canvas, (left + 22, top), str(index + 1), color, 17, anchor="ra")
        write(canvas, (left + 36, top), _shortened(line.text), INK, 17)
        write(canvas, (left + 36, top + 22), f"{line.probability:.1%}", FAINT, 12)
    return canvas


def _boxed(image: Image.Image, lines: Sequence[TextLine], size: tuple[int, int]) -> Image.Image:
    """Return the picture with boxes, enlarged by SCALE, so that shrinking it smooths their edges."""
    large = image.resize((size[0] * SCALE, size[1] * SCALE), Image.Resampling.BICUBIC)
    tint = Image.new("RGBA", large.size)
    draw = ImageDraw.Draw(tint)
    for index, line in enumerate(lines):
        color = COLORS[index % len(COLORS)]
        corners = [(x * large.width / image.width, y * large.height / image.height) for x, y in line.corners]
        draw.polygon(corners, fill=f"{color}30")
        draw.line([*corners, corners[0], corners[1]], fill=color, width=2 * SCALE, joint="curve")
    large.paste(tint, (0, 0), tint)
    return large


def _shortened(text: str) -> str:
    return text if len(text) <= 52 else f"{text[:51]}…"
