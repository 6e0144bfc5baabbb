"""Sizes as parameters of kernels: the rule, their names in sources, division, and which shapes share kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dmlgpu import DataType, Device, TensorDesc, descs, ops
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.linker import Interface
from dmlgpu.compiler.program import KernelSource, Program, RenderedKernel, uniform_bytes
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Policies, Profile, Target
from dmlgpu.compiler.wgsl import names, templates
from dmlgpu.compiler.wgsl.parameters import LARGEST_DIVIDED, FloatParameter, Parameter
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.tensors.graphs.graph import Graph

GENERAL = Target("GPU", Profile.DISCRETE, frozenset({"immediates"}), policies=Policies(specialized=False))


def tensor(*sizes: int, strides: tuple[int, ...] | None = None) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes, strides)


def rendered(template: str, largest: int = 100, **values: Any) -> tuple[str, tuple[int, ...]]:
    """Return the text of a template with values, and the parameters of its kernel."""
    own = names.Names(largest)
    with names.active(own):
        text = templates.environment().from_string(template).render(values)
    return text, own.parameters


def kernels(desc: OperatorDesc) -> tuple[RenderedKernel, ...]:
    return compile_operator(desc, GENERAL).kernels


# ---- the rule


def test_results_of_arithmetic_on_parameters_are_parameters():
    size = Parameter(12)
    results = [size + 1, 1 + size, size - 20, 20 - size, size * 3, size // 5, 60 // size, size % 5, 17 % size, -size]
    assert results == [13, 13, -8, 8, 36, 2, 5, 2, 5, -12]
    assert all(isinstance(result, Parameter) for result in results)
    assert isinstance(sum([size, size]), Parameter)
    assert (size == 12, type(size / 2)) == (True, float)


def test_a_field_that_is_0_is_a_literal():
    size = Parameter(12)
    sizes = {"zero": Parameter(0), "one": Parameter(1), "computed": size - 12}
    line, parameters = rendered("let a = {{ zero }}u + {{ one }}u + {{ computed }}u;", **sizes)
    assert line == "let a = 0u + sizes.s0u + sizes.s1u;"
    assert parameters == (1, 0)


def test_a_size_with_many_uses_is_one_parameter():
    sizes = {"size": Parameter(12), "same": Parameter(12)}
    line, parameters = rendered("let a = {{ size }}u + {{ size }}u + {{ same }}u;", **sizes)
    assert line == "let a = sizes.s0u + sizes.s0u + sizes.s1u;"
    assert parameters == (12, 12)


@pytest.mark.parametrize(
    ("template", "expected", "plain"),
    [
        ("let a = {{ size|i32 }};", "let a = bitcast<i32>(sizes.s0u);", "let a = 12i;"),
        ("let a = {{ size|f32 }};", "let a = f32(bitcast<i32>(sizes.s0u));", "let a = 12.0;"),
        ("var a: array<u32, {{ size|constant }}>;", "var a: array<u32, 12>;", "var a: array<u32, 12>;"),
        ("let a = {{ size + 1 }}u;", "let a = sizes.s0u;", "let a = 13u;"),
    ],
)
def test_templates_say_how_sizes_are_read(template: str, expected: str, plain: str):
    line, parameters = rendered(template, size=Parameter(12))
    assert line == expected
    assert len(parameters) == ("sizes" in expected)
    assert rendered(template, size=12) == (plain, ())


@pytest.mark.parametrize("value", [-3, 2**31 - 1, 2**31, 2**32 - 1])
def test_whole_numbers_become_floats_with_their_sign(value: int):
    line, parameters = rendered("x / {{ size|f32 }}", size=Parameter(value))
    assert line == f"x / f32({'sizes.s0u' if value >= 2**31 else 'bitcast<i32>(sizes.s0u)'})"
    assert parameters == (value % 2**32,)


def test_attributes_are_bits():
    own = names.Names()
    with names.active(own):
        half = FloatParameter(0.5)
        assert (half.text, half.text) == ("bitcast<f32>(sizes.s0u)",) * 2
    assert own.parameters == (0x3F000000,)


def test_a_uniform_has_the_parameter_block_unless_it_comes_as_immediates():
    assert uniform_bytes((7,), (5,), immediates=False) == bytes([7, *bytes(63), 5, *bytes(15)])
    assert uniform_bytes((7,), (5,), immediates=True) == bytes([5, *bytes(15)])


# ---- division


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ('{{ div("a", size) }}', "div_s0(a)"),
        ('{{ mod("a + b", size) }}', "mod_s0(a + b)"),
        ('{{ mod(div("a", size), other) }} * {{ size }}u', "mod_s1(div_s0(a)) * sizes.s0u"),
        ('{{ div("a", 4) }} + {{ mod("a", 4) }}', "a / 4u + a % 4u"),
        ('{{ div("a", size - 12) }}', "a / sizes.s0u"),  # what is divided by zero is never used
    ],
)
def test_sizes_are_divided_by_through_functions(template: str, expected: str):
    text, parameters = rendered(template, size=Parameter(12), other=Parameter(5))
    assert text == expected
    sizes = len(set(re.findall(r"s(\d)", expected)) - {""})
    assert len(parameters) == sizes + 2 * len(set(re.findall(r"(?:div|mod)_s(\d)", expected)))


@pytest.mark.parametrize("divisor", [1, 7, 2**30 + 1, LARGEST_DIVIDED - 1])
def test_divisors_bring_a_multiplier_and_a_shift(divisor: int):
    _, (size, multiplier, shift) = rendered('{{ div("a", size) }}', size=Parameter(divisor))
    assert size == divisor and multiplier < 2**32
    for number in (0, divisor - 1, divisor, LARGEST_DIVIDED - 1):
        assert (2 * number * multiplier >> 32) >> shift == number // divisor


def test_sizes_of_very_large_tensors_are_divided_without_multipliers():
    template = '{{ div("a", size) }} + {{ mod("a", size) }}'
    assert rendered(template, LARGEST_DIVIDED, size=Parameter(12)) == ("a / sizes.s0u + a % sizes.s0u", (12,))
    assert rendered(template, LARGEST_DIVIDED - 1, size=Parameter(12))[0] == "div_s0(a) + mod_s0(a)"


# ---- shared kernels


SHARED: dict[str, Callable[[int], OperatorDesc]] = {
    "addition of a row": lambda n: descs.ElementWiseAdd(
        a_tensor=tensor(n, 7 * n), b_tensor=tensor(n, 7 * n, strides=(0, 1)), output_tensor=tensor(n, 7 * n)
    ),
    "softmax": lambda n: descs.ActivationSoftmax1(
        input_tensor=tensor(3, n, 33), output_tensor=tensor(3, n, 33), axes=(2,)
    ),
    "product": lambda n: descs.Gemm(
        a_tensor=tensor(1, 1, 64 * n, 128),
        b_tensor=tensor(1, 1, 128, 64 * n),
        output_tensor=tensor(1, 1, 64 * n, 64 * n),
    ),
    "transposition": lambda n: descs.ElementWiseIdentity(
        input_tensor=tensor(2, 8, 4 * n, strides=(32 * n, 1, 8)), output_tensor=tensor(2, 8, 4 * n)
    ),
    "attribute": lambda n: descs.ActivationLeakyRelu(
        input_tensor=tensor(4 * n), output_tensor=tensor(4 * n), alpha=n / 100
    ),
    "window": lambda n: descs.AveragePooling(
        input_tensor=tensor(1, 2, 5 * n, 5 * n),
        output_tensor=tensor(1, 2, 5 * n - 2, 5 * n - 2),
        strides=(1, 1),
        window_size=(3, 3),
        start_padding=(0, 0),
        end_padding=(0, 0),
        include_padding=False,
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_sizes_share_kernels(name: str):
    first, second = (kernels(SHARED[name](n)) for n in (5, 9))
    assert [kernel.source for kernel in first] == [kernel.source for kernel in second]
    assert [kernel.wgsl for kernel in first] == [kernel.wgsl for kernel in second]
    assert [kernel.parameters for kernel in first] != [kernel.parameters for kernel in second]


def test_different_layouts_have_different_kernels():
    packed, padded = (tensor(5, 8, strides=strides) for strides in (None, (12, 1)))
    (first,), (second,) = (
        kernels(descs.ElementWiseAbs(input_tensor=each, output_tensor=packed)) for each in (packed, padded)
    )
    assert first.wgsl != second.wgsl


def transformer(layers: int, heads: int, width: int, length: int) -> Network:
    """Return a network of transformer layers, as many as given."""
    graph = Graph(Device("numpy"), rules="numpy")
    hidden = graph.input((1, length, width))

    def linear(x: Any, size: int) -> Any:
        return x @ graph.constant(np.full((x.shape[-1], size), 0.5, np.float32))

    for _ in range(layers):
        x = ops.layer_norm(hidden)
        query, key, value = (
            ops.transpose(ops.reshape(linear(x, width), (1, length, heads, width // heads)), (0, 2, 1, 3))
            for _ in range(3)
        )
        attended = ops.softmax(query @ ops.transpose(key, (0, 1, 3, 2))) @ value
        hidden = hidden + linear(ops.reshape(ops.transpose(attended, (0, 2, 1, 3)), (1, length, width)), width)
        hidden = hidden + linear(ops.gelu(linear(ops.layer_norm(hidden), 4 * width)), width)
    return resolve(graph.desc([hidden]))


def test_another_model_of_the_same_kinds_of_layers_shares_most_kernels():
    """They are then in the driver's cache, also on disk. With constants, fewer would be shared."""
    models = transformer(2, 4, 64, 32), transformer(3, 6, 96, 40)

    def sources(target: Target) -> list[set[str]]:
        return [{kernel.wgsl for kernel in compile_network(model, target).program.kernels} for model in models]

    first, second = sources(GENERAL)
    assert len(first & second) > len(second) / 2
    special_first, special_second = sources(GENERAL.with_policies(specialized=True))
    assert len(special_first & special_second) < len(first & second)


