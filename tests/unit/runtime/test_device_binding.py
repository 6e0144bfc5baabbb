"""What may be bound where; every rejection leaves the device usable."""

import numpy as np
import pytest

from dmlgpu import (
    BindingError,
    BufferArrayBinding,
    BufferBinding,
    DataType,
    InvalidArgument,
    InvalidState,
    TensorDesc,
    descs,
)
from tests.unit.device_objects import OWNED, Objects, identity, raises, subtract


def test_properties_count_the_bindings_of_an_execution():
    objects = Objects(temporary_size=512, persistent_size=256)
    properties = objects.compiled(subtract(b=OWNED)).binding_properties
    assert properties.required_descriptor_count == 4  # a, output, temporary, persistent
    assert (properties.temporary_resource_size, properties.persistent_resource_size) == (512, 256)


def test_properties_of_an_initializer_count_owned_inputs_and_persistent_resources():
    objects = Objects(temporary_size=512, persistent_size=256)
    initializer = objects.device.create_operator_initializer([objects.compiled(subtract(b=OWNED)), objects.compiled()])
    properties = initializer.binding_properties
    assert properties.required_descriptor_count == 3
    assert (properties.temporary_resource_size, properties.persistent_resource_size) == (0, 0)


def test_number_of_inputs(objects):
    table = objects.table(objects.compiled(subtract()))
    with raises(
        BindingError,
        "ELEMENT_WISE_SUBTRACT: bind_inputs takes 2 bindings (a_tensor (input 0), b_tensor (input 1)), got 1",
    ):
        table.bind_inputs([objects.buffer()])


def test_trailing_absent_tensors_may_be_omitted(objects):
    plain = TensorDesc(DataType.FLOAT32, (4, 4))
    compiled = objects.compiled(descs.Gemm(a_tensor=plain, b_tensor=plain, output_tensor=plain))
    table, buffers = objects.table(compiled), [objects.buffer(), objects.buffer()]
    table.bind_inputs(buffers)
    table.bind_inputs([*buffers, None])
    labels = "a_tensor (input 0), b_tensor (input 1), c_tensor (input 2)"
    with raises(BindingError, f"GEMM: bind_inputs takes 3 bindings ({labels}), got 1"):
        table.bind_inputs(buffers[:1])


def test_number_of_outputs(objects):
    table = objects.table(objects.compiled())
    with raises(BindingError, "ELEMENT_WISE_IDENTITY: bind_outputs takes 1 binding (output_tensor (output 0)), got 2"):
        table.bind_outputs([objects.buffer(), objects.buffer()])


def test_a_name_shows_up(objects):
    compiled = objects.compiled()
    compiled.name = "nearest color"
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY 'nearest color': input_tensor (input 0) needs a binding of 64 bytes, got None",
    ):
        objects.table(compiled).bind_inputs([None])


def test_a_null_buffer_is_no_binding(objects):
    with raises(BindingError, "ELEMENT_WISE_IDENTITY: input_tensor (input 0) needs a binding of 64 bytes, got None"):
        objects.table(objects.compiled()).bind_inputs([BufferBinding(None)])


def test_an_absent_tensor_takes_none(objects):
    desc = descs.Gemm(
        a_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2, 2)),
        b_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2, 2)),
        c_tensor=None,
        output_tensor=TensorDesc(DataType.FLOAT32, (1, 1, 2, 2)),
        trans_a=0,
        trans_b=0,
        alpha=1.0,
        beta=0.0,
        fused_activation=None,
    )
    table = objects.table(objects.compiled(desc))
    with raises(
        BindingError,
        "GEMM: c_tensor (input 2) takes no binding, got buffer 'bias'; the description omits this tensor",
    ):
        table.bind_inputs([objects.buffer(), objects.buffer(), objects.buffer(name="bias")])
    table.bind_inputs([objects.buffer(), objects.buffer(), None])


def test_an_owned_tensor_is_not_bound_at_execution(objects):
    table = objects.table(objects.compiled(subtract(b=OWNED)))
    with raises(
        BindingError,
        "ELEMENT_WISE_SUBTRACT: b_tensor (input 1) takes no binding, got buffer of 1024 bytes; "
        "OWNED_BY_DML tensors are bound at initialization",
    ):
        table.bind_inputs([objects.buffer(), objects.buffer()])


def test_range_outside_the_buffer(objects):
    table = objects.table(objects.compiled())
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0): bytes 64 to 192 are not inside buffer 'pixels' (128 bytes)",
    ):
        table.bind_inputs([BufferBinding(objects.buffer(128, "pixels"), 64, 128)])
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0): bytes 144 to 144 are not inside buffer of 128 bytes",
    ):
        table.bind_inputs([BufferBinding(objects.buffer(128), 144)])


