"""Which ranges of one dispatch may meet."""

import pytest

from dmlgpu import BindingError, BufferBinding, DataType, TensorDesc, descs
from tests.unit.device_objects import FLOATS, OWNED, identity, raises, subtract


def record(objects, compiled, inputs, outputs, *, temporary=None, persistent=None):
    """Record one dispatch over (buffer, offset) pairs."""
    table = objects.table(compiled)
    table.bind_inputs([None if bound is None else BufferBinding(*bound) for bound in inputs])
    table.bind_outputs([BufferBinding(*output) for output in outputs])
    table.bind_temporary_resource(None if temporary is None else BufferBinding(*temporary))
    table.bind_persistent_resource(None if persistent is None else BufferBinding(*persistent))
    objects.recorded((compiled, table))


def split():
    """One input, two outputs of 32 bytes each."""
    half = TensorDesc(DataType.FLOAT32, (1, 1, 1, 8))
    return descs.Split(input_tensor=FLOATS, output_tensors=(half, half), axis=2)


def slice_all():
    """A copy by an operator that does not run in place."""
    return descs.Slice(input_tensor=FLOATS, output_tensor=FLOATS, offsets=[0] * 4, sizes=FLOATS.sizes, strides=[1] * 4)


def test_inputs_may_share_bytes(objects):
    shared = objects.buffer()
    record(objects, objects.compiled(subtract()), [(shared, 0), (shared, 16)], [(objects.buffer(), 0)])


def test_input_and_output_may_share_a_buffer(objects):
    shared = objects.buffer()
    record(objects, objects.compiled(slice_all()), [(shared, 0)], [(shared, 64)])


def test_the_rest_of_a_binding_does_not_count(objects):
    """Both bindings reach to the buffer's end; only the tensors' own bytes matter."""
    shared = objects.buffer()
    record(objects, objects.compiled(), [(shared, 64)], [(shared, 0)])


def test_in_place(objects):
    shared = objects.buffer()
    record(objects, objects.compiled(), [(shared, 32)], [(shared, 32)])
    record(objects, objects.compiled(subtract()), [(shared, 32), (shared, 32)], [(shared, 32)])


def test_in_place_with_other_ranges(objects):
    shared = objects.buffer()
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: output_tensor (output 0) at bytes 32 to 96 overlaps input_tensor (input 0) "
        "at bytes 16 to 80; in-place execution needs identical ranges",
    ):
        record(objects, objects.compiled(), [(shared, 16)], [(shared, 32)])


def test_in_place_where_the_operator_cannot(objects):
    shared = objects.buffer()
    with raises(
        BindingError,
        "SLICE: output_tensor (output 0) at bytes 0 to 64 overlaps input_tensor (input 0) at bytes 0 to 64; "
        "the operator does not support in-place execution",
    ):
        record(objects, objects.compiled(slice_all()), [(shared, 0)], [(shared, 0)])


def test_in_place_with_other_strides(objects):
    shared = objects.buffer()
    turned = TensorDesc(DataType.FLOAT32, (1, 1, 2, 8), strides=(16, 16, 1, 2))
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: output_tensor (output 0) at bytes 0 to 64 overlaps input_tensor (input 0) "
        "at bytes 0 to 64; in-place execution needs equal strides, got (16, 16, 1, 2) and (16, 16, 8, 1)",
    ):
        record(objects, objects.compiled(identity(turned)), [(shared, 0)], [(shared, 0)])


def test_in_place_with_other_types(objects):
    desc = descs.ElementWiseIsNan(
        input_tensor=FLOATS, output_tensor=TensorDesc(DataType.UINT8, (1, 1, 2, 8), total_tensor_size_in_bytes=64)
    )
    shared = objects.buffer()
    compiled = objects.compiled(desc)
    compiled.in_place = True
    with raises(
        BindingError,
        "ELEMENT_WISE_IS_NAN: output_tensor (output 0) at bytes 0 to 64 overlaps input_tensor (input 0) "
        "at bytes 0 to 64; in-place execution needs equal data types, got FLOAT32 and UINT8",
    ):
        record(objects, compiled, [(shared, 0)], [(shared, 0)])


def test_outputs_are_disjoint(objects):
    shared = objects.buffer()
    compiled = objects.compiled(split())
    record(objects, compiled, [(objects.buffer(), 0)], [(shared, 0), (shared, 32)])
    with raises(
        BindingError,
        "SPLIT: output_tensors[0] (output 0) at bytes 0 to 32 overlaps output_tensors[1] (output 1) "
        "at bytes 16 to 48; two outputs may not overlap",
    ):
        record(objects, compiled, [(objects.buffer(), 0)], [(shared, 0), (shared, 16)])


def test_the_persistent_resource_may_meet_inputs_only(hungry):
    compiled, shared, scratch = hungry.compiled(), hungry.buffer(2048), (hungry.buffer(), 0)
    record(hungry, compiled, [(shared, 0)], [(hungry.buffer(), 0)], temporary=scratch, persistent=(shared, 0))
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: the persistent resource at bytes 256 to 512 overlaps output_tensor (output 0) "
        "at bytes 448 to 512; the persistent resource is read-only at execution",
    ):
        record(hungry, compiled, [(hungry.buffer(), 0)], [(shared, 448)], temporary=scratch, persistent=(shared, 256))


@pytest.mark.parametrize("what", ["input_tensor (input 0)", "output_tensor (output 0)", "the persistent resource"])
def test_the_temporary_resource_meets_nothing(hungry, what):
    shared = hungry.buffer(2048)
    ranges = {
        "input_tensor (input 0)": (hungry.buffer(), 0),
        "output_tensor (output 0)": (hungry.buffer(), 0),
        "the persistent resource": (hungry.buffer(), 0),
    }
    ranges[what] = (shared, 512)
    end = 512 + (256 if "persistent" in what else 64)
    with raises(
        BindingError,
        f"ELEMENT_WISE_IDENTITY: the temporary resource at bytes 256 to 768 overlaps {what} at bytes 512 to {end}; "
        "the temporary resource may not overlap anything",
    ):
        source, target, persistent = ranges.values()
        record(hungry, hungry.compiled(), [source], [target], temporary=(shared, 256), persistent=persistent)


def test_initialization_keeps_inputs_and_outputs_in_different_buffers(hungry):
    shared = hungry.buffer(2048)
    compiled = hungry.compiled(subtract(b=OWNED))
    with raises(
        BindingError,
        "initializer: b_tensor (input 1) of operators[0] and the persistent resource of operators[0] lie in one "
        "buffer; at initialization an input may not share a buffer with an output",
    ):
        hungry.recorded(
            hungry.initialization(
                compiled, inputs=[[None, BufferBinding(shared, 1024)]], outputs=[BufferBinding(shared, 0)]
            )
        )


def test_initialization_keeps_outputs_apart(hungry):
    shared = hungry.buffer(2048)
    first, second = hungry.compiled(), hungry.compiled()
    hungry.recorded(hungry.initialization(first, second, outputs=[shared, BufferBinding(shared, 256)]))
    with raises(
        BindingError,
        "initializer: the persistent resource of operators[0] at bytes 0 to 256 overlaps the persistent resource "
        "of operators[1] at bytes 0 to 256; two outputs may not overlap",
    ):
        hungry.recorded(hungry.initialization(first, second, outputs=[shared, shared]))
