"""Printed plans, schedules and programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import DataType, Graph, TensorDesc, descs
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler import operators
from dmlgpu.compiler.explain import multiplications
from dmlgpu.compiler.graph.compiler import plan_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.plan import Map, Plan, PlanTensor, RegisterValue, Role, RotatedContract, Step, apply
from dmlgpu.compiler.plan.parts import read, written
from dmlgpu.compiler.plan.text import describe, equations
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.base import in_turns
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Policies, Profile, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.compiler.wgsl.render import render
from dmlgpu.conformance.cases.registry import OPERATOR_CASES
from dmlgpu.conformance.suites.graphs import example
from dmlgpu.ops import directml as functions

CPU = Target("CPU", Profile.CPU, frozenset({"immediates"}))
GPU = Target("GPU", Profile.DISCRETE, frozenset({"immediates"}), policies=Policies(deterministic=True))


def floats(*sizes: int) -> TensorDesc:
    return TensorDesc(DataType.FLOAT32, sizes)


GATHER = descs.GatherNd1(
    input_tensor=floats(4, 8),
    indices_tensor=TensorDesc(DataType.UINT32, (3, 1)),
    output_tensor=floats(3, 8),
    input_dimension_count=2,
    indices_dimension_count=2,
    batch_dimension_count=0,
)


def test_a_plan_prints_equations_reads_and_writes() -> None:
    assert str(operators.lower(GATHER)) == (
        "plan of GATHER_ND1: 1 step\n"
        "  1. map gather\n"
        "       output 0 = gather_nd1(input 0, input 1, batch=0, tuple=1, lead=1)\n"
        "       reads  input 0 FLOAT32 [4, 8]\n"
        "              input 1 UINT32 [3, 1]\n"
        "       writes output 0 FLOAT32 [3, 8]"
    )


def test_a_product_prints_the_normalization_of_its_rows() -> None:
    graph = Graph()
    x = functions.mean_variance_normalization2(
        graph.input((1, 64)), graph.input((1, 64)), axes=(1,), use_mean=False, epsilon=0.125
    )
    weights = functions.dequantize(
        graph.input((8, 64), DataType.UINT4), (graph.input((8, 2)),), quantization_type="scale"
    )
    desc = graph.desc([functions.gemm(x, weights, trans_b="transpose")])
    text = str(plan_network(resolve(desc), Target("GPU", Profile.DISCRETE)).plan)
    assert "product = sum over 2 x 32 of input 0 * input 1 / sqrt(mean of input 0 ^ 2 + 0.125) * " in text, text


def test_a_product_prints_what_is_stored_of_its_columns() -> None:
    """It reads its operands and the factors of the rotation, and writes queries, keys and values."""
    network = resolve(example("pattern-rotated_columns-float32-plain").graph)
    plan = plan_network(network, replace(GPU, max_storage_buffers=16)).plan
    step, *_ = (step for step in plan.steps if isinstance(step, RotatedContract))
    product, partners, *stored = equations(step)
    assert product.startswith("product = sum over") and product.endswith(": 4 rows by 96 columns")
    assert partners == "product.x and product.y = product of a column, and of the one 1 columns from it"
    assert sum("cached(" in line for line in stored) == 2
    assert len({tensor.binding for tensor in read(step)}) == 5 and len(written(step)) == 3
    assert multiplications(step) == 4 * 96 * 32


def test_a_schedule_prints_reasons() -> None:
    assert str(schedule(operators.lower(GATHER), CPU)) == (
        "schedule of GATHER_ND1 for 'CPU' (cpu): 1 kernel\n"
        "  1. gather (map): 6 items in units of 4 elements, 1 x 1 x 1 workgroups of 256\n"
        "       why: 4 elements are contiguous in all tensors, and become one unit"
    )


def test_a_program_prints_bindings_and_shader_files() -> None:
    assert str(render(schedule(operators.lower(GATHER), CPU))) == (
        "program of GATHER_ND1: 1 kernel, 0 bytes temporary (at least 0), 0 bytes persistent\n"
        "  1. gather_nd1 gather x4: 1 x 1 x 1 workgroups of 256\n"
        "       binding 0: output 0, 96 bytes\n"
        "       binding 1: input 0, 128 bytes\n"
        "       binding 2: input 1, 12 bytes\n"
        "       shaders: indexing/gather_nd1, schedules/map, lib/index"
    )


def test_tensors_print_strides_offsets_and_lanes_only_if_they_matter() -> None:
    packed = PlanTensor.of(Role.INPUT, 0, floats(2, 1, 3))
    assert str(packed) == "input 0 FLOAT32 [2, 1, 3]"
    assert str(PlanTensor(packed.binding, DataType.INT8, (2, 1, 3), (3, 99, 1))) == "input 0 INT8 [2, 1, 3]"
    turned = PlanTensor(packed.binding, DataType.INT8, (2, 3), (1, 2), offset=4, lanes=2)
    assert str(turned) == "input 0 INT8 [2, 3] strides [1, 2] from element 4 x2"
    assert str(PlanTensor.temporary("sums", DataType.INT32, (5,))) == "temporary 'sums' INT32 [5]"


def test_values_that_are_read_twice_get_a_name() -> None:
    """A chain of additions of a value to itself: 40 lines, where a nested text would take 2 ** 40 times as much."""
    tensor = PlanTensor.of(Role.INPUT, 0, floats(8))
    body = apply("activation/activation_relu", DataType.FLOAT32, (8,), input=tensor)
    for _ in range(40):
        body = apply("elementwise/element_wise_add", DataType.FLOAT32, (8,), a=body, b=body)
    lines = equations(Map("", body, PlanTensor.of(Role.OUTPUT, 0, floats(8))))
    assert len(lines) == 41
    assert lines[:2] == ["v1 = activation_relu(input 0)", "v2 = element_wise_add(v1, v1)"]
    assert lines[-1] == "output 0 = element_wise_add(v40, v40)"


def test_a_kind_of_step_without_equations_is_named() -> None:
    with pytest.raises(TypeError, match="no equations for Step"):
        equations(Step("x"))


def test_an_empty_plan() -> None:
    assert describe(Plan("EMPTY", ())) == "plan of EMPTY: 0 steps"


def test_equations_name_register_values() -> None:
    held = apply("elementwise/cast", DataType.FLOAT32, (2,), input=RegisterValue.product(DataType.INT32, (2,)))
    output = PlanTensor.of(Role.OUTPUT, 3, floats(2))
    assert equations(Map("", held, output)) == ["output 3 = cast(product)"]
    assert equations(Map("", identity(output), output)) == ["output 3 = element_wise_identity(output 3)"]


@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.name)
def test_every_operator_has_equations_and_every_kernel_a_reason(target: Target) -> None:
    """One case of each operator: equations name every resource that is read or written, and kernels have reasons."""
    silent, unnamed, planned = [], [], 0
    for cases in OPERATOR_CASES.values():
        desc = cases.case(cases.names("standard")[0]).desc
        try:
            plan = operators.lower(desc)
            chosen = schedule(plan, target)
        except NotSupported:
            continue  # 64-bit types, which this target lacks
        planned += 1
        for step in plan.steps:
            text = "\n".join(equations(step))
            tensors = (*read(step), *written(step))
            unnamed += [f"{desc.operator}: {tensor.binding}" for tensor in tensors if str(tensor.binding) not in text]
        kernels = [kernel for steps in (chosen.steps, chosen.initialization) for kernel, _ in in_turns(steps)]
        silent += [f"{desc.operator}: {kernel.label}" for kernel in kernels if not kernel.reason]
        assert str(chosen).count("\n  ") >= len(kernels)
    assert (silent, unnamed) == ([], [])
    assert planned > 150


def test_the_shader_files_of_a_kernel_exist() -> None:
    """Names come from the source of kernels, in which namespaces must not rewrite them."""
    for stem in ("multihead_attention", "lstm", "top_k1", "convolution", "batch_normalization_training", "gemm"):
        program = compile_operator(OPERATOR_CASES[stem].case(OPERATOR_CASES[stem].names("quick")[-1]).desc, CPU)
        for kernel in program.kernels:
            assert any(file.startswith("schedules/") for file in kernel.shaders)
            assert [file for file in kernel.shaders if not templates.exists(file)] == []


def test_kernels_of_time_steps_are_printed_once() -> None:
    cases = OPERATOR_CASES["lstm"]
    program = compile_operator(cases.case("lstm-float32-3x33x16-near-bare-s0").desc, CPU)
    assert str(program).count("lstm step") == 1
    assert "and 2 more times on other ranges" in str(program)