@pytest.mark.parametrize("offset", [4, 8, 20])
def test_offset_alignment(objects, offset):
    with raises(
        BindingError,
        f"ELEMENT_WISE_IDENTITY: input_tensor (input 0) needs an offset of a multiple of 16, got {offset}",
    ):
        objects.table(objects.compiled()).bind_inputs([BufferBinding(objects.buffer(), offset)])


def test_guaranteed_alignment(objects):
    promising = TensorDesc(DataType.FLOAT32, (1, 1, 2, 8), guaranteed_base_offset_alignment=64)
    table = objects.table(objects.compiled(identity(promising)))
    table.bind_inputs([BufferBinding(objects.buffer(), 128)])
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0) needs an offset of a multiple of 64 "
        "(its guaranteed_base_offset_alignment), got 32",
    ):
        table.bind_inputs([BufferBinding(objects.buffer(), 32)])


def test_too_small(objects):
    table = objects.table(objects.compiled())
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0) takes at least 64 bytes (total_tensor_size_in_bytes), "
        "got a range of 60",
    ):
        table.bind_inputs([objects.buffer(60)])
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: output_tensor (output 0) takes at least 64 bytes (total_tensor_size_in_bytes), "
        "got a range of 48",
    ):
        table.bind_outputs([BufferBinding(objects.buffer(), 16, 48)])


def test_the_total_size_counts_not_the_elements(objects):
    padded = TensorDesc(DataType.FLOAT32, (1, 1, 2, 8), total_tensor_size_in_bytes=80)
    table = objects.table(objects.compiled(identity(padded)))
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0) takes at least 80 bytes (total_tensor_size_in_bytes), "
        "got a range of 76",
    ):
        table.bind_inputs([objects.buffer(76)])
    table.bind_inputs([objects.buffer(80)])


def test_foreign_buffer(objects):
    other = Objects()
    other.device.name = "other"
    table = objects.table(objects.compiled())
    adapter = objects.device.adapter
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_IDENTITY: the buffer of input_tensor (input 0), buffer 'theirs', belongs to another device "
        f"(device 'other' on '{adapter}') than device on '{adapter}'; objects of two devices cannot be mixed",
    ):
        table.bind_inputs([other.buffer(name="theirs")])


def test_released_buffer(objects):
    buffer = objects.buffer(name="gone")
    buffer.release()
    with raises(
        InvalidState, "ELEMENT_WISE_IDENTITY: the buffer of input_tensor (input 0), buffer 'gone', is released"
    ):
        objects.table(objects.compiled()).bind_inputs([buffer])


def test_not_a_binding(objects):
    table = objects.table(objects.compiled())
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0) takes a BufferBinding, a Buffer or None, got ndarray",
    ):
        table.bind_inputs([np.zeros(16, np.float32)])
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0) takes a BufferBinding, a Buffer or None, got BufferArrayBinding",
    ):
        table.bind_inputs([BufferArrayBinding()])
    with raises(InvalidArgument, "bind_inputs: bindings must be a sequence of bindings, got Buffer"):
        table.bind_inputs(objects.buffer())
    with raises(InvalidArgument, "BufferBinding: buffer must be a Buffer or None, got bytes"):
        BufferBinding(b"")
    with raises(InvalidArgument, "BufferBinding: offset must be an integer of at least 0, got -16"):
        BufferBinding(objects.buffer(), -16)
    with raises(InvalidArgument, "BufferBinding: size must be an integer of at least 0, got 1.5"):
        BufferBinding(objects.buffer(), 0, 1.5)


def test_junk_after_a_valid_binding_is_not_compared_with_it(objects):
    table = objects.table(objects.compiled())
    table.bind_inputs([objects.buffer()])
    with raises(
        InvalidArgument,
        "ELEMENT_WISE_IDENTITY: input_tensor (input 0) takes a BufferBinding, a Buffer or None, got ndarray",
    ):
        table.bind_inputs([np.zeros(16, np.float32)])


# ---- temporary and persistent resources ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "label", "size"),
    [
        ("bind_temporary_resource", "the temporary resource", 512),
        ("bind_persistent_resource", "the persistent resource", 256),
    ],
)
def test_scratch_resources(hungry, method, label, size):
    bind = getattr(hungry.table(hungry.compiled()), method)
    bind(BufferBinding(hungry.buffer(), 256))
    with raises(BindingError, f"ELEMENT_WISE_IDENTITY: {label} needs an offset of a multiple of 256, got 128"):
        bind(BufferBinding(hungry.buffer(), 128))
    with raises(BindingError, f"ELEMENT_WISE_IDENTITY: {label} takes at least {size} bytes, got a range of {size - 4}"):
        bind(hungry.buffer(size - 4))


@pytest.mark.parametrize(
    ("method", "label"),
    [
        ("bind_temporary_resource", "the temporary resource"),
        ("bind_persistent_resource", "the persistent resource"),
    ],
)
def test_unneeded_scratch_resources(objects, method, label):
    bind = getattr(objects.table(objects.compiled()), method)
    bind(None)
    with raises(
        BindingError,
        f"ELEMENT_WISE_IDENTITY: {label} takes no binding, got buffer of 1024 bytes; its size is 0",
    ):
        bind(objects.buffer())


