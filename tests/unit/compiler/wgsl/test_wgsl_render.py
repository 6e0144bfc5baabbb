"""Rendering of plans as kernels: bindings, labels, grids, temporaries, errors; as text, without a GPU."""

from __future__ import annotations

import importlib
import itertools
import re

import pytest

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc, packed_strides
from dmlgpu.common.errors import NotSupported
from dmlgpu.compiler.plan import (
    Lookup,
    Map,
    Plan,
    PlanBinding,
    PlanTensor,
    Reduce,
    Reduction,
    Role,
    View,
    apply,
    constants,
)
from dmlgpu.compiler.program import Program, Slot
from dmlgpu.compiler.rewrites.sources import identity
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.reductions import ReduceSchedule
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.compiler.wgsl.render import render
from tests.kernel_sources import with_values

F32, F16, I8, I64, F64 = (DataType[name] for name in ("FLOAT32", "FLOAT16", "INT8", "INT64", "FLOAT64"))
ANY = Target("Any GPU")
IMMEDIATES = Target("Any GPU", features=frozenset({"immediates"}))


def tensor(role, index, sizes, data_type=F32, *, view=View.COMPUTE, strides=None, offset=0):
    strides = packed_strides(sizes) if strides is None else strides
    return PlanTensor(PlanBinding(role, index), data_type, tuple(sizes), tuple(strides), view, offset)


def source(index, sizes, data_type=F32, **fields):
    return tensor(Role.INPUT, index, sizes, data_type, **fields)


def mapped(body, *, data_type=None, strides=None):
    output = tensor(Role.OUTPUT, 0, body.sizes, data_type or body.data_type, strides=strides)
    return Plan("TEST", (Map("map", body, output),))


def program_of(plan, target=ANY) -> Program:
    return render(schedule(plan, target))


def kernel_of(body, target=ANY, **fields):
    (kernel,) = program_of(mapped(body, **fields), target).kernels
    return kernel


def subtract(a, b, **fields):
    return apply("elementwise/element_wise_subtract", a.data_type, a.sizes, a=a, b=b, **fields)


def test_slots_are_the_buffers_in_the_order_of_their_bindings():
    kernel = kernel_of(subtract(source(0, (3, 5)), source(2, (3, 5), strides=(7, 1))))
    assert kernel.slots == (Slot(Role.OUTPUT, 0, 0, 60), Slot(Role.INPUT, 0, 0, 60), Slot(Role.INPUT, 2, 0, 76))
    bindings = re.findall(r"@binding\((\d)\) var<(\w+)", kernel.wgsl)
    assert sorted(bindings) == [("0", "storage"), ("1", "storage"), ("2", "storage"), ("3", "uniform")]


def test_parameters_are_immediates_where_the_adapter_has_them():
    program = program_of(mapped(identity(source(0, (3,)))), IMMEDIATES)
    assert program.immediates and "var<immediate> params: Params;" in program.kernels[0].wgsl
    assert "uniform" not in program.kernels[0].wgsl
    assert not program_of(mapped(identity(source(0, (3,)))), ANY).immediates


def test_one_tensor_read_twice_is_one_binding():
    x = source(0, (3, 5))
    assert len(kernel_of(subtract(x, x)).slots) == 2


def test_a_buffer_in_blocks_of_two_widths_has_two_bindings():
    narrow = source(0, (2, 4), strides=(5, 1), view=View.RAW)
    wide = source(0, (2, 4), I64, strides=(4, 1))
    body = apply("elementwise/cast", F32, (2, 4), portable=True, input=wide)
    kernel = kernel_of(subtract(narrow, body))
    assert [slot.role for slot in kernel.slots] == [Role.OUTPUT, Role.INPUT, Role.INPUT]
    assert [slot.size for slot in kernel.slots] == [32, 64, 64]


@pytest.mark.parametrize(
    ("view", "size"),
    [
        pytest.param(source(0, (3, 5), F16), 32, id="float16 rounds up to words"),
        pytest.param(source(0, (3, 5), strides=(-8, 1), offset=16), 84, id="mirrored"),
        pytest.param(source(0, (3, 5), strides=(0, 1)), 20, id="repeated"),
        pytest.param(source(0, (3, 5), I64), 120, id="64 bits"),
    ],
)
def test_a_slot_reaches_to_the_end_of_the_last_unit(view, size):
    assert kernel_of(apply("elementwise/cast", I8, (3, 5), portable=True, input=view)).slots[1].size == size


