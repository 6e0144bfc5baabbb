"""The suite ``driver``: what its intervals accept, its exact results, and the cases of probes and quirks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dmlgpu.common.errors import InvalidArgument, NotSupported
from dmlgpu.compiler.quirks import quirks
from dmlgpu.conformance.running.expectations import known_line
from dmlgpu.conformance.running.outcome import Outcome, Status
from dmlgpu.conformance.suites.driver import control_flow, float_functions, integer_functions
from dmlgpu.conformance.suites.driver.intervals import F16, F32, Accuracy, Interval
from dmlgpu.conformance.suites.driver.kernel_case import Accepted, KernelCase
from dmlgpu.conformance.suites.driver.suite import DriverSuite
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu.probes import PROBES
from tests.unit.conformance.test_conformance_expectations import LAVAPIPE

SUITE = DriverSuite()


def ends(interval: Interval) -> tuple[float, float]:
    return float(interval.low[0]), float(interval.high[0])


def number(m: Accuracy, value: float) -> Interval:
    return m.of(np.array([value], m.dtype))


# ---- intervals: limits computed by hand from WGSL's tables


@pytest.mark.parametrize(
    ("m", "interval", "low", "high"),
    [
        (F32, F32.add(number(F32, 1), number(F32, 2.0**-30)), 1, 1 + 2.0**-23),
        (F32, F32.add(number(F32, 1), number(F32, 2)), 3, 3),
        (F16, F16.multiply(number(F16, 3), number(F16, 1 + 2.0**-10)), 3 + 2.0**-9, 3 + 2.0**-8),
        (F32, F32.divide(number(F32, 1), number(F32, 4)), 0.25 - 2.5 * 2.0**-25, 0.25 + 2.5 * 2.0**-25),
        (F32, F32.log(number(F32, 1)), -(2.0**-21), 2.0**-21),
        (F32, F32.log2(number(F32, 8)), 3 - 3 * 2.0**-22, 3 + 3 * 2.0**-22),
        (F16, F16.log2(number(F16, 1.0)), -(2.0**-7), 2.0**-7),
        (F32, F32.exp2(number(F32, 2)), 4 - 7 * 2.0**-21, 4 + 7 * 2.0**-21),
        (F16, F16.exp2(number(F16, 2)), 4 - 5 * 2.0**-8, 4 + 5 * 2.0**-8),
        (F32, F32.sin(number(F32, 0)), -(2.0**-11), 2.0**-11),
        (F32, F32.inverse_sqrt(number(F32, 4)), 0.5 - 2 * 2.0**-24, 0.5 + 2 * 2.0**-24),
        (F32, F32.atan(number(F32, 1)), math.pi / 4 - 4096 * 2.0**-24, math.pi / 4 + 4096 * 2.0**-24),
        (F32, number(F32, 1e-40), 0, float(np.float32(1e-40))),
        (F32, F32.multiply(number(F32, 3e38), number(F32, 10)), -math.inf, math.inf),
        (F32, F32.divide(number(F32, 1), number(F32, 0)), -math.inf, math.inf),
        (F32, F32.divide(number(F32, 1), number(F32, 2.0**127)), -math.inf, math.inf),
        (F32, F32.log(number(F32, -1)), -math.inf, math.inf),
        (F32, F32.sin(number(F32, 4)), -math.inf, math.inf),
    ],
)
def test_an_interval_has_the_limits_of_wgsl(m: Accuracy, interval: Interval, low: float, high: float) -> None:
    assert ends(interval) == pytest.approx((low, high), rel=1e-12)


def test_a_sum_that_float64_cannot_hold_has_both_neighbors() -> None:
    assert ends(F32.add(number(F32, 2.0**100), number(F32, -1))) == (2.0**100 - 2.0**76, 2.0**100)


def test_an_interval_accepts_either_zero_and_anything_where_it_is_free() -> None:
    zero = Interval(np.zeros(2), np.zeros(2))
    assert zero.accepts(np.array([0.0, -0.0], np.float32)).all()
    assert not zero.accepts(np.array([np.nan, 1e-45], np.float32)).any()
    assert zero.free_where(np.array([True, True])).accepts(np.array([np.nan, np.inf], np.float32)).all()


# ---- float functions: NumPy's results must be accepted, wrong ones must not

TRUE: dict[str, Callable[..., object]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "remainder": np.fmod,
    "negate": np.negative, "abs": np.abs, "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
    "asinh": np.arcsinh, "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "ceil": np.ceil, "cos": np.cos,
    "cosh": np.cosh, "degrees": np.degrees, "exp": np.exp, "exp2": np.exp2, "floor": np.floor,
    "fma": lambda x, y, z: x * y + z, "log": np.log, "log_near_1": np.log, "log2": np.log2, "max": np.maximum,
    "min": np.minimum, "mix": lambda x, y, z: x * (1 - z) + y * z, "modf_fract": lambda x: np.modf(x)[0],
    "modf_whole": lambda x: np.modf(x)[1], "frexp_fract": lambda x: np.frexp(x)[0], "pow": np.power,
    "radians": np.radians, "round": np.rint, "saturate": lambda x: np.clip(x, 0, 1), "sign": np.sign, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "step": lambda x, y: (x <= y).astype(float), "tan": np.tan, "tanh": np.tanh,
    "trunc": np.trunc, "inverse_sqrt": lambda x: 1 / np.sqrt(x), "clamp": lambda x, y, z: np.clip(
        x, np.minimum(y, z), np.maximum(y, z)),
    "ldexp": lambda x, y: np.ldexp(x, np.trunc(y).astype(int)),
}  # fmt: skip


@pytest.mark.parametrize("wgsl_type", ["f32", "f16"])
@pytest.mark.parametrize("name", TRUE)
def test_the_rounded_result_of_numpy_is_accepted_and_others_are_not(name: str, wgsl_type: str) -> None:
    m = float_functions.TYPES[wgsl_type]
    case = float_functions.function_case(wgsl_type, name, 1024)
    operands = [operand.astype(np.float64) for operand in case.inputs.values()]
    accepted = case.expected["scalars"]
    assert isinstance(accepted, Accepted)
    with np.errstate(all="ignore"):
        true = np.asarray(TRUE[name](*operands), np.float64).astype(m.dtype)
        wrong = true * m.dtype(1.5) + m.dtype(0.5)
    assert accepted.interval.accepts(true).all(), operands[0][~accepted.interval.accepts(true)][:5]
    rejected = ~accepted.interval.accepts(wrong)
    assert rejected.mean() > 0.15, rejected.mean()


def test_ldexp_is_free_only_beyond_the_bias_and_one() -> None:
    """WGSL: the result is indeterminate if the exponent is greater than the bias and 1."""
    for m, bias in ((F32, 127), (F16, 15)):
        allowed = float_functions.FUNCTIONS["ldexp"].formula(m, number(m, 0.75), number(m, bias + 1))
        assert ends(allowed) == (1.5 * 2.0**bias,) * 2
        beyond = float_functions.FUNCTIONS["ldexp"].formula(m, number(m, 0.75), number(m, bias + 2))
        assert beyond.is_free.all()
        exponents = float_functions.function_case(m.wgsl, "ldexp", 1024).inputs["ys"]
        assert (np.trunc(exponents) == bias + 1).any(), m.wgsl


# ---- exact results


@pytest.mark.parametrize(
    ("name", "operands", "expected"),
    [
        ("u32-divide", (7, 0), 7),
        ("i32-divide", (-7, 2), -3),
        ("i32-divide", (-(2**31), -1), -(2**31)),
        ("i32-remainder", (-7, 2), -1),
        ("i32-remainder", (-(2**31), -1), 0),
        ("u32-countLeadingZeros", (1,), 31),
        ("i32-countLeadingZeros", (-1,), 0),
        ("u32-countTrailingZeros", (0,), 32),
        ("u32-countTrailingZeros", (40,), 3),
        ("i32-firstLeadingBit", (-5,), 2),
        ("i32-firstLeadingBit", (-1,), -1),
        ("u32-firstTrailingBit", (0,), 0xFFFFFFFF),
        ("u32-reverseBits", (1,), 0x80000000),
        ("u32-extractBits", (0xABCD1234, 4, 8), 0x23),
        ("u32-extractBits", (0xABCD1234, 28, 9), 0xA),
        ("u32-extractBits", (5, 32, 1), 0),
        ("i32-extractBits", (0x00000F00, 8, 4), -1),
        ("u32-insertBits", (0, 0xFF, 4 | 4 << 16), 0xF0),
        ("u32-dot4U8Packed", (0xFF020304, 0x02010101), 519),
        ("u32-dot4I8Packed", (0xFF020304, 0x02010101), 7),
        ("u32-pack4xU8", (0x12345678,), 0x681A2B78),
        ("i32-pack4xI8Clamp", (300,), 0x8000017F),
        ("f32-to_i32", (3e9,), 2147483520),
        ("f32-to_u32", (-1.5,), 0),
    ],
)
def test_an_integer_function_has_the_results_of_wgsl(name: str, operands: tuple[int, ...], expected: int) -> None:
    function = integer_functions.FUNCTIONS[name]
    arrays = [np.array([operand], np.float32 if "f32-" in name else np.int64) for operand in operands]
    assert (int(function.function(*arrays)[0]) - expected) % 2**32 == 0


def test_halves_may_be_rounded_either_way() -> None:
    packed = integer_functions.FUNCTIONS["f32-pack2x16float"].function
    accepted = packed(np.array([1 + 2.0**-12], np.float32), np.array([-0.1], np.float32))
    low, high = accepted.interval.low, accepted.interval.high
    assert (low[0], high[0]) == (1, 1 + 2.0**-10) and low[1] < -0.1 < high[1]
    assert float(np.float16(low[1])) == low[1] and accepted.view == "f2"


def test_loops_exceed_65535_rounds() -> None:
    assert max(control_flow.LONG) > 70_000
    assert control_flow.FUNCTIONS["loop_for"].function(70_000) == 70_000
    word = 0
    for _ in range(1000):
        word = (word * 1664525 + 1013904223) % 2**32
    assert control_flow.FUNCTIONS["loop_sum"].function(1000) == word + 1


# ---- names


def test_every_probe_and_every_quirk_has_a_case() -> None:
    names = SUITE.names("quick")
    for probe in PROBES:
        assert probe.avoided, f"{probe.name} does not say what kernels avoid"
        for fact in probe.avoided:
            assert f"driver-probe-{probe.name}-{fact}" in names
    assert {quirk.case for quirk in quirks()} <= set(names)


def test_names_outside_the_profiles_are_accepted_if_they_spell_a_case() -> None:
    assert SUITE.has("driver-f32-exp-128") and SUITE.has("driver-memory-grid-1d_65535")
    assert "driver-memory-grid-1d_65535" not in SUITE.names("quick")
    for name in ("driver-f32-exp", "driver-f32-exp-100", "driver-f32-nothing-64", "driver-probe-float16", "driver-"):
        assert not SUITE.has(name)
    with pytest.raises(InvalidArgument, match="names no case such as driver-f32-exp-1024"):
        SUITE.run("driver-f32-nothing-64", Device("numpy"))


def test_an_adapter_without_shaders_or_features_is_not_supported() -> None:
    device = Device("numpy")
    for name in ("driver-f32-exp-64", "driver-probe-division-native", "driver-subgroup-add"):
        with pytest.raises(NotSupported):
            SUITE.run(name, device)


def test_what_a_probe_avoids_is_printed() -> None:
    outcome = Outcome("driver-probe-float16-pack", Status.FAIL).expected_to_fail("kernels avoid pack2x16float")
    text = "known: kernels avoid pack2x16float, shown by driver-probe-float16-pack"
    assert known_line(outcome, LAVAPIPE) == text


def test_kernels_of_vectors_apply_the_same_function() -> None:
    case: KernelCase = float_functions.function_case("f16", "divide_constant", 64)
    assert "enable f16;" in case.source
    assert "x / f16(1.25)" in case.source and "x / vec4<f16>(1.25)" in case.source
