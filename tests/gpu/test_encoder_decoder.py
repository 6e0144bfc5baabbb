"""A model with an encoder on every adapter: tokens, and the memory of its weights."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

from dmlgpu.frontends.generation.encoder_decoder import EncodedDecoding
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.session import OwnedBuffer, PersistentBuffers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="torch exports the model")
    folder = tmp_path_factory.mktemp("bart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)  # not needed; it fails to import with another torch
        pytest.importorskip("transformers", reason="transformers has the model")
        from tests.encoder_decoder_export import export, model_of

        export(model_of("bart"), folder)
    return folder


@pytest.mark.slow
def test_weights_of_a_decoder_are_on_the_device_once(backend: GpuBackend, folder: Path) -> None:
    generator, reference = Generator.load(folder, Device.from_backend(backend)), Generator.load(folder, "numpy")
    results = [list(loaded.generate_tokens([5, 9, 77, 130, 8], max_tokens=4)) for loaded in (generator, reference)]
    assert results[0] == results[1]
    decoding = generator._decoding
    assert isinstance(decoding, EncodedDecoding)
    buffers: set[OwnedBuffer] = set()
    for session in (decoding._encoder, decoding._cross, decoding._decoder):
        stage = runner_of(session).only_stage
        assert stage is not None
        assert stage.segment is not None
        resource = stage.segment.prepared.persistent
        if isinstance(resource, PersistentBuffers):
            buffers.update(resource.buffers.values())
    size = sum(buffer.size for buffer in buffers)
    needed = sum(
        tensor.ByteSize()
        for name in ("encoder_model", "decoder_model")
        for tensor in onnx.load(folder / f"{name}.onnx").graph.initializer
    )
    assert 0.5 * needed < size < 1.2 * needed