def test_packed_tensors_bind_as_many_bytes_as_scalar_ones():
    assert [slot.size for slot in kernel_of(identity(source(0, (3, 16), I8, view=View.RAW))).slots] == [48, 48]


@pytest.mark.parametrize(
    ("body", "label"),
    [
        (identity(source(0, (3, 8), view=View.RAW)), "test map x4"),
        (identity(source(0, (3, 16), I8, view=View.RAW)), "test map x16"),
        (identity(source(0, (3, 7), view=View.RAW, strides=(8, 1))), "test map"),
        (subtract(source(0, (3, 8)), source(1, (3, 8))), "test map x4"),
    ],
)
def test_labels_name_operator_step_and_lanes(body, label):
    assert kernel_of(body).label == label


def test_contiguous_dimensions_are_merged_before_rendering():
    text = kernel_of(subtract(source(0, (3, 5, 7)), source(1, (3, 5, 7)))).wgsl
    assert "fn output_unit(at: array<u32, 1>)" in text
    assert "105u" in text and "35u" not in text


def test_cpu_adapters_unroll_over_several_items():
    body = subtract(source(0, (1024,)), source(1, (1024,)))
    on_cpu = kernel_of(body, Target("any", Profile.CPU))
    on_gpu = kernel_of(body, Target("any", Profile.DISCRETE))
    assert on_cpu.wgsl.count("    handle(first") == 4 and on_gpu.wgsl.count("    handle(first") == 1
    assert on_cpu.grid == (1, 1, 1) and on_gpu.grid == (1, 1, 1)


def test_large_maps_fold_over_two_axes():
    target = Target("any", Profile.DISCRETE, max_binding_size=1 << 30)
    kernel = kernel_of(identity(source(0, (4 * (65536 * 256 + 1),), view=View.RAW)), target)
    assert kernel.grid == (32769, 2, 1)
    (width,) = re.findall(r"id\.x \+ id\.y \* sizes\.s(\d+)u", kernel.wgsl)
    assert kernel.parameters[int(width)] == 32769 * 256


def test_too_many_buffers_are_rejected():
    body = source(0, (3, 5))
    for index in range(1, 4):
        body = subtract(body, source(index, (3, 5)))
    assert len(kernel_of(body, Target("Small GPU", max_storage_buffers=5)).slots) == 5
    with pytest.raises(NotSupported) as caught:
        kernel_of(body, Target("Small GPU", max_storage_buffers=4))
    assert str(caught.value) == "5 buffers in one kernel exceed what 'Small GPU' binds (4)"


def test_too_many_parts_of_tensors_are_rejected():
    body = identity(source(1, (1024, 1025), strides=(1025 * 64, 64), view=View.RAW))
    assert kernel_of(body, Target("Small GPU", max_binding_size=1024 * 1025 * 64 * 4))
    with pytest.raises(NotSupported) as caught:
        kernel_of(body, Target("Small GPU", max_binding_size=1 << 19))
    assert str(caught.value) == (
        "input 1 takes 268,697,348 bytes, but 'Small GPU' binds at most 524,288 at once and has 8 bindings; "
        "split the tensors, for example along axis 0"
    )


def test_a_missing_feature_names_operator_and_adapter():
    values = constants(compute=F64, scale=2.0, bias=0.0)
    body = apply("elementwise/scale_bias", F64, (3,), values=values, input=source(0, (3,), F64))
    with pytest.raises(NotSupported) as caught:
        kernel_of(body, Target("Small GPU", features=frozenset({"shader-int64"})))
    assert str(caught.value) == ("FLOAT64 arithmetic needs the adapter feature shader-f64, which 'Small GPU' lacks")


def test_64_bit_integers_are_words_without_the_feature_and_native_with_it():
    body = subtract(source(0, (3, 5), I64), source(1, (3, 5), I64))
    native = kernel_of(body, Target("any", features=frozenset({"shader-int64"}))).wgsl
    words = kernel_of(body).wgsl
    assert "subtract_words" in words and "i64" not in words
    assert "subtract_words" not in native and "alias a_s = i64;" in native.replace("apply0_", "")


