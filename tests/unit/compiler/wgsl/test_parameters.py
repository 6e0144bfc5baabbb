"""Sizes as parameters of kernels: the rule, division by them, and which shapes share kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmlgpu import DataType, Device, TensorDesc, descs, ops
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.network import Network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Program, RenderedKernel, uniform_bytes
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Policies, Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.parameters import LARGEST_DIVIDED, Parameter
from dmlgpu.compiler.wgsl.parameters import resolve as read_parameters
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.tensors.graphs.graph import Graph

GENERAL = Target("GPU", Profile.DISCRETE, frozenset({"immediates"}), policies=Policies(specialized=False))
HEAD = "struct Params { bases: vec4<u32>, more_bases: vec4<u32>, zero: u32 }\nvar<immediate> params: Params;\n"
MAIN = "@compute @workgroup_size(64)\nfn main() {\n}\n"


def tensor(*sizes: int, strides: tuple[int, ...] | None = None) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes, strides)


def resolved(line: str, largest: int = 100) -> tuple[str, tuple[int, ...]]:
    """Return a line of a kernel with resolved parameters, and the parameters."""
    text, parameters = read_parameters(f"{HEAD}fn f() {{\n{line}\n}}\n{MAIN}", 2, largest, GENERAL)
    return text.partition("fn f() {\n")[2].partition("\n}\n")[0], parameters


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
    line, parameters = resolved(f"let a = {Parameter(0)}u + {Parameter(1)}u + {size - 12}u;")
    assert line == "let a = 0u + parameter0 + parameter1;"
    assert parameters == (1, 0)


def test_a_parameter_with_many_uses_is_read_once():
    size, same = Parameter(12), Parameter(12)
    line, parameters = resolved(f"let a = {size}u + {size}u + {same}u;")
    assert line == "let a = parameter0 + parameter0 + parameter1;"
    assert parameters == (12, 12)


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda size: f"let a = {size}i;", "let a = bitcast<i32>(parameter0);"),
        (lambda size: f"let a = x / {size}.0;", "let a = x / f32(bitcast<i32>(parameter0));"),
        (lambda size: f"var a: array<u32, {size}>;", "var a: array<u32, 12>;"),
        (lambda size: f"let a = array<vec4<f32>, {size}>();", "let a = array<vec4<f32>, 12>();"),
        (lambda size: f"const LAST = {size}u;", "const LAST = 12u;"),
        (lambda size: f"case {size}u: {{}}", "case 12u: {}"),
        (lambda size: f"let a = at[{size}];", "let a = at[12];"),
    ],
)
def test_suffixes_determine_how_parameters_are_read(write: Callable[[Parameter], str], expected: str):
    line, parameters = resolved(write(Parameter(12)))
    assert line == expected
    assert parameters == ((12,) if "parameter0" in expected else ())


@pytest.mark.parametrize("value", [-3, 2**31 - 1, 2**31, 2**32 - 1])
def test_whole_numbers_become_floats_with_their_sign(value: int):
    line, parameters = resolved(f"let a = x / {Parameter(value)}.0;")
    assert line == f"let a = x / f32({'parameter0' if value >= 2**31 else 'bitcast<i32>(parameter0)'});"
    assert parameters == (value % 2**32,)


def test_a_uniform_follows_the_bindings():
    text, parameters = read_parameters(f"{HEAD}fn f() -> u32 {{ return {Parameter(5)}u; }}\n{MAIN}", 2, 10, GENERAL)
    assert "@group(0) @binding(2) var<uniform> sizes: array<vec4<u32>, 1>;" in text
    assert "fn main() {\n    parameter0 = sizes[0].x;\n" in text
    assert parameters == (5,)


def test_without_immediates_parameters_follow_the_parameter_block():
    uniform = HEAD.replace("var<immediate>", "@group(0) @binding(2) var<uniform>")
    text, _ = read_parameters(f"{uniform}fn f() -> u32 {{ return {Parameter(5)}u; }}\n{MAIN}", 2, 10, GENERAL)
    assert "zero: u32, sizes: array<vec4<u32>, 1> }" in text
    assert "parameter0 = params.sizes[0].x;" in text
    assert uniform_bytes((7,), (5,), immediates=False) == bytes([7, *bytes(47), 5, *bytes(15)])
    assert uniform_bytes((7,), (5,), immediates=True) == bytes([5, *bytes(15)])


# ---- division


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a / {}u", "quotient_by(a, parameter0, parameter1)"),
        ("a % {}u", "remainder_by(a, parameter0, parameter1, parameter2)"),
        ("1u + a / {}u", "1u + quotient_by(a, parameter0, parameter1)"),
        ("a * b / {}u", "quotient_by(a * b, parameter0, parameter1)"),
        ("f(a, b[1]).x / {}u", "quotient_by(f(a, b[1]).x, parameter0, parameter1)"),
        ("((a + b) * c[2]) % {}u * 4u", "remainder_by(((a + b) * c[2]), parameter0, parameter1, parameter2) * 4u"),
        (
            "a / {}u % {}u",
            "remainder_by(quotient_by(a, parameter0, parameter1), parameter2, parameter0, parameter1)",
        ),
        ("a / 4u", "a / 4u"),
        ("1.0 / {}.0", "1.0 / f32(bitcast<i32>(parameter0))"),
    ],
)
def test_divisions_by_parameters_become_multiplications(line: str, expected: str):
    size = Parameter(12)
    assert resolved(f"let r = {line.replace('{}', str(size))};")[0] == f"let r = {expected};"


@given(
    number=st.integers(0, LARGEST_DIVIDED - 1) | st.sampled_from([0, 1, LARGEST_DIVIDED - 1]),
    divisor=st.just(1) | st.integers(1, LARGEST_DIVIDED - 1) | st.integers(0, 30).map(lambda bits: (1 << bits) + 1),
    near=st.integers(-1, 1),
)
def test_quotients_by_multiplication_are_exact(number: int, divisor: int, near: int):
    _, (multiplier, shift) = resolved(f"let r = n / {Parameter(divisor)}u;")
    for dividend in (number, min(max(number // divisor * divisor + near, 0), LARGEST_DIVIDED - 1)):
        assert (2 * dividend * multiplier >> 32) >> shift == dividend // divisor
        assert 2 * dividend < 2**32 > multiplier


def test_sizes_of_very_large_tensors_are_divided_without_multipliers():
    assert resolved(f"let r = a / {Parameter(12)}u;", LARGEST_DIVIDED)[0] == "let r = a / parameter0;"


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


@pytest.mark.slow
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
    assert not any(kernel.parameters for kernel in program.kernels)
    assert program.initialization
    assert all(kernel.parameters for kernel in program.initialization)


# ---- the policy


def absolute(size: int) -> OperatorDesc:
    return descs.ElementWiseAbs(input_tensor=tensor(size, 6, strides=(8, 1)), output_tensor=tensor(size, 6))


def program_of(*descriptions: OperatorDesc) -> Program:
    """Return a program with the kernels of several operators."""
    return Program("TEST", tuple(kernel for desc in descriptions for kernel in kernels(desc)))


def are_constant(specializer: Specializer, program: Program) -> list[bool]:
    return [not kernel.parameters for kernel in specializer.specialized(program).kernels]


def test_the_first_sizes_of_a_source_are_constants():
    specializer = Specializer(Specialize.AUTO)
    assert all(kernel.parameters for kernel in program_of(absolute(5)).kernels)
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
    assert are_constant(specializer, program_of(absolute(5), absolute(5))) == [True, True]


def test_all_kernels_of_a_network_are_shared_from_its_second_shape_on():
    def network(size: int, function: Callable[..., Any] = ops.sin) -> Network:
        graph = Graph(Device("numpy"))
        return resolve(graph.desc([ops.abs(function(graph.input((size, 6))))]))

    specializer = Specializer(Specialize.AUTO)
    first, second = program_of(absolute(5)), program_of(absolute(9))
    assert specializer.specialized(first, network(5)) != first
    assert specializer.specialized(first, network(9)) is first
    assert specializer.specialized(first, network(5)) != first
    assert specializer.specialized(second, network(5, ops.cos)) == second  # another network; the source is known


@pytest.mark.parametrize("policy", [Specialize.ALWAYS, Specialize.NEVER])
def test_fixed_policies_do_not_change_programs(policy: Specialize):
    program = program_of(absolute(5))
    assert Specializer(policy).specialized(program) is program


@pytest.mark.parametrize("immediates", [True, False])
@pytest.mark.parametrize("name", SHARED)
def test_constants_replace_parameters(name: str, immediates: bool):
    target = GENERAL if immediates else replace(GENERAL, features=frozenset())
    for general in compile_operator(SHARED[name](7), target).kernels:
        special = general.with_constants
        assert general.parameters and not special.parameters
        assert "sizes" not in special.wgsl.replace("// sizes", "") and "parameter" not in special.wgsl
        assert ("var<uniform>" in special.wgsl) is not immediates
        assert special.wgsl.count("\n@group") == general.wgsl.count("\n@group") - immediates
        assert special.with_constants is special


def test_constants_are_the_parameters_values():
    kernel = RenderedKernel(
        "k",
        "@group(0) @binding(1) var<uniform> sizes: array<vec4<u32>, 2>;\n"
        "var<private> parameter0: u32;\nvar<private> parameter4: u32;\n"
        "@compute @workgroup_size(64)\nfn main() {\n"
        "    parameter0 = sizes[0].x;\n    parameter4 = sizes[1].x;\n"
        "    a = parameter0 * sizes[0].y + bitcast<i32>(parameter4) - bitcast<i32>(sizes[0].z)\n"
        "        * bitcast<f32>(sizes[0].w);\n}",
        (),
        (1, 1, 1),
        parameters=(5, 6, 2**32 - 7, 1065353216, 9),
    )
    assert kernel.with_constants.wgsl == (
        "@compute @workgroup_size(64)\nfn main() {\n"
        "    a = 5u * 6u + 9i - (-7i)\n        * bitcast<f32>(1065353216u);\n}"
    )


@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 24, 641, 65535, 65536, 2**30 - 1, 2**30 + 1, 2**31 - 1])
def test_constants_restore_divisions(divisor: int):
    bits = (divisor - 1).bit_length()
    multiplier = (1 << 31 + bits) // divisor + 1
    call = f"remainder_by((quotient_by(b[f(1u)], {multiplier}u, {bits}u)), {divisor}u, {multiplier}u, {bits}u)"
    file = templates.render("access/division", has_u64=True)
    kernel = RenderedKernel("k", f"x = {call} + 1u;\n{file}fn load() {{}}\n", (), (1, 1, 1), parameters=(0,))
    assert kernel.with_constants.wgsl == f"x = (b[f(1u)] / {divisor}u) % {divisor}u + 1u;\nfn load() {{}}\n"


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
