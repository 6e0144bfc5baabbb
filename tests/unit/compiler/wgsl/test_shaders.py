"""Rules of the shader files, checked on their text and on rendered kernels.

The kernels are those of the quick cases, of one description of each kind with each type, and of some fused plans;
with ``--profile`` those of all standard cases.
"""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import replace

import pytest

from dmlgpu import descs
from dmlgpu.catalog.enums import (
    BFLOAT16,
    AxisDirection,
    ConvolutionDirection,
    ConvolutionMode,
    DataType,
    ReduceFunction,
)
from dmlgpu.catalog.operator_desc import ScaleBias
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.passes.numbers import NUMBER
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.plan import Affine, AffineView, Map, Plan, PlanBinding, PlanTensor, Role, apply, constants
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.target import Division, Float16Conversions, Float16Encoding, Overrides, Policies, Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.library import declarations, uses
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.compiler.wgsl.writer import native_functions
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.suites.graphs import example
from tests.unit.compiler.schedule import test_cooperative_attention as cooperative_attention
from tests.unit.compiler.schedule import test_cooperative_products as cooperative
from tests.unit.compiler.schedule import test_schedule_integers as integers
from tests.unit.compiler.schedule import test_schedule_quantized as quantized
from tests.unit.compiler.schedule.test_schedule_products import product_of_owned_columns
from tests.unit.graph_examples import attention_of_quantized_caches
from tests.unit.runtime.wgpu.test_unchecked_kernels import attention_of_few_rows

pytestmark = pytest.mark.xdist_group("rendered kernels")

FOLDERS = (
    "access",
    "activation",
    "attention",
    "convolution",
    "elementwise",
    "fill",
    "indexing",
    "layout",
    "lib",
    "matrix",
    "normalization",
    "pooling",
    "quantization",
    "random",
    "recurrent",
    "reduction",
    "regions",
    "resampling",
    "scanning",
    "schedules",
    "softmax",
    "sorting",
    "training",
    "window",
)
FILES = [file for folder in FOLDERS for file in templates.files(folder)]
FEATURES = frozenset({"immediates", "shader-int64", "shader-f64"})
TARGETS = (
    Target("CPU", Profile.CPU, FEATURES),
    Target("GPU", Profile.DISCRETE),
    Target("in step", Profile.CPU, FEATURES | {"subgroup"}, subgroup_lanes=8),
    Target(
        "GPU in step", Profile.DISCRETE, frozenset({"shader-f16", "subgroup"}), policies=Policies(deterministic=True)
    ),
)
KEYWORDS = """
alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let
loop override requires return struct switch true var while
"""
# https://www.w3.org/TR/WGSL/#reserved-words
RESERVED_WORDS = """
NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become cast catch class
co_await co_return co_yield coherent column_major common compile compile_fragment concept const_cast consteval
constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit export
extends extern external fallthrough filter final finally friend from fxgroup get goto groupshared highp impl
implements import inline instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut
mutable namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null nullptr of
operator package packoffset partition pass patch pixelfragment precise precision premerge priv protected pub public
readonly ref regardless register reinterpret_cast require resource restrict self set shared sizeof smooth snorm static
static_assert static_cast std subroutine super target template this thread_local throw trait try type typedef typeid
typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with writeonly yield
"""
RESERVED = frozenset(RESERVED_WORDS.split())
FORBIDDEN = RESERVED | frozenset(KEYWORDS.split())
_COMMENT = re.compile(r"//[^\n]*")
_DECLARATION = re.compile(r"^(?:fn|alias|const|struct|var<(?:workgroup|private)>)\s+(\w+)", re.MULTILINE)
_LOCAL = re.compile(r"\b(?:let|var|const)\s+(\w+)")
_PARAMETERS = re.compile(r"^fn\s+\w+\(([^{]*)\)", re.MULTILINE)
_PARAMETER = re.compile(r"(\w+)\s*:")
_IDENTIFIER = re.compile(r"(?<![\w.@])[A-Za-z_]\w*")


