"""``dmlgpu run MODEL.onnx --inputs FILES``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.cli.map_onnx import output_names
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.onnx.input_files import PictureOptions, find_files, read_inputs
from dmlgpu.frontends.onnx.model import Declared
from tests.unit.cli.cli_process import run_here

onnx, image = pytest.importorskip("onnx"), pytest.importorskip("PIL.Image")

MEAN, STD = "0.485,0.456,0.406", "0.229,0.224,0.225"


def pixels(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, (8, 8, 3)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model that sums channels, and a folder of pictures."""
    x = onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["n", 3, 8, 8])
    y = onnx.helper.make_tensor_value_info("sums", onnx.TensorProto.FLOAT, None)
    axes = onnx.numpy_helper.from_array(np.array([2, 3]), "axes")
    node = onnx.helper.make_node("ReduceSum", ["image", "axes"], ["sums"], keepdims=0)
    graph = onnx.helper.make_graph([node], "sums", [x], [y], [axes])
    opsets = [onnx.helper.make_opsetid("", 20)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "model.onnx")
    (tmp_path / "pictures").mkdir()
    for index in range(5):
        image.fromarray(pixels(index)).save(tmp_path / "pictures" / f"{index}.png")
    return tmp_path


def sums(number: int) -> Any:
    return (pixels(number).astype(np.float32) / 255).sum((0, 1))[None]


@pytest.mark.slow
def test_pictures_become_files(folder: Path):
    where = folder / "results"
    args = ("--inputs", folder / "pictures/*.png", "--adapters", "numpy", "--adapters", "numpy", "--outputs", where)
    run = run_here("run", folder / "model.onnx", *args)
    assert run.returncode == 0, run.stderr
    for index in range(5):
        with np.load(where / f"{index}.npz") as outputs:
            np.testing.assert_allclose(outputs["sums"], sums(index), rtol=1e-5)
    assert sorted(path.name for path in where.iterdir()) == [f"{index}.npz" for index in range(5)]
    assert re.search(r"^5 of 5 files in \S+ s \(\S+ per second\), outputs in .*results$", run.stderr, re.MULTILINE)


@pytest.mark.slow
def test_without_a_folder_outputs_are_printed_in_order(folder: Path):
    run = run_here("run", folder / "model.onnx", "--inputs", folder / "pictures", "--adapter", "numpy")
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert [line.split(": ")[0].rpartition("/")[2] for line in lines] == [f"{index}.png" for index in range(5)]
    assert re.fullmatch(r".*0\.png: sums float32 \[1, 3\] \[\S+ \S+ \S+\]", lines[0])


@pytest.mark.slow
def test_files_that_fail_are_named_and_the_others_done(folder: Path):
    (folder / "pictures" / "1.png").write_text("no picture")
    np.save(folder / "pictures" / "6.npy", np.zeros((1, 3, 8, 9), np.float32))
    args = ("--inputs", folder / "pictures", "--adapters", "numpy", "--outputs", folder / "results")
    run = run_here("run", folder / "model.onnx", *args)
    assert run.returncode == 1
    err = run.stderr
    assert "pictures/1.png: cannot be read: cannot identify image file" in err
    assert "pictures/6.npy: model 'model.onnx': input 'image' must have size 8 in dimension 3, got [1, 3, 8, 9]" in err
    assert err.endswith("dmlgpu: run: 2 of 6 files failed\n")
    assert len(list((folder / "results").iterdir())) == 4


