"""The demo, on the numpy adapter: its k-means against SciPy's, its pictures, its checks, its command."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from dmlgpu import Device, reference
from dmlgpu.cli.demo_palette import _report
from dmlgpu.cli.main import main
from dmlgpu.demo import palette
from dmlgpu.demo.palette import Workbench, compose, load_photo, reduce_to_palette
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.cli.cli_process import dmlgpu, run_here


@pytest.fixture(scope="module")
def photo():
    return load_photo(None, 48)


@pytest.fixture(scope="module")
def device():
    return Device("numpy")


@pytest.fixture(scope="module")
def reduction(device, photo):
    return reduce_to_palette(Workbench(device), photo, colors=6, iterations=5, seed=3)


def test_the_palette_is_the_one_that_scipy_finds(reduction, photo):
    points = photo.reshape(-1, 3).astype(np.float64)
    start = points[palette.starting_pixels(photo, 6, 3)]
    means, _ = kmeans2(points, start, iter=5, minit="matrix")
    expected = np.floor(means + 0.5).astype(np.uint8)
    assert sorted(map(tuple, reduction.colors)) == sorted(map(tuple, expected))


def test_every_pixel_has_the_nearest_colour(reduction, photo):
    distances = cdist(photo.reshape(-1, 3), reduction.colors)
    chosen = np.linalg.norm(photo.reshape(-1, 3) - reduction.painted.reshape(-1, 3).astype(float), axis=1)
    # The means that decide lie within half a step of the rounded colors.
    assert (chosen <= distances.min(axis=1) + np.sqrt(3)).all()
    used = np.unique(reduction.painted.reshape(-1, 3), axis=0)
    assert {tuple(color) for color in used} <= {tuple(color) for color in reduction.colors}


def test_shares_strip_and_mirror(reduction):
    painted, colors = reduction.painted, reduction.colors
    counts = [(painted == color).all(-1).mean() for color in colors]
    np.testing.assert_allclose(reduction.shares, counts)
    height, width, _ = painted.shape
    top, left = height // 16, width // 4
    crop = painted[top : top + height // 2, left : left + width // 2]
    np.testing.assert_array_equal(reduction.mirrored, crop[:, ::-1])
    np.testing.assert_array_equal(reduction.strip, np.tile(np.repeat(colors, 32, axis=0), (32, 1, 1)))
    luminance = colors @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(luminance) >= 0).all()


def test_deterministic_and_the_seed_matters(device, photo, reduction):
    again = reduce_to_palette(Workbench(device), photo, colors=6, iterations=5, seed=3)
    other = reduce_to_palette(Workbench(device), photo, colors=6, iterations=5, seed=4)
    np.testing.assert_array_equal(again.painted, reduction.painted)
    assert not np.array_equal(other.colors, reduction.colors)


def test_large_photographs_are_painted_in_bands_with_the_same_result(device, photo, reduction, monkeypatch):
    monkeypatch.setattr(palette, "MAX_ELEMENTS", 48 * 6 * 3 * 7)
    bench = Workbench(device)
    banded = reduce_to_palette(bench, photo, colors=6, iterations=5, seed=3)
    np.testing.assert_array_equal(banded.painted, reduction.painted)
    assert sum(seen.operator == "ARGMIN" for seen in bench.observations) == 5 + 7


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(1, 1), (1, 40), (40, 1), (150, 65)])
def test_any_size_of_photograph(device, sizes):
    noise = np.random.default_rng(5).integers(0, 256, (*sizes, 3)).astype(np.uint8)
    result = reduce_to_palette(Workbench(device), noise, colors=4, iterations=2)
    assert result.painted.shape == noise.shape
    assert compose(result, "words").width > 1000


def test_a_photograph_of_one_colour(device):
    flat = np.full((20, 30, 3), (10, 200, 90), np.uint8)
    result = reduce_to_palette(Workbench(device), flat, colors=5, iterations=3)
    np.testing.assert_array_equal(result.painted, flat)


def test_the_demo_uses_every_seed_operator_and_checks_each_dispatch(device, photo):
    bench = Workbench(device)
    reduce_to_palette(bench, photo, colors=4, iterations=2)
    assert {seen.operator for seen in bench.observations} == {
        "ARGMIN",
        "CAST",
        "ELEMENT_WISE_DIFFERENCE_SQUARE",
        "ELEMENT_WISE_IDENTITY",
        "ELEMENT_WISE_MULTIPLY",
        "ELEMENT_WISE_SUBTRACT",
        "GATHER_ND1",
        "REDUCE",
        "SCATTER_ELEMENTS",
        "SLICE1",
    }
    assert all(seen.verdict.ok and seen.difference == 0 for seen in bench.observations)


def test_load_photo_turns_shrinks_and_drops_transparency(tmp_path):
    file = tmp_path / "photo.png"
    image = Image.new("RGBA", (200, 100), (255, 0, 0, 128))
    exif = image.getexif()
    exif[0x0112] = 6  # orientation: turn by 90 degrees
    image.save(file, exif=exif)
    loaded = load_photo(file, 50)
    assert loaded.shape == (50, 25, 3)
    assert loaded.dtype == np.uint8


@pytest.fixture
def picture(tmp_path):
    return tmp_path / "out.png"


@pytest.mark.slow
def test_the_command_writes_the_picture_and_prints_the_operators(picture):
    done = dmlgpu("demo", "palette", "--size", "32", "--colors", "4", "--iterations", "2", "-o", picture, "-a", "numpy")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("adapter: NumPy: numpy")
    assert lines[1].split() == ["operator", "dispatches", "elements", "ms", "largest", "error", "check", "ran", "as"]
    argmin = next(line.split() for line in lines if line.startswith("ARGMIN"))
    assert argmin[:3] == ["ARGMIN", "3", "3,072"]
    assert argmin[4:] == ["none", "ok", "NumPy", "reference"]
    assert "note: the numpy adapter is the reference itself, so its checks cannot fail" in lines
    assert lines[-1].startswith(f"{picture}: ")
    with Image.open(picture) as written:
        assert written.format == "PNG"
        assert written.width == 1320


def test_a_wrong_dispatch_is_reported_with_exit_code_1(picture, monkeypatch, capsys):
    def spoiled(desc, arrays):
        (right,) = reference.evaluate(desc, arrays)
        return (right + right.dtype.type(1) if desc.operator == "ARGMIN" else right,)

    monkeypatch.setattr(palette, "reference", SimpleNamespace(evaluate=spoiled))
    code = main(
        ["demo", "palette", "--size", "16", "--colors", "2", "--iterations", "1", "-o", str(picture), "-a", "numpy"]
    )
    out, err = capsys.readouterr()
    assert code == 1
    assert any(line.startswith("ARGMIN") and "2 WRONG" in line for line in out.splitlines())
    assert err.startswith("WRONG: ARGMIN: 256 of 256 elements are wrong")


def test_each_kernel_that_ran_is_printed_once(device, photo, capsys):
    bench = Workbench(device)
    reduce_to_palette(bench, photo, colors=4, iterations=1)
    ran = [("gather_nd1 gather",), ("gather_nd1 gather x4", "gather_nd1 gather")]
    gathers = [seen for seen in bench.observations if seen.operator == "GATHER_ND1"][:2]
    bench.observations = [replace(seen, kernels=kernels) for seen, kernels in zip(gathers, ran, strict=True)]
    _report(NUMPY_ADAPTER, bench, [])
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("GATHER_ND1"))
    assert row.endswith("  gather_nd1 gather, gather_nd1 gather x4")


def test_a_missing_photograph_is_2(picture):
    done = run_here("demo", "palette", "nonesuch.jpg", "-o", picture)
    assert (done.returncode, done.stderr) == (2, "dmlgpu: nonesuch.jpg: No such file or directory\n")


def test_a_file_that_is_no_picture_is_2(picture, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("words")
    done = run_here("demo", "palette", file, "-o", picture)
    assert (done.returncode, done.stderr) == (2, f"dmlgpu: cannot identify image file '{file}'\n")
    assert not picture.exists()


def test_a_picture_that_cannot_be_written_is_2(tmp_path):
    target = tmp_path / "no" / "where.png"
    done = run_here("demo", "palette", "--size", "16", "--colors", "2", "-i", "0", "-o", target, "-a", "numpy")
    assert (done.returncode, done.stderr) == (2, f"dmlgpu: {target}: No such file or directory\n")


def test_a_picture_that_unpacks_to_gigabytes_is_rejected(tmp_path, monkeypatch):
    photo = tmp_path / "photo.png"
    Image.new("1", (64, 64)).save(photo)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow rejects twice as many
    done = run_here("demo", "palette", photo, "-a", "numpy", "-o", tmp_path / "demo.png")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dmlgpu: {photo}: Image size (4096 pixels) exceeds limit")
    assert not (tmp_path / "demo.png").exists()