# ---- kernels of every operator


def tensor(data_type, *sizes, strides=None):
    return TensorDesc(DataType[data_type], sizes, strides)


def gather(data_type, index_type, strides=None):
    data, index, output = tensor(data_type, 5, 6), tensor(index_type, 3, 1), tensor(data_type, 3, 6, strides=strides)
    counts = {"input_dimension_count": 2, "indices_dimension_count": 2}
    yield descs.GatherNd(input_tensor=data, indices_tensor=index, output_tensor=output, **counts)
    yield descs.GatherNd1(
        input_tensor=data, indices_tensor=index, output_tensor=output, batch_dimension_count=0, **counts
    )


def scatter(data_type, index_type):
    data, updates = tensor(data_type, 5, 6), tensor(data_type, 3, 6)
    yield descs.ScatterElements(
        input_tensor=data, indices_tensor=tensor(index_type, 3, 6), updates_tensor=updates, output_tensor=data, axis=0
    )


def blocks():
    table, picks, output = tensor("FLOAT32", 90, 256), tensor("UINT32", 1, 300), tensor("FLOAT32", 300, 256)
    yield descs.Gather(input_tensor=table, indices_tensor=picks, output_tensor=output, axis=0, index_dimensions=1)


def convolutions():
    """Return convolutions, one of which is large enough for Winograd's filtering."""
    image = tensor("FLOAT32", 1, 8, 16, 16)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "start_padding": (1, 1), "end_padding": (1, 1)}
    yield descs.Convolution(
        input_tensor=image,
        filter_tensor=tensor("FLOAT32", 8, 8, 3, 3),
        bias_tensor=None,
        output_tensor=image,
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=ConvolutionDirection.FORWARD,
        output_padding=(0, 0),
        group_count=1,
        **attributes,
    )


def slices(data_type):
    whole, part = tensor(data_type, 5, 6), tensor(data_type, 2, 6)
    yield descs.Slice(input_tensor=whole, output_tensor=part, offsets=(1, 0), sizes=(2, 6), strides=(2, 1))
    window = {"input_window_offsets": (1, 0), "input_window_sizes": (3, 6), "input_window_strides": (-2, 1)}
    yield descs.Slice1(input_tensor=whole, output_tensor=part, **window)


def elementwise(data_type, strides=None):
    a, output = tensor(data_type, 4, 8), tensor(data_type, 4, 8, strides=strides)
    yield descs.ElementWiseIdentity(input_tensor=a, output_tensor=output)
    if data_type != "FLOAT64":
        yield descs.ElementWiseIdentity(
            input_tensor=a, output_tensor=output, scale_bias=ScaleBias(scale=2.0, bias=float("inf"))
        )
        divisions = () if data_type.startswith("FLOAT") else (descs.ElementWiseDivide, descs.ElementWiseModulusFloor)
        products = descs.ElementWiseMultiply, descs.ElementWiseDifferenceSquare
        for desc_class in (descs.ElementWiseSubtract, *products, *divisions):
            yield desc_class(a_tensor=a, b_tensor=a, output_tensor=output)


def reductions(data_type, count):
    source, places = tensor(data_type, 2, count), tensor("INT64", 2, 1)
    for desc_class in (descs.Argmin, descs.Argmax):
        for direction in AxisDirection:
            yield desc_class(input_tensor=source, output_tensor=places, axes=(1,), axis_direction=direction)
    if data_type not in ("INT8", "UINT16"):
        result = tensor(data_type, 2, 1)
        yield descs.Reduce(function=ReduceFunction.SUM, input_tensor=source, output_tensor=result, axes=(1,))
    yield descs.Reduce(function=ReduceFunction.ARGMIN, input_tensor=source, output_tensor=places, axes=(1,))


