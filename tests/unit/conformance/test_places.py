"""Descriptions of where elements of a result are wrong."""

import numpy as np
import pytest

from dmlgpu.conformance.cases.tolerance import EXACT
from dmlgpu.conformance.running.outcome import Outcome, compare
from dmlgpu.conformance.running.places import describe_places


def mask(shape, *indices):
    wrong = np.zeros(shape, bool)
    for index in indices:
        wrong[index] = True
    return wrong


WRITES = np.zeros((3, 64), bool)
WRITES[2, 32:] = True
ROWS = np.zeros((5, 7), bool)
ROWS[1:4, 5:] = True
LANES = np.zeros(256, bool)
LANES[[3, 7, 15, 99, 103, 251, 255]] = True


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (mask((2, 3)), ""),
        (mask((2, 3), (1, 2)), ""),
        (np.ones((2, 3), bool), "which are all"),
        (np.ones((), bool), ""),
        (mask((2, 3), (0, 0), (0, 1)), "the first ones"),
        (WRITES, "the last ones"),
        (mask((2, 4), (0, 2), (0, 3), (1, 0)), "without a gap from [0, 2] to [1, 0]"),
        (mask(100, slice(3, 90, 4)), "every 4th from [3] to [87]"),
        (mask(100, slice(1, 60, 11)), "every 11th from [1] to [56]"),
        (mask((4, 22), (slice(None), 21)), "every 22nd from [0, 21] to [3, 21]"),
        (ROWS, "only in the last 2 of 7 along axis 1"),
        (mask((4, 6), (0, 1), (0, 4), (1, 5)), "only in the first 2 of 4 along axis 0"),
        (mask((4, 6), (2, 1), (2, 4)), "only at index 2 of 4 along axis 0"),
        (LANES, "only element 3 of each 4"),
        (mask(9, 0, 1, 4, 8), "scattered from [0] to [8]"),
    ],
)
def test_places_are_described(wrong, text):
    assert describe_places(wrong) == text


def test_a_failure_says_where_it_is_wrong():
    expected = np.arange(12, dtype=np.int32).reshape(3, 4)
    got = expected.copy()
    got[:, 3] = 0
    verdict = compare(expected, got, EXACT)
    outcome = Outcome.of_verdict("case", "", verdict, 0.0)
    assert outcome.wrong_elements.startswith(
        "3 of 12 elements are wrong, every 4th from [0, 3] to [2, 3]; the worst, at"
    )
    assert Outcome.from_json(outcome.to_json()).places == outcome.places
