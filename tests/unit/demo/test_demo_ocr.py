"""The OCR demo's own steps on arrays made by hand: boxes, crops, batches, decoding; its command without the models."""

import math

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

from dmlgpu.cli.main import main
from dmlgpu.demo import ocr, text_regions
from dmlgpu.demo.ocr import (
    SIZE,
    OcrModel,
    OcrModels,
    alphabet,
    compose,
    decode,
    read_text,
    sample,
)
from dmlgpu.demo.text_regions import Rectangle, boxes, detection_input, reading_order, smallest_rectangle


def rectangle(x, y, width, height, degrees=0.0):
    radians = math.radians(degrees)
    return Rectangle(np.array([x, y], float), np.array([math.cos(radians), math.sin(radians)]), width, height)


def map_of(*rectangles, rows=96, columns=160, inside=0.9):
    y, x = np.mgrid[0:rows, 0:columns]
    probabilities = np.zeros((rows, columns), np.float32)
    for rectangle in rectangles:
        probabilities[rectangle.contains(np.stack([x, y], axis=-1) + 0.5)] = inside
    return probabilities


@pytest.mark.parametrize("degrees", [-44, -20, 0, 10, 44])
def test_the_smallest_rectangle_is_the_one_that_points_were_drawn_in(degrees):
    expected = rectangle(50, 40, 60, 12, degrees)
    draw = np.random.default_rng(1)
    inner = draw.uniform(-0.5, 0.5, (200, 2)) * [60, 12]
    points = np.concatenate([expected.corners, inner @ [expected.along, expected.across] + expected.center])
    result = smallest_rectangle(draw.permutation(points))
    np.testing.assert_allclose(result.corners, expected.corners, atol=1e-9)
    assert (result.width, result.height) == (pytest.approx(60), pytest.approx(12))


def test_no_angle_gives_a_smaller_rectangle():
    points = np.random.default_rng(2).normal(size=(50, 2)) * [9, 4]
    smallest = smallest_rectangle(points)
    areas = []
    for degrees in np.arange(0, 90, 0.25):
        turned = points @ Rotation.from_euler("z", degrees, degrees=True).as_matrix()[:2, :2]
        areas.append(np.ptp(turned, axis=0).prod())
    assert smallest.width * smallest.height <= min(areas) + 1e-9


@pytest.mark.parametrize("points", [[(3, 4)], [(3, 4), (3, 4)], [(0, 0), (2, 2), (1, 1)], [(5, 5), (5, 9)]])
def test_points_without_an_area_have_a_flat_rectangle(points):
    flat = smallest_rectangle(np.array(points, float))
    assert flat.width * flat.height == pytest.approx(0)
    assert np.isfinite(flat.corners).all()


@pytest.mark.parametrize("degrees", [0, -15, 30])
def test_boxes_surround_probable_pixels_with_a_margin(degrees):
    line = rectangle(80, 48, 90, 14, degrees)
    (box,) = boxes(map_of(line), 320, 192)  # of a picture twice as large
    distance = 90 * 14 * 2.2 / (2 * (90 + 14))
    expected = rectangle(160, 96, 2 * (90 + 2 * distance), 2 * (14 + 2 * distance), degrees)
    np.testing.assert_allclose(box.corners, expected.corners, atol=6)  # pixels end at their edges


def test_small_or_faint_regions_are_no_text():
    speck, faint, text = rectangle(20, 20, 2, 2), rectangle(60, 60, 40, 10), rectangle(110, 20, 40, 10)
    probabilities = np.maximum(map_of(speck, text), map_of(faint, inside=0.4))
    (box,) = boxes(probabilities, 160, 96)
    np.testing.assert_allclose(box.center, text.center, atol=1)
    assert boxes(np.zeros((32, 32), np.float32), 32, 32) == []


def test_lines_are_read_from_top_to_bottom_and_columns_from_left_to_right():
    title, left, right, last = (
        rectangle(80, 10, 60, 10),
        rectangle(30, 42, 40, 10),
        rectangle(120, 39, 40, 10),
        rectangle(90, 80, 9, 9),
    )
    assert reading_order([last, right, left, title]) == [title, left, right, last]


def test_four_points_go_to_four_others():
    source = np.array([[0, 0], [10, 0], [10, 4], [0, 4]], float)
    target = np.array([[3, 1], [20, 2], [18, 14], [1, 9]], float)
    mapped = text_regions.perspective(source, target) @ np.concatenate([source, np.ones((4, 1))], axis=1).T
    np.testing.assert_allclose((mapped[:2] / mapped[2]).T, target, atol=1e-9)


def test_a_part_is_cut_out_as_it_is_and_turned_upright():
    picture = np.random.default_rng(3).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    straight = text_regions.cut(picture, np.array([[10, 5], [40, 5], [40, 25], [10, 25]], float))
    np.testing.assert_array_equal(straight, picture[5:25, 10:40])
    high = text_regions.cut(picture, np.array([[10, 5], [20, 5], [20, 35], [10, 35]], float))
    np.testing.assert_array_equal(high, np.rot90(picture[5:35, 10:20]))
    turned = text_regions.cut(picture, np.array([[40, 25], [10, 25], [10, 5], [40, 5]], float))
    np.testing.assert_array_equal(turned, picture[5:25, 10:40][::-1, ::-1])


