"""A model with an encoder on every adapter: tokens, and the memory of its weights."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

from dmlgpu.frontends.generation.encoder_decoder import EncodedDecoding
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch exports the model")
    folder = tmp_path_factory.mktemp("bart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)  # not needed; it fails to import beside another torch
        pytest.importorskip("transformers", reason="transformers has the model")
        from tests.encoder_decoder_export import export, model_of

        export(model_of("bart"), folder)
    return folder


def test_weights_of_a_decoder_are_on_the_device_once(backend: GpuBackend, folder: Path) -> None:
    generator, reference = Generator.load(folder, Device.from_backend(backend)), Generator.load(folder, "numpy")
    results = [list(loaded.generate_tokens([5, 9, 77, 130, 8], max_tokens=5)) for loaded in (generator, reference)]
    assert results[0] == results[1]
    decoding = generator._decoding
    assert isinstance(decoding, EncodedDecoding)
    weights = decoding._decoder._weights
    assert not weights._buffers  # they were laid out
    needed = sum(
        tensor.ByteSize()
        for name in ("encoder_model", "decoder_model")
        for tensor in onnx.load(folder / f"{name}.onnx").graph.initializer
    )
    assert 0.5 * needed < sum(resource.memory.size for resource in weights._laid_out.values()) < 1.2 * needed