def typed_descriptions():
    """Yield operators of every kind with every data type, and tensors in every layout."""
    types = [data_type.name for data_type in DataType if data_type is not DataType.UNKNOWN and data_type.bits >= 8]
    for data_type in types:
        yield from elementwise(data_type)
        yield from slices(data_type)
        for index_type in ("INT32", "UINT32", "INT64", "UINT64"):
            yield from gather(data_type, index_type)
        yield from scatter(data_type, "INT64")
        for other in types:
            yield descs.Cast(input_tensor=tensor(data_type, 4, 8), output_tensor=tensor(other, 4, 8))
    for strides in ((1, 4), (11, 2), (9, 10)):
        yield from elementwise("FLOAT16", strides)
        yield from elementwise("FLOAT32", strides)
    yield from gather("UINT8", "UINT64", (3, 4))
    yield from blocks()
    yield from convolutions()
    for data_type in ("FLOAT32", "FLOAT16", "INT8", "UINT16", "INT32", "UINT32", "INT64", "UINT64"):
        for count in (5, 1000, 1 << 20):
            yield from reductions(data_type, count)


def fused_plans():
    """Yield trees as in graphs: slices and casts of computed values, float64 among words."""
    for data_type in (DataType.FLOAT16, BFLOAT16, DataType.INT8, DataType.INT64, DataType.UINT64):
        for count in (3, 6, 8):
            x = source(data_type, count)
            difference = apply("elementwise/element_wise_subtract", data_type, (count,), a=x, b=x)
            seen = AffineView(difference, (count,), Affine.box((0,)))
            yield fused(apply("elementwise/element_wise_multiply", data_type, (count,), a=seen, b=difference))
            yield fused(apply("elementwise/cast", DataType.INT32, (count,), portable=True, input=difference))
    three = apply(NUMBER, DataType.FLOAT16, (8,), portable=True, values=constants(compute=DataType.FLOAT32, number=3.0))
    halves = source(DataType.FLOAT16, 8)
    yield fused(apply("elementwise/element_wise_add", DataType.FLOAT16, (8,), a=halves, b=three))
    double = DataType.FLOAT64
    values = constants(compute=double, scale=2.0, bias=1.0)
    scaled = apply("elementwise/scale_bias", double, (3,), values=values, input=source(double, 3))
    yield fused(apply("elementwise/cast", DataType.FLOAT32, (3,), portable=True, input=scaled))
    widened = apply("elementwise/cast", double, (3,), portable=True, input=source(DataType.FLOAT32, 3))
    yield fused(apply("elementwise/scale_bias", double, (3,), values=values, input=widened))


def source(data_type, count):
    return PlanTensor(PlanBinding(Role.INPUT, 0), data_type, (count,), (1,))


def fused(body):
    output = PlanTensor(PlanBinding(Role.OUTPUT, 0), body.data_type, body.sizes, (1,))
    return Plan("FUSED", (Map("map", body, output),))


@functools.cache
def case_descriptions(stem, profile):
    """Yield the descriptions of an operator's quick cases, which cover every line of its shaders."""
    return tuple(case_by_name(name).desc for name in OPERATOR_CASES[stem].names(profile))


@functools.cache
def kernels(part, profile):
    """Return the distinct kernels of an operator's cases, of the typed descriptions or the fused plans, by source."""
    if part == "fused":
        programs = [render(schedule(plan, TARGETS[0])) for plan in fused_plans()]
    else:
        cases = tuple(typed_descriptions()) if part == "typed" else case_descriptions(part, profile)
        pairs = [*itertools.product(cases, TARGETS[:3]), *itertools.product(cases[::3], TARGETS[3:])]
        programs = [program for desc, target in pairs if (program := rendered(desc, target))]
    return {kernel.wgsl: kernel.label for program in programs for kernel in (*program.kernels, *program.initialization)}


PARTS = ("typed", "fused", *OPERATOR_CASES)