@pytest.mark.slow
def test_strict_ends_with_the_first(folder: Path):
    (folder / "pictures" / "0.png").write_text("no picture")
    args = ("--inputs", folder / "pictures", "--adapters", "numpy", "--strict")
    run = run_here("run", folder / "model.onnx", *args)
    assert run.returncode == 1
    assert "files failed; the others were not run" in run.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--adapters", "all"], "need --inputs 'FOLDER/*.png'"),
        (["--inputs", "nothing/*.png"], "'nothing/*.png', which matches no file"),
        (["--inputs", "pictures", "--size", "8"], "--size must be HEIGHTxWIDTH, such as 224x224, got '8'"),
        (["--inputs", "pictures", "--mean", "a"], "--mean must be one number or one per channel"),
        (["--inputs", "pictures", "--mean", "1,2"], "--mean must be 1 number, or 3, one per channel, got 2"),
        (["--inputs", "pictures", "--std", "0"], "--std must not be 0"),
        (["--inputs", "pictures", "--repeat", "3"], "--inputs runs a model once per file"),
        (["--inputs", "pictures", "--scheduler", "tcp"], "no Dask scheduler answers at 'tcp'"),
    ],
)
def test_wrong_options(folder: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    run = run_here("run", "model.onnx", *options)
    assert run.returncode == 2
    assert message in run.stderr


@pytest.mark.slow
def test_an_interruption_keeps_finished_outputs(folder: Path):
    for index in range(5, 400):
        np.save(folder / "pictures" / f"{index}.npy", np.zeros((1, 3, 8, 8), np.float32))
    words = ("run", "model.onnx", "--inputs", "pictures", "--adapters", "numpy", "--outputs", "results")
    command = [sys.executable, "-m", "dmlgpu", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    results = folder / "results"
    end = time.monotonic() + 60
    while not (results.is_dir() and len(list(results.glob("*.npz"))) > 3):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    done = re.search(r"^(\d+) of 400 files in", err, re.MULTILINE)
    assert done is not None
    files = list(results.iterdir())
    assert 3 < int(done[1]) <= len(files) < 400
    assert all(file.suffix == ".npz" and np.load(file)["sums"].shape == (1, 3) for file in files)


@pytest.mark.slow
def test_a_cluster(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    dask_cluster = pytest.importorskip("tests.unit.dask_cluster")
    with dask_cluster.cluster(tmp_path_factory.mktemp("cluster")) as local, local.workers({}):
        where = ("--scheduler", local.address, "--adapters", "numpy", "--outputs", folder / "results")
        run = run_here("run", folder / "model.onnx", "--inputs", folder / "pictures", *where)
        assert run.returncode == 0, run.stderr
    with np.load(folder / "results" / "3.npz") as outputs:
        np.testing.assert_allclose(outputs["sums"], sums(3), rtol=1e-5)


# ---- inputs ----------------------------------------------------------------------------------------------------------


def declared(*shape: int | str | None, data_type: DataType = DataType.FLOAT32) -> Declared:
    return Declared("x", data_type, False, shape)


def read(folder: Path, of: Declared, **options: Any) -> Any:
    return read_inputs(folder / "pictures" / "2.png", [of], PictureOptions(**options))["x"]


def test_pictures_as_planes_and_as_pixels(folder: Path):
    expected = pixels(2).astype(np.float32) / np.float32(255)
    np.testing.assert_allclose(read(folder, declared("n", 3, 8, 8))[0], expected.transpose(2, 0, 1), rtol=1e-6)
    np.testing.assert_allclose(read(folder, declared(1, "h", "w", 3))[0], expected, rtol=1e-6)
    whole = read(folder, declared(1, 8, 8, 3, data_type=DataType.UINT8))
    assert whole.dtype == np.uint8
    np.testing.assert_array_equal(whole[0], pixels(2))
    assert read(folder, declared(1, 1, 8, 8)).shape == (1, 1, 8, 8)


def test_pictures_are_normalized(folder: Path):
    mean, std = (tuple(map(float, text.split(","))) for text in (MEAN, STD))
    expected = (pixels(2) / 255 - mean) / std
    result = read(folder, declared(1, 3, "h", "w", data_type=DataType.FLOAT16), mean=mean, std=std)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result[0].transpose(1, 2, 0), expected, rtol=2e-3, atol=2e-3)


def test_the_size_of_pictures(folder: Path):
    assert read(folder, declared(1, 3, "h", "w")).shape == (1, 3, 8, 8)
    assert read(folder, declared(1, 3, 4, 6)).shape == (1, 3, 4, 6)
    assert read(folder, declared(1, 3, "h", "w"), size=(16, 10)).shape == (1, 3, 16, 10)


def test_inputs_that_take_no_pictures(folder: Path):
    with pytest.raises(InvalidArgument, match=r"input 'x' of shape \[2, 5\] cannot take an image"):
        read(folder, declared(2, 5))


def test_archives_have_inputs_by_name(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.ones(2), y=np.zeros(3))
    two = [declared(2), Declared("y", DataType.FLOAT32, False, (3,))]
    assert read_inputs(tmp_path / "a.npz", two, PictureOptions()).keys() == {"x", "y"}
    np.save(tmp_path / "a.npy", np.ones(2))
    with pytest.raises(
        InvalidArgument, match=r"the model has 2 inputs \(x, y\); save arrays with these names in an .npz"
    ):
        read_inputs(tmp_path / "a.npy", two, PictureOptions())


def test_files_are_found_once_in_order(folder: Path):
    files = find_files([str(folder / "pictures" / "3.png"), str(folder / "pictures" / "*.png")])
    assert [file.stem for file in files] == ["3", "0", "1", "2", "4"]


def test_names_of_outputs_differ():
    assert output_names([Path("a/1.png"), Path("b/1.png"), Path("b/2.png")]) == ["a_1.png.npz", "b_1.png.npz", "2.npz"]
    assert output_names([Path("1.png"), Path("1.jpg")]) == ["1.png.npz", "1.jpg.npz"]
