"""The polynomials of the math library against new fits, and the script that makes them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "fit_math.py"


def load():
    spec = importlib.util.spec_from_file_location("fit_math", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


fit_math = load()
BY_NAME = {polynomial.name: polynomial for polynomial in fit_math.POLYNOMIALS}


def test_every_polynomial_of_the_library_is_known():
    assert fit_math.all_committed().keys() == BY_NAME.keys()
    assert len(BY_NAME) == len(fit_math.POLYNOMIALS)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_polynomial_is_as_good_as_claimed_and_as_a_new_fit(name):
    assert fit_math.complaint(BY_NAME[name], fit_math.all_committed()[name]) == ""


@pytest.mark.parametrize("name", BY_NAME)
def test_no_more_than_needed_is_claimed(name):
    reached = fit_math.error(BY_NAME[name], fit_math.all_committed()[name])
    assert reached <= BY_NAME[name].claimed <= 1.2 * reached + 1e-3


def test_what_is_said_of_worse_coefficients():
    polynomial = BY_NAME["sin_reduced[0]"]
    coefficients = fit_math.all_committed()[polynomial.name]
    coefficients[0] *= 1 + 2.0**-20
    reached = fit_math.error(polynomial, coefficients)
    assert fit_math.complaint(polynomial, coefficients) == (
        f"sin_reduced[0]: an error of {reached:.3f}, claimed are {polynomial.claimed}"
    )
    best = fit_math.error(polynomial, fit_math.fit(polynomial, len(coefficients)))
    assert fit_math.complaint(replace(polynomial, claimed=1e9), coefficients) == (
        f"sin_reduced[0]: an error of {reached:.3f}, a fit has {best:.3f}"
    )


def test_a_polynomial_of_the_right_degree_is_found_exactly():
    cubic = fit_math.Polynomial("none", lambda x: 1 + x * (2 - 0.5 * x * x), np.ones_like, -1.0, 2.0, 0.0)
    np.testing.assert_allclose(fit_math.fit(cubic, 4), [1.0, 2.0, 0.0, -0.5], atol=1e-12)


def test_the_best_line_through_a_parabola():
    """Chebyshev: the best line for x^2 over 0 to 1 is x - 1/8."""
    parabola = fit_math.Polynomial("none", np.square, np.ones_like, 0.0, 1.0, 0.0)
    line = fit_math.fit(parabola, 2)
    assert np.abs(line - [-0.125, 1.0]).max() < 1e-4
    assert abs(fit_math.error(parabola, line) * fit_math.UNIT - 0.125) < 1e-4


def test_how_polynomials_are_read(monkeypatch):
    text = """
    var p = 1.5e-3f; // highest
    p = p * z - 2.0f;
    p = p * z + 0.5f;
    let q = (((-1.0f * t + 2.0f) * t - 3.0f) * (t * r)) + 4.0f * t;
"""
    monkeypatch.setattr(fit_math, "declarations", lambda: {"f": text})
    first, second = fit_math.committed("f")
    assert first.tolist() == [0.5, -2.0, float(np.float32(1.5e-3))]
    assert second.tolist() == [-3.0, 2.0, -1.0]


@pytest.mark.slow
def test_the_command(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fit_math.py", "--check"])
    assert (fit_math.main(), capsys.readouterr().out.strip()) == (0, "")
    monkeypatch.setattr(sys, "argv", ["fit_math.py", "sin_reduced"])
    assert fit_math.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("sin_reduced[0]: committed 0.003, fitted 0.003") and len(lines) == 5
