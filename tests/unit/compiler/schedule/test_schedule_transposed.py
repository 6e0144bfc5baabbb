"""Phases of transposed convolutions: together they have all pairs that the filter scatters, each once."""

from hypothesis import given
from hypothesis import strategies as st

from dmlgpu.compiler.plan.windows import WindowAxis
from dmlgpu.compiler.schedule.transposed import phases

AXES = st.builds(
    WindowAxis,
    spatial=st.integers(1, 12),
    positions=st.integers(1, 6),
    size=st.integers(1, 6),
    stride=st.integers(1, 6),
    dilation=st.integers(1, 5),
    start=st.integers(0, 9),
)


def scattered(axis):
    """Return elements of the output, of the input, and taps of the filter, by the definition."""
    return {
        (p * axis.stride + k * axis.dilation - axis.start, p, k)
        for p in range(axis.positions)
        for k in range(axis.size)
        if 0 <= p * axis.stride + k * axis.dilation - axis.start < axis.spatial
    }


def gathered(part):
    """Return the elements and taps of a phase."""
    axis = part.axis
    for m in range(axis.positions):
        for j in range(axis.size):
            p = m * axis.stride + j * axis.dilation - axis.start
            if 0 <= p < axis.spatial:
                yield part.first + m * part.stride, p, part.tap + j * part.step


@given(AXES)
def test_phases_gather_all_scattered_pairs(axis):
    triples = [triple for phase in phases((axis,)) for triple in gathered(phase.parts[0])]
    assert sorted(triples) == sorted(scattered(axis))


@given(AXES)
def test_phases_share_out_the_output(axis):
    parts = [phase.parts[0] for phase in phases((axis,))]
    elements = sorted(part.first + m * part.stride for part in parts for m in range(part.axis.positions))
    assert elements == list(range(axis.spatial))
    assert all(phase.is_empty == (phase.parts[0].axis.size == 0) for phase in phases((axis,)))


def test_phases_of_two_dimensions_are_all_pairs():
    axis = WindowAxis(spatial=9, positions=4, size=3, stride=2, dilation=1, start=0)
    assert [tuple(part.first for part in phase.parts) for phase in phases((axis, axis))] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