def test_float16_is_native_only_with_the_feature():
    body = subtract(source(0, (3, 5), F16), source(1, (3, 5), F16))
    assert kernel_of(body, Target("any", features=frozenset({"shader-f16"}))).wgsl.startswith("enable f16;\n")
    assert "f16" not in kernel_of(body).wgsl


CPU = Target("CPU", Profile.CPU, frozenset({"shader-int64"}))


@pytest.mark.parametrize(
    ("target", "stored"),
    [
        (CPU, "vec2<u64>"),
        (Target("CPU", Profile.CPU), "vec4<u32>"),
        (Target("GPU", Profile.DISCRETE, CPU.features), "vec4<u32>"),
    ],
    ids=["CPU", "CPU without 64 bits", "GPU"],
)
def test_cpu_adapters_with_64_bits_move_vectors_as_doubles(target, stored):
    kernel = kernel_of(subtract(source(0, (64,)), source(1, (64,))), target)
    interface = kernel.source.interface
    assert [(buffer.block, buffer.stored) for buffer in interface.buffers] == [("vec4<u32>", stored)] * 3
    assert [(buffer.loads, buffer.stores) for buffer in interface.buffers] == [(False, True), *[(True, False)] * 2]
    assert kernel.wgsl.count(f": array<{stored}>;") == 3