def test_dispatch_without_bindings(hungry):
    compiled = hungry.compiled()
    table, command_list = hungry.table(compiled), hungry.device.create_command_list()

    def record():
        hungry.recorder.record_dispatch(command_list, compiled, table)

    with raises(BindingError, "ELEMENT_WISE_IDENTITY: input_tensor (input 0) not bound; call bind_inputs first"):
        record()
    table.bind_inputs([hungry.buffer()])
    with raises(BindingError, "ELEMENT_WISE_IDENTITY: output_tensor (output 0) not bound; call bind_outputs first"):
        record()
    table.bind_outputs([hungry.buffer()])
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: the temporary resource of 512 bytes is not bound; call bind_temporary_resource first",
    ):
        record()
    table.bind_temporary_resource(hungry.buffer())
    with raises(
        BindingError,
        "ELEMENT_WISE_IDENTITY: the persistent resource of 256 bytes is not bound; call bind_persistent_resource first",
    ):
        record()
    table.bind_persistent_resource(hungry.buffer())
    record()
    table.bind_inputs(None)
    with raises(BindingError, "ELEMENT_WISE_IDENTITY: input_tensor (input 0) not bound; call bind_inputs first"):
        record()


# ---- initializers ----------------------------------------------------------------------------------------------------


def test_an_initializer_binds_owned_tensors_only(hungry):
    compiled = hungry.compiled(subtract(b=OWNED))
    initializer = hungry.device.create_operator_initializer([compiled])
    table = hungry.table(initializer)
    where = "initializer, operators[0] ELEMENT_WISE_SUBTRACT"
    with raises(BindingError, "initializer: bind_inputs takes 1 array, one per operator, got 2"):
        table.bind_inputs([None, None])
    with raises(InvalidArgument, f"{where}: expected a BufferArrayBinding or None, got Buffer"):
        table.bind_inputs([hungry.buffer()])
    with raises(BindingError, f"{where}: the array takes 2 entries, one per input, got 1"):
        table.bind_inputs([BufferArrayBinding([hungry.buffer()])])
    with raises(
        BindingError,
        f"{where}: a_tensor (input 0) takes no binding, got buffer of 1024 bytes; "
        "only OWNED_BY_DML tensors are bound at initialization",
    ):
        table.bind_inputs([BufferArrayBinding([hungry.buffer(), hungry.buffer()])])
    with raises(BindingError, f"{where}: b_tensor (input 1) needs a binding of 64 bytes, got None"):
        table.bind_inputs([BufferArrayBinding([None, None])])
    table.bind_inputs([BufferArrayBinding([None, hungry.buffer()])])


def test_an_initializer_writes_persistent_resources(hungry):
    table = hungry.table(hungry.device.create_operator_initializer([hungry.compiled()]))
    label = "the persistent resource of operators[0] ELEMENT_WISE_IDENTITY"
    with raises(
        BindingError, "initializer: bind_outputs takes 1 binding, the persistent resource of each operator, got 2"
    ):
        table.bind_outputs([hungry.buffer(), hungry.buffer()])
    with raises(BindingError, f"initializer: {label} takes at least 256 bytes, got a range of 128"):
        table.bind_outputs([hungry.buffer(128)])
    with raises(BindingError, f"initializer: {label} needs an offset of a multiple of 256, got 64"):
        table.bind_outputs([BufferBinding(hungry.buffer(), 64)])
    with raises(
        BindingError, "initializer: the persistent resource takes no binding, got buffer of 1024 bytes; its size is 0"
    ):
        table.bind_persistent_resource(hungry.buffer())


def test_an_incomplete_initialization_is_not_recorded(hungry):
    compiled = hungry.compiled(subtract(b=OWNED))
    where = "initializer, operators[0] ELEMENT_WISE_SUBTRACT"
    with raises(BindingError, f"{where}: b_tensor (input 1) is OWNED_BY_DML and not bound; call bind_inputs first"):
        hungry.recorded(hungry.initialization(compiled))
    with raises(BindingError, f"{where}: the persistent resource of 256 bytes is not bound; call bind_outputs first"):
        hungry.recorded(hungry.initialization(compiled, inputs=[[None, hungry.buffer()]]))
    hungry.recorded(hungry.initialization(compiled, inputs=[[None, hungry.buffer()]], outputs=[hungry.buffer()]))


def test_nothing_to_hand_over_takes_no_array(objects):
    compiled = objects.compiled()
    for inputs in (None, [], [None], [BufferArrayBinding()], [BufferArrayBinding([None])]):
        table = objects.table(objects.device.create_operator_initializer([compiled]))
        table.bind_inputs(inputs)
        objects.recorded((table.dispatchable, table))
