"""The OCR demo on a GPU: it reads what was written, and what onnxruntime reads."""

from __future__ import annotations

import importlib.util

import pytest
from PIL import Image, ImageDraw, ImageFont

from dmlgpu.cli.main import main
from dmlgpu.runtime.wgpu import adapters

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr_onnxruntime") is None, reason="rapidocr-onnxruntime carries the models"
)


def test_the_command_reads_a_picture_as_onnxruntime_does(tmp_path, capsys) -> None:
    chosen = [index for index, info in enumerate(adapters()) if info.backend != "OpenGL"]
    if not chosen:
        pytest.skip("wgpu finds no adapter on this machine but OpenGL's, which make pipelines one after the other")
    image = Image.new("RGB", (320, 96), "white")
    draw = ImageDraw.Draw(image)
    draw.text((12, 10), "Read me", "black", ImageFont.load_default(30))
    draw.text((150, 52), "GPU 177", "navy", ImageFont.load_default(30))
    image.save(tmp_path / "given.png")
    code = main(["demo", "ocr", str(tmp_path / "given.png"), "-a", str(chosen[0]), "-o", str(tmp_path / "read.png")])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    lines = out.splitlines()
    assert [line.split(maxsplit=2)[2] for line in lines[2:4]] == ["Read me", "GPU 177"]
    assert any(line.startswith("onnxruntime reads the same 2 lines") for line in lines)
    with Image.open(tmp_path / "read.png") as written:
        assert written.size[0] > 320
