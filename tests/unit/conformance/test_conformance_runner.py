"""The runner sees what goes wrong: an executor is made to do it."""

from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.common.errors import DmlError
from dmlgpu.conformance.cases.keys import quick_names
from dmlgpu.conformance.cases.registry import OPERATOR_CASES, case_by_name
from dmlgpu.conformance.cases.tolerance import EXACT
from dmlgpu.conformance.running.runner import outputs_of, run_case
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy.backend import NumPyBackend

NAME = "element_wise_subtract-float32-3x5-padded-s0"


class Saboteur(NumPyBackend):
    """Computes, then lets ``harm`` at the resources of each execution."""

    def __init__(self, harm, instead=False):
        super().__init__()
        self.harm, self.instead = harm, instead

    def compile(self, desc, half_precision=False, preserve_padding=False):
        executable = super().compile(desc, half_precision)
        bind = executable.bind

        def bind_and_harm(resources):
            return (*(() if self.instead else bind(resources)), lambda: self.harm(resources))

        executable.bind = bind_and_harm
        return executable


def verdict(harm, name=NAME, instead=False):
    return run_case(case_by_name(name), Device.from_backend(Saboteur(harm, instead)))


@pytest.mark.parametrize("name", [names[0] for names in quick_names().values()])
def test_a_faithful_executor_passes(name):
    result = verdict(lambda resources: None, name)
    assert result.ok, result


def test_the_worst_element_comes_with_its_inputs_and_the_bits_with_a_digest():
    def harm(resources):
        output = resources.outputs[0]
        output.buffer[output.offset] ^= 1

    right, wrong = verdict(lambda resources: None), verdict(harm)
    a, b = (array[0, 0] for array in case_by_name(NAME).inputs())
    assert (wrong.worst, wrong.inputs, wrong.expected) == ((0, 0), (a, b), a - b)
    assert right.digest == verdict(lambda resources: None).digest != wrong.digest


def test_a_write_before_the_output_is_seen():
    def harm(resources):
        output = resources.outputs[0]
        output.buffer[output.offset - 4] ^= 1

    assert str(verdict(harm)) == "output_tensor: 1 bytes were written out of bounds, the first at byte -4"


def test_a_write_after_the_output_is_seen():
    def harm(resources):
        output = resources.outputs[0]
        output.buffer[output.offset + output.size : output.offset + output.size + 8] = 0

    size = case_by_name(NAME).desc.output_tensor.byte_size
    assert str(verdict(harm)) == f"output_tensor: 8 bytes were written out of bounds, the first at byte {size}"


def test_a_changed_input_is_seen():
    def harm(resources):
        resources.inputs[1].buffer[resources.inputs[1].offset] ^= 1

    assert str(verdict(harm)) == "b_tensor: 1 bytes of the input were changed"


def test_elements_never_written_are_counted():
    result = verdict(lambda resources: None, instead=True)
    assert not result.ok
    assert result.wrong == 15
    assert result.problem == "output_tensor: 15 elements were never written"


def test_one_wrong_element_is_seen():
    def harm(resources):
        output = resources.outputs[0]
        output.buffer[output.offset] ^= 1

    result = verdict(harm)
    assert (result.ok, result.wrong, result.worst, result.max_ulp) == (False, 1, (0, 0), 1)


STATE = "random_generator-uint32-4x4-packed-s0"
STATELESS = "random_generator-uint32-4x4-packed-stateless-s0"


def test_an_absent_output_is_not_checked():
    assert case_by_name(STATELESS).desc.outputs[1].tensor is None
    assert verdict(lambda resources: None, STATELESS).ok


@pytest.mark.parametrize("number", [0, 1])
def test_every_present_output_is_checked(number):
    def harm(resources):
        resources.outputs[number].buffer[resources.outputs[number].offset] ^= 1

    result = verdict(harm, STATE)
    assert (result.ok, result.wrong) == (False, 1)


def test_gaps_between_the_elements_of_an_output_may_change():
    case = case_by_name(NAME)
    tensor = case.desc.output_tensor
    occupied = tensor.encode(np.full(tensor.sizes, -1.0, np.float32)) != 0
    assert not occupied.all()

    def harm(resources):
        output = resources.outputs[0]
        inside = output.buffer[output.offset : output.offset + output.size]
        inside[~occupied.reshape(-1, 4).any(1).repeat(4)] ^= 0xFF

    assert verdict(harm).ok


def with_duplicates():
    names = OPERATOR_CASES["scatter_elements"].names("full")
    return next(name for name in names if name.startswith("scatter_elements-int32") and "duplicates" in name)


def test_either_of_two_updates_may_win_unless_the_device_is_deterministic():
    name = with_duplicates()
    case = case_by_name(name)
    first = case.outcomes(case.inputs())[1][0]

    def harm(resources):
        output, tensor = resources.outputs[0], case.desc.output_tensor
        output.buffer[output.offset : output.offset + tensor.byte_size] = tensor.encode(first)

    assert (first != case.outcomes(case.inputs())[0][0]).any()
    assert verdict(harm, name).ok
    strict = Saboteur(harm)
    strict.target = Device("numpy", deterministic=True).backend.target
    assert not run_case(case, Device.from_backend(strict)).ok


def test_a_result_that_no_update_gives_is_wrong():
    name = with_duplicates()

    def harm(resources):
        resources.outputs[0].buffer[resources.outputs[0].offset] ^= 1

    assert not verdict(harm, name).ok


# ---- without the reference


def outputs(harm, case, instead=False):
    return outputs_of(case, Device.from_backend(Saboteur(harm, instead)), poison=0x11)


def test_unwritten_outputs_hold_the_requested_poison():
    (output,) = outputs(lambda resources: None, case_by_name(NAME), instead=True)
    assert set(output.tobytes()) == {0x11}


def test_outputs_are_not_handed_out_where_bytes_changed_that_must_not():
    def harm(resources):
        output = resources.outputs[0]
        output.buffer[output.offset - 4] ^= 1

    with pytest.raises(DmlError) as error:
        outputs(harm, case_by_name(NAME))
    assert str(error.value) == "output_tensor: 1 bytes were written out of bounds, the first at byte -4"


def test_adapters_must_agree_on_zeros_where_they_may_flush_subnormal_inputs():
    tiny = np.finfo(np.float32).smallest_normal
    inputs = np.full((3, 5), tiny), np.full((3, 5), -tiny / 2)
    case = replace(case_by_name(NAME), fill=lambda rng: inputs)
    assert (outputs(lambda resources: None, case)[0] == tiny).all()
    exact = replace(case, tolerance=EXACT)
    assert (outputs(lambda resources: None, exact)[0] == np.float32(1.5) * tiny).all()