@pytest.fixture
def profile(pytestconfig):
    """Profile whose cases are rendered."""
    return "standard" if pytestconfig.getoption("--profile") else "quick"


@pytest.fixture
def texts(profile):
    """Sources of all kernels."""
    return [text for part in PARTS for text in kernels(part, profile)]


def rendered(desc, target):
    """Return an operator's program; None if the target may reject it because it lacks 64-bit arithmetic."""
    try:
        return compiler.compile_operator(desc, target)
    except NotSupported as error:
        assert "needs the adapter feature shader-" in str(error) and target is not TARGETS[0]
        return None


def texts_of_integer_products():
    """Return kernels of integer products of few and many rows, which only graphs compute."""
    sizes = ((1, 128), (1, 4096), (8, 128), (64, 128))
    programs = [integers.compiled_product(integers.GPU, rows, columns=columns).program for rows, columns in sizes]
    return [kernel.wgsl for program in programs for kernel in program.kernels]


def included_files():
    return {
        include for file in FILES for include in re.findall(r'{% (?:include|import) "(\S+)"', templates.source(file))
    }


# ---- rules


def test_every_folder_is_known():
    folders = {entry.name for entry in templates.root().iterdir()}
    assert folders == set(FOLDERS)


def test_a_file_starts_with_a_header_comment():
    assert [file for file in FILES if len(templates.header(file)) <= 10] == []


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_tidy(file):
    text = templates.source(file)
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert "\t" not in text and "\r" not in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("operator", sorted(operators.implemented()))
def test_the_header_of_an_operators_shader_names_it(operator):
    files = operators.shader_files(operator)
    named = any(operator in re.split(r"[ ,:]", templates.header(file)) for file in files)
    assert not files or named, f"the header of none of {files} names {operator}"


@pytest.mark.parametrize("operator", sorted(operators.implemented()))
def test_an_operator_has_a_shader_or_becomes_another_operator(operator):
    if operators.shader_files(operator):
        return
    upgraded = {operators.upgrade(desc).operator for desc in case_descriptions(operator.lower(), "quick")}
    assert upgraded and operator not in upgraded
    assert all(operators.shader_files(newer) for newer in upgraded)


@pytest.mark.slow
def test_every_file_is_rendered_by_some_operator(texts):
    table = TensorDesc(DataType.FLOAT32, (64, 64))
    indices, rows = TensorDesc(DataType.UINT32, (1, 5)), TensorDesc(DataType.FLOAT32, (5, 64))
    gather = descs.Gather(input_tensor=table, indices_tensor=indices, output_tensor=rows, axis=0, index_dimensions=1)
    in_parts = compiler.compile_operator(gather, Target("small bindings", max_binding_size=8192))
    general = compiler.compile_operator(gather, Target("shared kernels", policies=Policies(specialized=False)))
    convolution = case_by_name("convolution-float32-1x16x14x14-packed-s0").desc
    windows = compiler.compile_operator(
        convolution, Target("GPU", Profile.DISCRETE, overrides=Overrides(schedule="shared"))
    )
    products = [quantized.compiled(target, rows) for target in (quantized.CPU, quantized.GPU) for rows in (1, 64)]
    products += [quantized.compiled(quantized.CPU, columns=128, owned=True), product_of_owned_columns(1, 352, 192)]
    multiplied = (
        cooperative.gemm(128, 32, 128),
        cooperative.convolution(64, 64),
        cooperative_attention.attention(),
    )
    matrix_units = [compiler.compile_operator(desc, cooperative.GPU) for desc in multiplied]
    matrix_units.append(compiler.compile_operator(cooperative.integer_product(128, 64, 128), cooperative.INTEGERS))
    few_rows = compiler.compile_operator(attention_of_few_rows(), Target("GPU", Profile.DISCRETE))
    network = resolve(attention_of_quantized_caches(DataType.FLOAT32, 4))
    blocks = compile_network(network, Target("GPU", Profile.DISCRETE)).program
    tied = compile_network(resolve(example("pattern-tied_columns-float32-plain").graph), quantized.CPU).program
    caches = compile_network(resolve(example("pattern-updated_cache-float32-plain").graph), quantized.CPU).program
    rotated = resolve(example("pattern-rotated_columns-float32-plain").graph)
    columns = compile_network(rotated, replace(quantized.GPU, max_storage_buffers=16)).program
    graphs = [few_rows, blocks, tied, caches, columns, *(product.program for product in products)]
    programs = [in_parts, general, windows, *matrix_units, *graphs]
    texts = [*texts, *texts_of_integer_products(), *(kernel.wgsl for program in programs for kernel in program.kernels)]
    rendered = set(re.findall(r"^// ---- shaders/(\S+)\.wgsl$", "\n".join(texts), re.MULTILINE))
    idle = {file for file in FILES if not file.startswith("lib/")} - rendered - included_files()
    assert not idle, f"no quick case renders {sorted(idle)}: delete them, or run python scripts/choose_quick.py"


