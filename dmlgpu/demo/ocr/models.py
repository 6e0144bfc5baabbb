"""The three models, run by dmlgpu or onnxruntime, and the decoding of the text that they recognize."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from dmlgpu.common.errors import NotSupported
from dmlgpu.frontends.onnx import load
from dmlgpu.runtime.device import Device

BLANK = 0
"""The class that stands for no character, or separates equal ones."""


def alphabet(metadata: str) -> tuple[str, ...]:
    """Return the characters of the classes from the model's metadata: one in each line, the space after them.

    The first class, which is none, is the empty string.
    """
    return ("", *metadata.splitlines(), " ")


def decode(probabilities: NDArray[np.float32], characters: Sequence[str]) -> tuple[str, float]:
    """Return the most probable text and the mean probability of its characters.

    Args:
        probabilities: of each class at each place along the line, {places, classes}.
        characters: of the classes.

    Returns:
        Of each run of places with the same most probable class the character; blanks have none. Without any character
        the probability is 0.
    """
    best = probabilities.argmax(axis=1)
    begins = np.append(True, best[1:] != best[:-1]) & (best != BLANK)
    text = "".join(characters[number] for number in best[begins])
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
    """One run of a model: its input and output, and the seconds that it took."""

    input: Array
    output: Array
    seconds: float


@dataclass
class OcrModel:
    """A model of one input and one output, which remembers its runs."""

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
    """The models of one reader.

    Attributes:
        detection: a picture {1, 3, height, width} to the probability of text at each pixel, {1, 1, height, width}.
        direction: lines {count, 3, 48, 192} to the probabilities that they stand upright or on their heads, {count, 2}.
        recognition: lines {count, 3, 48, width} to the probabilities of characters, {count, width / 8, classes}.
        characters: of the classes.
    """

    detection: OcrModel
    direction: OcrModel
    recognition: OcrModel
    characters: tuple[str, ...]

    @property
    def stages(self) -> dict[str, OcrModel]:
        """The models by their names."""
        return {name: getattr(self, name) for name in FILES}

    def forget(self) -> None:
        """Forget all runs."""
        for model in self.stages.values():
            model.calls.clear()


def on_device(device: Device) -> OcrModels:
    """Return the models on a device of dmlgpu's.

    Raises:
        NotSupported: the package that carries the models is not installed.
    """
    return _models(lambda path: _ours(path, device))


def on_onnxruntime() -> OcrModels:
    """Return the models on onnxruntime's provider for processors.

    Raises:
        ModuleNotFoundError: onnxruntime is not installed.
        NotSupported: the package that carries the models is not installed.
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
    return lambda array: session.run({model_input.name: array})[model_output]


def _models(make: Callable[[Path], Callable[[Array], Array]]) -> OcrModels:
    folder = models_folder()
    detection, direction, recognition = (OcrModel(make(folder / file)) for file in FILES.values())
    return OcrModels(detection, direction, recognition, _characters(folder / FILES["recognition"]))


def models_folder() -> Path:
    """Return the folder of the models, without importing the package, which would import onnxruntime.

    Raises:
        NotSupported: the package is not installed, or is one without these models.
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
