"""What single kernels move and compute, by hand."""

import pytest

from dmlgpu import TensorDesc, descs
from dmlgpu.bench.counting import kernel_counts
from dmlgpu.catalog.enums import ConvolutionDirection, ConvolutionMode, DataType
from dmlgpu.compiler.explain import explain_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.samples import SAMPLES, TensorMaker

TARGETS = [Target("CPU", Profile.CPU), Target("GPU", Profile.DISCRETE)]


def tensor(*sizes):
    return TensorDesc(DataType.FLOAT32, sizes)


def convolution(
    image, filters, output, *, strides=(1, 1), groups=1, direction=ConvolutionDirection.FORWARD, pads=(0, 0)
):
    return descs.Convolution(
        input_tensor=tensor(*image),
        filter_tensor=tensor(*filters),
        output_tensor=tensor(*output),
        mode=ConvolutionMode.CROSS_CORRELATION,
        direction=direction,
        strides=strides,
        dilations=(1, 1),
        start_padding=pads,
        end_padding=pads,
        output_padding=(0, 0),
        group_count=groups,
    )


def counted(desc, target):
    return list(kernel_counts(explain_operator("test", desc, target)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_product_reads_its_matrices_once_and_multiplies_all_pairs(target):
    desc = descs.Gemm(a_tensor=tensor(1, 1, 64, 32), b_tensor=tensor(1, 1, 32, 48), output_tensor=tensor(1, 1, 64, 48))
    ((_, counts),) = counted(desc, target)
    assert (counts.bytes, counts.operations) == (4 * (64 * 32 + 32 * 48 + 64 * 48), 2 * 64 * 32 * 48)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_depthwise_convolution_multiplies_its_window(target):
    desc = convolution((1, 8, 16, 16), (8, 1, 3, 3), (1, 8, 16, 16), groups=8, pads=(1, 1))
    ((_, counts),) = counted(desc, target)
    assert (counts.bytes, counts.operations) == (4 * (2 * 8 * 16 * 16 + 8 * 9), 2 * 9 * 8 * 16 * 16)


def test_the_kernels_of_a_transposed_convolution_share_its_multiplications():
    backward = ConvolutionDirection.BACKWARD
    desc = convolution((1, 16, 20, 20), (16, 16, 3, 3), (1, 16, 60, 60), strides=(3, 3), direction=backward)
    operations = [counts.operations for _, counts in counted(desc, TARGETS[0])]
    assert sorted(operations) == [16 * 16] * 9 + [2 * 16 * 16 * 20 * 20] * 9  # a part of the filter laid out, a phase
    at_once = convolution((1, 16, 20, 20), (16, 16, 2, 2), (1, 16, 40, 40), strides=(2, 2), direction=backward)
    assert [counts.operations for _, counts in counted(at_once, TARGETS[0])][-1] == 2 * 16 * 16 * 40 * 40


def test_winograds_filtering_multiplies_less_than_the_windows_have():
    desc = convolution((1, 64, 56, 56), (64, 64, 3, 3), (1, 64, 56, 56), pads=(1, 1))
    by_label = dict(counted(desc, TARGETS[0]))
    (product,) = (counts for label, counts in by_label.items() if "register" in label)
    assert product.operations == 2 * 64 * 64 * 36 * 14 * 14  # tiles of 4 x 4 positions in a domain of 6 x 6
    (patches,) = (counts for label, counts in by_label.items() if "patches" in label)
    assert (
        patches.operations == (64 + 1) * 36 * 14 * 14
    )  # one for each element that it writes; marks are a channel more


def test_a_step_that_repeats_multiplies_once_per_turn():
    """An LSTM's 4 gates of 16 elements from 16 of the state before, for 2 sequences, 8 times."""
    desc = SAMPLES["LSTM"].build({"batch": 2, "steps": 8, "inputs": 4, "hidden": 16}, TensorMaker(DataType.FLOAT32))
    (steps,) = [counts for _, counts in counted(desc, TARGETS[1]) if counts.kernels == 8]
    assert steps.operations == 8 * 2 * 4 * 16 * 16 * 2