def test_buffers_are_bound_in_parts():
    """Each row may be in any part of a table."""
    rows = source(1, (5, 1), DataType.UINT32, view=View.INDEX)
    picked = Lookup(
        "indexing/gather_nd1",
        F32,
        (5, 64),
        (("input", source(0, (48, 64), view=View.RAW)), ("indices", rows)),
        constants(batch=0, tuple=1, lead=1),
        follows=((None, 1), (None, None)),
    )
    kernel = kernel_of(picked, Target("Any GPU", max_binding_size=4096))
    (table,) = [buffer for buffer in kernel.source.interface.buffers if buffer.parts > 1]
    assert (table.block, table.parts, table.part_blocks) == ("vec4<u32>", 3, 4096 // 16)
    parts = [slot for slot in kernel.slots if slot.resource == (Role.INPUT, 0)]
    assert [(slot.offset, slot.size, slot.is_continued) for slot in parts] == [
        (0, 4096, True),
        (4096, 4096, True),
        (8192, 4096, False),
    ]
    assert kernel.slots[-2:] == tuple(parts[1:])  # the other parts follow the slots of all buffers


def test_tensors_that_are_updated_atomically_fit_one_binding():
    body = identity(source(0, (5, 70), I8, view=View.RAW))
    kernel = kernel_of(body, strides=(1, 300))
    assert "atomic<u32>" in {buffer.block for buffer in kernel.source.interface.buffers}
    with pytest.raises(NotSupported) as caught:
        kernel_of(body, Target("Small GPU", max_binding_size=256), strides=(1, 300))
    assert str(caught.value) == "a tensor that is updated atomically must fit one binding, got 5 parts"


def test_temporaries_are_aligned_to_256_bytes_and_disjoint_while_alive():
    sizes = (75,)
    temporaries = (PlanTensor.temporary(label, F32, sizes) for label in "abc")
    tensors = (source(0, sizes), *temporaries, tensor(Role.OUTPUT, 0, sizes))
    steps = tuple(Map("step", identity(source), output) for source, output in itertools.pairwise(tensors))
    program = program_of(Plan("TEST", steps))
    assert program.temporary_size == 512 + 512
    assert [kernel.slots for kernel in program.kernels] == [
        (Slot(Role.TEMPORARY, 0, 0, 300), Slot(Role.INPUT, 0, 0, 300)),
        (Slot(Role.TEMPORARY, 0, 512, 300), Slot(Role.TEMPORARY, 0, 0, 300)),
        (Slot(Role.TEMPORARY, 0, 0, 300), Slot(Role.TEMPORARY, 0, 512, 300)),
        (Slot(Role.OUTPUT, 0, 0, 300), Slot(Role.TEMPORARY, 0, 0, 300)),
    ]


def test_a_schedule_renders_to_one_program():
    between = PlanTensor.temporary("between", F16, (3, 5))
    first = Map("first", subtract(source(0, (3, 5), F16), source(1, (3, 5), F16)), between)
    scheduled = schedule(Plan("TEST", (first, *mapped(identity(between)).steps)), ANY)
    assert render(scheduled) == render(scheduled)


def test_equal_apply_bodies_share_one_function():
    node = source(0, (3, 5))
    for index in (1, 2, 3):
        node = subtract(node, source(index, (3, 5)))
    text = kernel_of(node).wgsl
    assert text.count("_apply(a: ") == 1 and len(re.findall(r"let v\d+ = apply0_apply\(", text)) == 3


def test_edges_are_rounded_but_not_the_root():
    x = source(0, (3, 5), F16)
    text = kernel_of(subtract(subtract(x, x), x)).wgsl
    assert text.count("= round_to_half(") == 1


@pytest.mark.parametrize(
    ("name", "count", "target"),
    [
        (ReduceSchedule.SERIAL, 40, ANY),
        (ReduceSchedule.TREE, 4096, Target("any", Profile.DISCRETE)),
        (ReduceSchedule.PARTIAL, 1 << 16, ANY),
    ],
)
def test_every_schedule_of_a_reduction_reads_virtual_sources(name, count, target):
    virtual = subtract(source(0, (3, count)), source(1, (3, count)))
    reduction = Reduction("reduction/reduce_sum", F32, 1, portable=True)
    step = Reduce("sum", reduction, virtual, (1,), tensor(Role.OUTPUT, 0, (3, 1)))
    kernel, *_ = program_of(Plan("TEST", (step,)), target).kernels
    assert f"schedules/reduce_{name}.wgsl" in kernel.wgsl
    assert "element_wise_subtract.wgsl" in kernel.wgsl and len(kernel.slots) == 3


def test_movement_that_feeds_arithmetic_is_read_as_numbers():
    rows = source(1, (4, 1), I64, view=View.INDEX)
    picked = Lookup(
        "indexing/gather_nd1",
        F16,
        (4, 6),
        (("input", source(0, (9, 6), F16, view=View.RAW)), ("indices", rows)),
        constants(batch=0, tuple=1, lead=1),
        follows=((None, 1), (None, None)),
    )
    text = kernel_of(subtract(picked, source(2, (4, 6), F16))).wgsl
    assert "f32_of_half" in text and "index_of_i64" in text
    assert "f32_of_half" not in kernel_of(picked).wgsl


def test_steps_that_differ_only_in_bindings_are_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("dmlgpu.compiler.wgsl.render")
    render_step, rendered = module.render_step, []

    def render_and_note(step, builder):
        rendered.append(step.label)
        return render_step(step, builder)

    def difference(number, a, b, size):
        body = apply("elementwise/element_wise_subtract", F32, (size,), a=source(a, (size,)), b=source(b, (size,)))
        return Map(f"step {number}", body, tensor(Role.OUTPUT, number, (size,)))

    reads = [(0, 1, 64), (1, 0, 64), (3, 3, 64), (0, 1, 32), (2, 5, 64)]
    steps = [difference(number, *read) for number, read in enumerate(reads)]
    alone = [kernel for step in steps for kernel in program_of(Plan("TEST", (step,))).kernels]
    monkeypatch.setattr(module, "render_step", render_and_note)
    together = program_of(Plan("TEST", tuple(steps))).kernels
    assert list(together) == alone
    assert rendered == ["step 0", "step 2", "step 3"]


def test_a_schedule_counts_partial_results_and_its_body_the_elements_of_a_row() -> None:
    """Both call that ``count``: a body's constants do not reach the schedule around it."""
    sizes = (3, 5000)
    row = TensorDesc(DataType.FLOAT32, sizes)
    desc = descs.MeanVarianceNormalization2(
        input_tensor=row, output_tensor=row, axes=(1,), use_mean=False, use_variance=True, epsilon=1e-5
    )
    _, combined, *_ = compile_operator(desc, Target("any", Profile.CPU)).kernels
    assert "of partials" in combined.label
    text = with_values(combined)
    (bound,) = re.findall(r"index < (\d+)u", text)
    assert 1 < int(bound) < 5000
    assert "/ f32(5000i)" in text
