"""DxDispatch models as text: comments, encodings, and positions of malformed JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from dmlgpu.common.errors import ModelError
from dmlgpu.frontends import dxdispatch
from tests.unit.frontends.dxdispatch.dxdispatch_models import complaint, subtraction


def write(folder: Path, text: str) -> Path:
    file = folder / "model.json"
    file.write_text(text, encoding="utf-8")
    return file


def test_comments_and_trailing_commas_are_skipped_but_not_in_strings(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """// first
        { "resources": { "a // b /* c */ ,]": /* 1 */ { "initialValuesDataType": "INT8", "initialValues": [1, 2,], } },
          "dispatchables": { }, // none
          "commands": [ ], }""",
    )
    assert list(dxdispatch.load(file).resources) == ["a // b /* c */ ,]"]


def test_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(subtraction()).encode())
    assert list(dxdispatch.load(str(file)).dispatchables) == ["subtract"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n  "resources": {\n    "A" 1\n', "line 3, column 9: malformed JSON: Expecting ':' delimiter"),
        ("", "line 1, column 1: malformed JSON: Expecting value"),
        ("[1, , 2]", "line 1, column 5: malformed JSON: Expecting value"),
        ("{,}", "line 1, column 2: malformed JSON: Expecting property name enclosed in double quotes"),
        ("{}\n x", "line 2, column 2: malformed JSON: Extra data"),
        ('{"a": 1 /* b', "line 1, column 9: malformed JSON: this comment is not closed"),
        ('// c\n{"a": NaN}', 'line 2, column 7: malformed JSON: NaN is not a JSON value, write "nan"'),
        ('{"a": -Infinity}', 'line 1, column 7: malformed JSON: -Infinity is not a JSON value, write "-inf"'),
        ("[" * 100_000, "malformed JSON: nested too deeply"),
        ('{"a": "b', "line 1, column 7: malformed JSON: Unterminated string starting at"),
        ('{"a": "b\\', "line 1, column 7: malformed JSON: Unterminated string starting at"),
        ('{"a": ' + "9" * 5000 + "}", "malformed JSON: an integer has more than 4,300 digits"),
    ],
)
def test_malformed_json_is_located(tmp_path: Path, text: str, reason: str) -> None:
    file = write(tmp_path, text)
    assert complaint(file) == f"{file}: {reason}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": "' + '\\"' * 100_000, "line 1, column 7: malformed JSON: Unterminated string starting at"),
        ('"\\' * 100_000, "line 1, column 1: malformed JSON: Unterminated string starting at"),
        ("[1" + ("," + " " * 100) * 2000, "line 1, column 104: malformed JSON: Expecting value"),
        (
            '{"resources": {' + ",".join(f'"k{index // 2}": 1' for index in range(40_000)) + "}}",
            "$.resources.k0: this key is given more than once",
        ),
    ],
    ids=["escapes", "quotes", "commas", "keys"],
)
def test_reading_takes_time_in_proportion_to_the_text(tmp_path: Path, text: str, reason: str) -> None:
    file = write(tmp_path, text)
    start = time.process_time()
    assert complaint(file).endswith(reason)
    assert time.process_time() - start < 5  # quadratic time would take minutes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"resources": {"\\ud800": 1}}',
            "$.resources: keys must be Unicode text, without lone surrogates, got '\\ud800'",
        ),
        (
            '{"resources": {}, "dispatchables": {"x": {"type": "\\udfff"}}}',
            "$.dispatchables.x.type: must be Unicode text, without lone surrogates, got '\\udfff'",
        ),
        (
            '{"resources": {}, "dispatchables": {}, "commands": [{"type": "print", "resource": "\\ud83d"}]}',
            "$.commands[0].resource: must be Unicode text, without lone surrogates, got '\\ud83d'",
        ),
    ],
)
def test_lone_surrogates_are_rejected(tmp_path: Path, text: str, reason: str) -> None:
    assert complaint(write(tmp_path, text)) == reason


@pytest.mark.parametrize("where", [["resources"], ["resources", "A", "initialValues", 0], ["commands", 0, "type"]])
def test_integers_that_python_does_not_write_are_rejected(where: list[Any]) -> None:
    model: Any = subtraction()
    place = model
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = 10**5000
    assert complaint(model).endswith(", got an integer of 16610 bits")


def test_other_encodings_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(b'{"\xff": 1}')
    assert complaint(file) == f"{file}: is not UTF-8 text: byte 2 is 0xff"


def test_duplicate_keys_are_rejected(tmp_path: Path) -> None:
    file = write(tmp_path, '{"resources": {"A": 1, "A": 2}, "dispatchables": {}, "commands": []}')
    assert complaint(file) == "$.resources.A: this key is given more than once"


def test_missing_model() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        dxdispatch.load("nowhere/model.json")
    assert isinstance(caught.value, ModelError)
    assert str(caught.value) == f"{Path('nowhere/model.json')}: there is no such model file"


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    assert complaint(tmp_path).startswith(f"{tmp_path}: the model file cannot be read: ")