OFFERED = {"erfc_f32"}
"""Functions that the library has for completeness: no operator needs the complement over its full range."""


@pytest.mark.slow
def test_every_library_function_but_those_only_offered_is_used_by_some_kernel(texts):
    """Hardware functions have the name of the function that they replace."""
    by_hardware = {
        function
        for encoding, division in itertools.product(Float16Encoding, Division)
        for function in native_functions(Float16Conversions(True, encoding), division).values()
    }
    by_hardware |= {function for name in by_hardware for function in uses(name)}
    used = frozenset().union(*map(_DECLARATION.findall, [*texts, *texts_of_integer_products()]))
    assert declarations().keys() - by_hardware - used == OFFERED


def names_of(text):
    """Return module-level names, and names of locals and parameters, of a source."""
    code = _COMMENT.sub("", text)
    parameters = {name for signature in _PARAMETERS.findall(code) for name in _PARAMETER.findall(signature)}
    module = set(_DECLARATION.findall(code)) | set(re.findall(r"^@group.* (\w+):", code, re.MULTILINE)) | {"params"}
    locals_ = {name for line in code.splitlines() if line.startswith(" ") for name in _LOCAL.findall(line)}
    one_liners = {name for line in code.splitlines() if line.startswith("fn ") for name in _LOCAL.findall(line)}
    return module, parameters | locals_ | one_liners


def test_declared_names_are_distinguished():
    text = (
        "alias a_t = u32;\nvar<workgroup> parts: u32;\nfn f(x: u32, y: ptr<function, u32>) -> u32 {\n    var z = 1u;\n"
    )
    assert names_of(text) == ({"a_t", "parts", "f", "params"}, {"x", "y", "z"})


@pytest.mark.parametrize("part", PARTS)
def test_names_of_a_kernel_are_unique(part, profile):
    """No local name hides one of the kernel or the library; none is declared twice; none is reserved."""
    for text, label in kernels(part, profile).items():
        module, local = names_of(text)
        assert local & (module | declarations().keys()) == set(), label
        names = _DECLARATION.findall(text)
        assert len(names) == len(set(names)), label
        assert (module | local) & FORBIDDEN == set(), label
        assert RESERVED.isdisjoint(_IDENTIFIER.findall(_COMMENT.sub("", text))), label


@pytest.mark.parametrize("part", PARTS)
def test_kernels_have_no_leftovers_of_the_template_language(part, profile):
    for text, label in kernels(part, profile).items():
        assert not re.search(r"{[{%]|[%}]}(?!\))|^\s*# ", text, re.MULTILINE), label
        assert "--" not in _COMMENT.sub("", text), label  # two signs are WGSL's decrement
        assert [line for line in text.splitlines() if line != line.rstrip()] == [], label
