"""Programs of descriptions: owned inputs move to the persistent resource."""

from __future__ import annotations

import json

from dmlgpu import descs
from dmlgpu.catalog.enums import DataType, MultiheadAttentionMaskType, TensorFlags
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler import program_cache
from dmlgpu.compiler import stages as compiler
from dmlgpu.compiler.plan import Role
from dmlgpu.compiler.program import Copy, Slot
from dmlgpu.compiler.schedule.steps.base import in_turns
from dmlgpu.compiler.target import Target

F32, I64 = DataType.FLOAT32, DataType.INT64
ANY = Target("any")
COPYING = Target("any", least_copy=140)


def gather(owned_input=False, owned_indices=False):
    def tensor(data_type, sizes, owned=False):
        return TensorDesc(data_type, sizes, flags=TensorFlags.OWNED_BY_DML if owned else TensorFlags.NONE)

    return descs.GatherNd1(
        input_tensor=tensor(F32, (5, 17), owned_input),
        indices_tensor=tensor(I64, (3, 1), owned_indices),
        output_tensor=tensor(F32, (3, 17)),
        input_dimension_count=2,
        indices_dimension_count=2,
        batch_dimension_count=0,
    )


def test_programs_without_owned_inputs_have_no_persistent_resource():
    program = compiler.compile_operator(gather(), ANY)
    assert (program.persistent_size, program.initialization) == (0, ())
    assert [slot.role for slot in program.kernels[0].slots] == [Role.OUTPUT, Role.INPUT, Role.INPUT]


def test_owned_inputs_are_copied_at_initialization_and_read_from_there():
    program = compiler.compile_operator(gather(owned_input=True, owned_indices=True), ANY)
    assert program.persistent_size == 512 + 256
    assert [kernel.label for kernel in program.initialization] == [
        "gather_nd1 own input 0",
        "gather_nd1 own input 1 x2",
    ]
    assert [set(kernel.slots) for kernel in program.initialization] == [
        {Slot(Role.PERSISTENT, 0, 0, 340), Slot(Role.INPUT, 0, 0, 340)},
        {Slot(Role.PERSISTENT, 0, 512, 24), Slot(Role.INPUT, 1, 0, 24)},
    ]
    assert program.kernels[0].slots == (
        Slot(Role.OUTPUT, 0, 0, 204),
        Slot(Role.PERSISTENT, 0, 0, 340),
        Slot(Role.PERSISTENT, 0, 512, 24),
    )


def test_copies_of_owned_inputs_are_steps_of_the_schedule():
    """Every kernel of a program is scheduled before anything is rendered."""
    result = compiler.stages(gather(owned_input=True, owned_indices=True), ANY)
    scheduled = [step.label for step, _ in in_turns(result.schedule.initialization)]
    assert scheduled == ["own input 0", "own input 1"]
    assert len(result.program.initialization) == len(scheduled)


def test_one_owned_input_does_not_affect_the_others():
    program = compiler.compile_operator(gather(owned_indices=True), ANY)
    assert program.persistent_size == 256 and len(program.initialization) == 1
    assert program.kernels[0].slots == (
        Slot(Role.OUTPUT, 0, 0, 204),
        Slot(Role.INPUT, 0, 0, 340),
        Slot(Role.PERSISTENT, 0, 0, 24),
    )


def test_the_source_of_a_kernel_does_not_depend_on_owned_inputs():
    owned, plain = compiler.compile_operator(gather(owned_input=True), ANY), compiler.compile_operator(gather(), ANY)
    assert [kernel.wgsl for kernel in owned.kernels] == [kernel.wgsl for kernel in plain.kernels]


def test_equal_descriptions_give_the_same_program_object():
    assert compiler.compile_operator(gather(), ANY) is compiler.compile_operator(gather(), Target("any"))