def test_a_specialized_target_has_no_parameters_but_for_initialization():
    filter_tensor = TensorDesc(DataType.FLOAT32, (8, 4, 3, 3), flags=1)
    desc = descs.Convolution(
        input_tensor=tensor(1, 4, 20, 20),
        filter_tensor=filter_tensor,
        output_tensor=tensor(1, 8, 18, 18),
        start_padding=(0, 0),
        end_padding=(0, 0),
    )
    program = compile_operator(desc, Target("GPU", Profile.DISCRETE))
    assert not any(kernel.given for kernel in program.kernels)
    assert program.initialization
    assert all(kernel.given for kernel in program.initialization)


# ---- the policy


def absolute(size: int) -> OperatorDesc:
    return descs.ElementWiseAbs(input_tensor=tensor(size, 6, strides=(8, 1)), output_tensor=tensor(size, 6))


def program_of(*descriptions: OperatorDesc) -> Program:
    """Return a program with the kernels of several operators."""
    return Program("TEST", tuple(kernel for desc in descriptions for kernel in kernels(desc)))


def are_constant(specializer: Specializer, program: Program) -> list[bool]:
    return [not kernel.given for kernel in specializer.specialized(program).kernels]


def test_the_first_sizes_of_a_source_are_constants():
    specializer = Specializer(Specialize.AUTO)
    assert all(kernel.given for kernel in program_of(absolute(5)).kernels)
    assert [are_constant(specializer, program_of(absolute(size))) for size in (5, 9, 5, 13)] == [
        [True],
        [False],
        [True],
        [False],
    ]