def test_beyond_the_edge_the_last_pixels_go_on():
    picture = np.full((8, 8, 3), 77, np.uint8)
    assert (text_regions.cut(picture, np.array([[-6, -3], [12, -3], [12, 10], [-6, 10]], float)) == 77).all()


def test_batches_have_four_lines_of_one_width():
    widths = [30, 150, 60, 60, 60, 60, 5000]
    lines = [np.full((10, width, 3), 255, np.uint8) for width in widths]
    batches = list(text_regions.batches(lines, [text_regions.bucket(text_regions.line_width(line)) for line in lines]))
    assert [numbers for numbers, _ in batches] == [[0, 2, 3, 4], [5], [1], [6]]
    assert [batch.shape for _, batch in batches] == [(4, 3, 48, width) for width in (320, 320, 1280, 2560)]
    first = batches[0][1]
    assert (first[0, :, :, :144] == 1).all()
    assert (first[0, :, :, 144:] == 0).all()
    assert (batches[1][1][1:] == 0).all()


def test_models_take_blue_first_and_sides_of_multiples_of_32():
    image = Image.new("RGB", (200, 90), (255, 0, 51))
    blob = detection_input(image, 160)
    assert blob.shape == (1, 3, 64, 160)
    np.testing.assert_allclose(blob[0, :, 0, 0], [-0.6, -1, 1], atol=1e-6)
    assert detection_input(Image.new("RGB", (3, 500)), 960).shape == (1, 3, 512, 32)


def test_repeated_characters_need_a_blank_between_them():
    characters = alphabet("h\ne\nl\no")
    assert characters == ("", "h", "e", "l", "o", " ")
    path = [0, 1, 1, 2, 3, 0, 3, 4, 4, 5, 0]
    probabilities = np.full((len(path), 6), 0.02, np.float32)
    probabilities[np.arange(len(path)), path] = np.linspace(0.5, 0.9, len(path))
    text, probability = decode(probabilities, characters)
    assert text == "hello "
    peaks = probabilities.max(axis=1)[[1, 3, 4, 6, 7, 9]]
    assert probability == pytest.approx(peaks.mean())
    assert decode(np.eye(6, dtype=np.float32)[[0, 0]], characters) == ("", 0.0)


def made_up(line, upside_down, place):
    """Models that see one line, and read it as `ab`."""
    recognized = np.zeros((4, 40, 3), np.float32)
    recognized[:, :, 0] = 1
    recognized[0, :2] = [[0, 1, 0], [0, 0.2, 0.8]]
    return OcrModels(
        OcrModel(lambda blob: map_of(line)[None, None]),
        OcrModel(lambda blob: np.array([[1 - upside_down, upside_down]] * 4, np.float32)),
        OcrModel(lambda blob: place.append(blob) or recognized),
        ("", "a", "b"),
    )


def test_a_line_on_its_head_is_turned_before_it_is_recognized():
    image = Image.fromarray(np.random.default_rng(4).integers(0, 256, (96, 160, 3)).astype(np.uint8))
    line, blobs = rectangle(80, 48, 90, 14), []
    (reading,) = read_text(image, made_up(line, 0.2, blobs))
    assert (reading.text, reading.probability) == ("ab", pytest.approx(0.9))
    np.testing.assert_allclose(reading.corners.mean(axis=0), (80, 48), atol=1)
    read_text(image, made_up(line, 0.95, blobs))
    width = np.flatnonzero(blobs[0][0].any(axis=(0, 1))).max() + 1
    np.testing.assert_allclose(blobs[1][0, :, :, :width], blobs[0][0, :, ::-1, width - 1 :: -1], atol=0.05)


def test_readings_are_compared_by_text_and_probability():
    image, line = Image.new("RGB", (160, 96)), rectangle(80, 48, 90, 14)
    ours, theirs = made_up(line, 0.2, []), made_up(line, 0.25, [])
    lines = read_text(image, ours)
    comparison = ocr.compare(image, lines, ours, theirs, 960)
    assert comparison.same
    assert comparison.differences == {"detection": 0, "direction": pytest.approx(0.05), "recognition": 0}
    assert not comparison.ok
    assert not ocr.compare(image, [], ours, ours, 960).ok


def test_the_sample_and_its_result_are_pictures():
    image = sample()
    assert image.size == SIZE
    lines = read_text(Image.new("RGB", (160, 96)), made_up(rectangle(80, 48, 90, 14), 0, []))
    assert compose(image, lines, "words").width > SIZE[0]
    assert compose(Image.new("RGB", (5, 900)), [], "words").height > 600


def test_without_the_models_the_command_names_the_package(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(ocr, "PACKAGE", "a_package_that_nobody_has")
    code = main(["demo", "ocr", "-a", "numpy", "-o", str(tmp_path / "read.png")])
    assert code == 1
    assert "rapidocr-onnxruntime, which is not installed: pip install 'dmlgpu[ocr]'" in capsys.readouterr().err
    assert not (tmp_path / "read.png").exists()


def test_a_missing_picture_is_2(capsys):
    assert main(["demo", "ocr", "nonesuch.jpg", "-a", "numpy"]) == 2
    assert capsys.readouterr().err == "dmlgpu: nonesuch.jpg: No such file or directory\n"