def test_kernels_of_older_operators_have_the_name_of_the_newest():
    tensor = TensorDesc(F32, (4, 4))
    older = descs.Slice(
        input_tensor=tensor, output_tensor=TensorDesc(F32, (2, 4)), offsets=(1, 0), sizes=(2, 4), strides=(2, 1)
    )
    assert compiler.compile_operator(older, ANY).operator == "SLICE1"


def identity(data_type, sizes, source_strides=None):
    return descs.ElementWiseIdentity(
        input_tensor=TensorDesc(data_type, sizes, source_strides), output_tensor=TensorDesc(data_type, sizes)
    )


def test_a_kernel_that_only_copies_whole_words_describes_the_copy():
    (kernel,) = compiler.compile_operator(identity(F32, (6, 10)), COPYING).kernels
    assert kernel.copy == Copy(1, 0, 0, 0, 240)
    for other in (
        identity(F32, (6, 10), (1, 6)),
        identity(F32, (6, 10), (12, 1)),
        identity(F32, (6, 10), (0, 1)),
        identity(DataType.INT8, (13, 13)),
    ):
        (kernel,) = compiler.compile_operator(other, COPYING).kernels
        assert kernel.copy is None


def test_copies_are_not_preferred_if_they_are_small_or_slow():
    (kernel,) = compiler.compile_operator(identity(F32, (6, 5)), COPYING).kernels
    assert kernel.copy == Copy(1, 0, 0, 0, 120, preferred=False)
    program = compiler.compile_operator(identity(F32, (60, 1000)), ANY)
    assert program.kernels[0].copy == Copy(1, 0, 0, 0, 240_000, preferred=False)
    for stored in (program, compiler.compile_operator(identity(F32, (60, 1000)), COPYING)):
        assert program_cache.decode_program(json.loads(json.dumps(program_cache.encode_program(stored)))) == stored


def cache(past):
    """Return an attention whose present keys and values begin as copies of the past ones."""
    new, length = TensorDesc(F32, (1, 1, 8)), TensorDesc(DataType.INT32, (1,))
    tensors = dict.fromkeys(("past_key_tensor", "past_value_tensor"), past)
    tensors |= dict.fromkeys(("output_present_key_tensor", "output_present_value_tensor"), past)
    return descs.MultiheadAttention1(
        query_tensor=new,
        key_tensor=new,
        value_tensor=new,
        past_sequence_lengths_tensor=length,
        output_tensor=new,
        query_head_count=2,
        key_value_head_count=2,
        scale=0.5,
        mask_filter_value=-1e4,
        mask_type=MultiheadAttentionMaskType.NONE,
        **tensors,
    )


def test_outputs_that_begin_as_copies_of_an_input_may_reuse_its_memory():
    desc = cache(TensorDesc(F32, (1, 2, 16, 4)))
    fields = {index: slot.field for index, slot in enumerate(desc.inputs)}
    program = compiler.compile_operator(desc, ANY)
    pairs = {output: fields[input_index] for output, input_index in program.in_place.items()}
    assert pairs == {1: "past_key_tensor", 2: "past_value_tensor"}


def test_outputs_do_not_reuse_an_input_that_another_kernel_reads():
    halves = (TensorDesc(F32, (3, 8)), TensorDesc(F32, (3, 8)))
    split = descs.Split(input_tensor=TensorDesc(F32, (6, 8)), output_tensors=halves, axis=0)
    assert compiler.compile_operator(split, ANY).in_place == {}
    assert compiler.compile_operator(identity(F32, (6, 10)), ANY).in_place == {0: 0}
    assert compiler.compile_operator(identity(F32, (6, 10), (1, 6)), ANY).in_place == {}


def test_copies_of_pieces_have_their_offsets():
    pieces = (TensorDesc(F32, (3, 7)), TensorDesc(F32, (5, 7)))
    split = descs.Split(input_tensor=TensorDesc(F32, (8, 7)), output_tensors=pieces, axis=0)
    first, second = compiler.compile_operator(split, COPYING).kernels
    assert not first.copy.preferred  # of 84 bytes
    assert second.copy == Copy(1, 84 - second.slots[1].offset, 0, 0, 140)