def test_a_source_that_a_program_uses_with_several_sizes_is_shared():
    specializer = Specializer(Specialize.AUTO)
    sine = descs.ElementWiseSin(input_tensor=tensor(5), output_tensor=tensor(5))
    assert are_constant(specializer, program_of(absolute(5), absolute(9), sine)) == [False, False, True]
    assert are_constant(specializer, program_of(absolute(5), absolute(5))) == [False, False]  # its pipeline exists
    assert are_constant(specializer, program_of(sine)) == [True]


@pytest.mark.parametrize("policy", [Specialize.ALWAYS, Specialize.NEVER])
def test_fixed_policies_do_not_change_programs(policy: Specialize):
    program = program_of(absolute(5))
    assert Specializer(policy).specialized(program) is program


@pytest.mark.parametrize("immediates", [True, False])
@pytest.mark.parametrize("name", SHARED)
def test_constants_replace_parameters(name: str, immediates: bool):
    """A special kernel is the same body with constants, which need no uniform of their own."""
    target = GENERAL if immediates else replace(GENERAL, features=frozenset())
    for general in compile_operator(SHARED[name](7), target).kernels:
        special = general.with_constants
        interface = general.source.interface
        assert interface is not None and general.given == general.parameters and special.given == ()
        assert special.source is general.source and special.parameters == general.parameters
        values = ", ".join(f"{value}u" for value in general.parameters[: interface.sizes])
        assert f"const sizes = Sizes({values});\n" in special.wgsl and "const sizes" not in general.wgsl
        assert ("var<uniform>" in special.wgsl) is not immediates
        assert special.wgsl.count("\n@group") == general.wgsl.count("\n@group") - immediates
        assert special.wgsl.endswith(general.source.body) and general.wgsl.endswith(general.source.body)
        assert special.with_constants == special
        assert (special.needs_uniform(immediates), general.needs_uniform(immediates)) == (not immediates, True)


def test_a_kernel_without_sizes_has_no_special_one():
    kernel = RenderedKernel("k", KernelSource("", Interface(())), (), (1, 1, 1))
    assert kernel.with_constants is kernel


def test_the_environment_and_the_argument_choose(monkeypatch: pytest.MonkeyPatch):
    assert Device("numpy").backend.specializer.policy is Specialize.AUTO
    assert Device("numpy", deterministic=True).backend.specializer.policy is Specialize.ALWAYS
    monkeypatch.setenv("DMLGPU_SPECIALIZE", "Never")
    assert Device("numpy").backend.specializer.policy is Specialize.NEVER
    assert Device("numpy", specialize="always").backend.specializer.policy is Specialize.ALWAYS
    monkeypatch.setenv("DMLGPU_SPECIALIZE", "sometimes")
    with pytest.raises(
        InvalidArgument,
        match=r"^the environment variable DMLGPU_SPECIALIZE must be one of auto, always, never, got 'sometimes'$",
    ):
        Device("numpy")
    with pytest.raises(InvalidArgument, match=r"^Device: specialize must be one of auto, always, never, got True$"):
        Device("numpy", specialize=True)  # type: ignore[arg-type]
