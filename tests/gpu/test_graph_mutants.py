"""Faults of the graph compiler are seen by a sample of the suite of graphs, which passes without them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import packed_strides
from dmlgpu.common.errors import DmlError
from dmlgpu.compiler.graph import compiler
from dmlgpu.compiler.graph.network import Network, NodeResult
from dmlgpu.compiler.graph.passes import (
    attention,
    convolutions,
    epilogues,
    inlining,
    layouts,
    nodes,
    numbers,
    rewriting,
)
from dmlgpu.compiler.graph.passes.rewriting import NodePass, Rewriting
from dmlgpu.compiler.plan import Affine, Contract, Convolve, PlanTensor
from dmlgpu.compiler.rewrites.sources import leaves
from dmlgpu.compiler.schedule import memory
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.suites.graphs import GraphExpectation
from dmlgpu.runtime.adapters import adapters
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend

SAMPLE = (
    "pair-product-residual-float16-plain",
    "pair-repeated_product-shifted_pair-float32-odd",
    "pair-transpose-product_of_transpose-float32-plain",
    "pair-addition-scale_bias-float32-tapped",
    "pair-addition-bits-float32-plain",
    "pattern-branches-float32-plain",
    "pattern-attention-float32-plain",
    "pattern-normalized_scores-float32-plain",
    "pattern-several_outputs-int32-plain",
    "pattern-updates_in_place-int32-plain",
    "pattern-two_readers-float32-plain",
    "pattern-convolution_normalization_relu-float32-plain",
    "pattern-biased_convolutions-float32-plain",
    "pattern-read_anew-int32-odd",
    "pair-transpose-max_pooling-float32-odd",
    "pattern-padded_convolution-float32-plain",
    "pattern-owned_normalization-float32-plain",
    "pattern-normalized_residual-float32-plain",
    "pattern-strided_convolutions-float32-plain",
)
"""Cases in which each pass is at work."""

Fault = Callable[[Any], Any]


@functools.cache
def expectation(name: str) -> GraphExpectation:
    """What a case must compute, by the reference alone."""
    return GraphExpectation.of(name)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    """The first adapter that runs shaders, with the schedules for CPUs, by which the sample shows every fault."""
    first = next((info for info in adapters() if info.backend != "NumPy"), None)
    if first is None:
        pytest.skip("no adapter that runs shaders")
    device = Device(first)
    assert isinstance(device.backend, GpuBackend)
    device.backend.target = replace(device.backend.target, profile=Profile.CPU)
    yield device
    device.remove()


def noticed(name: str, device: Device) -> bool:
    """Whether a case fails, or cannot even be compiled."""
    expected = expectation(name)
    try:
        return not all(verdict.ok for verdict in expected.verdicts(device, ()))
    except (AssertionError, ArithmeticError, DmlError, LookupError, TypeError, ValueError):
        return True


def test_the_sample_passes_without_faults(device: Device) -> None:
    assert not [name for name in SAMPLE if noticed(name, device)]


# ---- faults: each takes a function of the compiler and returns a wrong one


def _drops_a_node(drop_dead: Any) -> Any:
    def dropped(network: Network, note: Any) -> Network:
        """The last node reads what the node before its own producer computed, where that has as many bytes."""
        result = drop_dead(network, note)
        for number, position, value in reversed(list(result.reads())):
            if not isinstance(value, NodeResult):
                continue
            earlier = result.nodes[value.node].inputs[0]
            if isinstance(earlier, NodeResult) and result.tensor(earlier).byte_size == result.tensor(value).byte_size:
                node = result.nodes[number]
                inputs = (*node.inputs[:position], earlier, *node.inputs[position + 1 :])
                changed = dataclasses.replace(node, inputs=inputs)
                return dataclasses.replace(result, nodes=(*result.nodes[:number], changed, *result.nodes[number + 1 :]))
        return result

    return dropped


def _merges_by_description_alone(merge: Any) -> Any:
    def merged(network: Network, note: Any) -> Network:
        """Nodes of one description count as one, regardless of their inputs."""
        first: dict[Any, int] = {}
        same = {index: first.setdefault(node.desc, index) for index, node in enumerate(network.nodes)}
        known = {NodeResult(number, 0): NodeResult(other, 0) for number, other in same.items() if number != other}
        return nodes._replace_values(network, known)

    return merged


def _folds_with_the_wrong_data(evaluated: Any) -> Any:
    return lambda node, data: evaluated(node, [data[0]] * len(data))


def _exchanges_constants(drop_dead: Any) -> Any:
    def dropped(network: Network, note: Any) -> Network:
        """Two constants of one size take each other's place."""
        result = drop_dead(network, note)
        data = list(result.constants)
        for a, b in itertools.combinations(range(len(data)), 2):
            if len(data[a]) == len(data[b]):
                data[a], data[b] = data[b], data[a]
                break
        return dataclasses.replace(result, constants=tuple(data))

    return dropped


def _takes_a_scale_for_a_copy(is_identity: Any) -> Any:
    return lambda source: is_identity(source) or getattr(source, "file", "") == "elementwise/scale_bias"


def _forgets_the_epilogue(with_epilogue: Any) -> Any:
    def plain(writer: Any, step: Any, leaf: Any) -> Any:
        fused = with_epilogue(writer, step, leaf)
        return fused and dataclasses.replace(writer, output=fused.output)

    return plain


def _swaps_operands(reindex: Any) -> Any:
    def seen(root: Any, *rest: Any) -> Any:
        tree = reindex(root, *rest)
        inputs = getattr(tree, "inputs", ())
        if len(inputs) != 2:
            return tree
        (a, first), (b, second) = inputs
        return dataclasses.replace(tree, inputs=((a, second), (b, first)))

    return seen


def _frees_too_early(smallest: Any) -> Any:
    return lambda sizes, lives: smallest(sizes, {each: life[:-1] or life for each, life in lives.items()})


def _takes_memory_too_late(smallest: Any) -> Any:
    return lambda sizes, lives: smallest(sizes, {each: life[1:] or life for each, life in lives.items()})


def _ignores_strides(copied: Any) -> Any:
    def dense(*arguments: Any) -> Any:
        tensor = copied(*arguments)
        return tensor and dataclasses.replace(tensor, strides=packed_strides(tensor.sizes))

    return dense


def _loses_offsets(affine_between: Any) -> Any:
    def located(view: PlanTensor, written: PlanTensor) -> Any:
        affine = affine_between(view, written)
        return None if affine is None else Affine((0,) * len(affine.start), affine.steps)

    return located


def _reads_bytes_as_another_type(affine_between: Any) -> Any:
    return lambda view, written: affine_between(dataclasses.replace(view, data_type=written.data_type), written)


def _sees_one_reader_only(readers: Any) -> Any:
    return lambda self, memory: frozenset(sorted(readers(self, memory))[-1:])


def _writes_pieces_in_one_place(stored: Any) -> Any:
    return lambda writer, step, tree, output: stored(writer, step, tree, dataclasses.replace(output, offset=0))


def _forgets_to_round_halves(computed: Any) -> Any:
    def exact(writer: Any, statistic: Any) -> Any:
        """The value that is held stays a float32."""
        value, output = computed(writer, statistic)
        if isinstance(writer, Contract | Convolve) and value.data_type is DataType.FLOAT16:
            value = dataclasses.replace(value, data_type=DataType.FLOAT32)
        return value, output

    return exact


def _executes_in_the_wrong_order(rewritten: Any) -> Any:
    def swapped(*arguments: Any) -> Any:
        plan = rewritten(*arguments)
        return dataclasses.replace(plan, steps=(*plan.steps[:-2], *plan.steps[:-3:-1]))

    return swapped


def _copies_no_outputs(copies: Any) -> Any:
    return lambda network, places: []


def _takes_all_rows_for_softmax(is_softmax: Any) -> Any:
    return lambda rows: True


def _exchanges_keys_and_values(attended: Any) -> Any:
    def exchanged(weighted: Any, scores: Any) -> Any:
        attend = attended(weighted, scores)
        return attend and dataclasses.replace(attend, key=attend.value, value=attend.key)

    return exchanged


def _pads_on_the_other_side(padded: Any) -> Any:
    def exchanged(*arguments: Any) -> Any:
        desc = padded(*arguments)
        return desc and desc.replace(start_padding=desc.end_padding, end_padding=desc.start_padding)

    return exchanged


def _takes_the_variance_for_the_deviation(deviation: Any) -> Any:
    return lambda self, variance: variance


def _initializes_what_changes(is_initial: Any) -> Any:
    def initial(network: Network, number: int, known: set[Any], ends: set[int]) -> bool:
        return number not in ends and number == 0

    return initial


def _normalizes_what_it_does_not_store(with_source: Any) -> Any:
    return lambda step, tree: dataclasses.replace(with_source(step, tree), source=next(leaves(tree)))


def _adds_no_bias(changed: Any) -> Any:
    return lambda desc, **fields: changed(desc, **(fields | {"bias_tensor": None}))


def _writes_another_number(value: Any) -> Any:
    return lambda tensor, data: value(tensor, data) + 1


def _leaves_readers_behind(replace_parts: Any) -> Any:
    return lambda step, kind, change: step


FAULTS: Mapping[str, tuple[Fault, tuple[tuple[Any, str], ...]]] = {
    "a node is dropped": (_drops_a_node, ((nodes.DEAD, "run"),)),
    "different nodes are merged": (_merges_by_description_alone, ((nodes.DUPLICATES, "run"),)),
    "a constant is folded wrongly": (_folds_with_the_wrong_data, ((nodes, "_evaluated"),)),
    "constants are exchanged": (_exchanges_constants, ((nodes.DEAD, "run"),)),
    "a scale is forgotten": (_takes_a_scale_for_a_copy, ((rewriting, "is_identity"),)),
    "an epilogue is forgotten": (_forgets_the_epilogue, ((epilogues, "with_epilogue"),)),
    "scale and mask are forgotten": (_forgets_the_epilogue, ((attention, "with_epilogue"),)),
    "operands are swapped": (_swaps_operands, ((inlining, "reindex"), (rewriting, "reindex"))),
    "memory is free too early": (_frees_too_early, ((memory, "smallest_arena"),)),
    "memory is taken too late": (_takes_memory_too_late, ((memory, "smallest_arena"),)),
    "a stride is ignored": (_ignores_strides, ((layouts, "_copied"),)),
    "a view loses its offset": (_loses_offsets, ((inlining, "affine_between"), (layouts, "affine_between"))),
    "a type is not read again": (_reads_bytes_as_another_type, ((inlining, "affine_between"),)),
    "a second reader is overlooked": (_sees_one_reader_only, ((Rewriting, "readers"),)),
    "pieces are written in one place": (_writes_pieces_in_one_place, ((epilogues, "_stored"),)),
    "float16 are not rounded": (_forgets_to_round_halves, ((epilogues, "_computed"),)),
    "kernels run in the wrong order": (_executes_in_the_wrong_order, ((compiler, "_rewritten"),)),
    "an output is not copied": (_copies_no_outputs, ((compiler, "_copies"),)),
    "rows of any kind become attention": (_takes_all_rows_for_softmax, ((attention, "_is_softmax"),)),
    "padding is on the other side": (_pads_on_the_other_side, ((convolutions, "_padded"),)),
    "a root is forgotten": (
        _takes_the_variance_for_the_deviation,
        ((convolutions._Weights, "_deviation"),),
    ),
    "what changes is computed once": (_initializes_what_changes, ((nodes, "_is_initial"),)),
    "rows are reduced without what is added": (_normalizes_what_it_does_not_store, ((inlining, "_with_source"),)),
    "a bias is forgotten": (_adds_no_bias, ((convolutions, "changed"),)),
    "another number is written": (_writes_another_number, ((numbers, "_value"),)),
    "a reader misses a new layout": (_leaves_readers_behind, ((layouts, "replace_parts"),)),
    "keys and values are exchanged": (_exchanges_keys_and_values, ((attention, "_attention"),)),
}
"""What may be wrong with the compiler: the fault, and the functions (or passes) that have it."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    alter, places = FAULTS[fault]
    for place, name in places:
        if isinstance(place, NodePass):
            wrong = replace(place, **{name: alter(getattr(place, name))})
            passes = tuple(wrong if each is place else each for each in compiler.NODE_PASSES)
            monkeypatch.setattr(compiler, "NODE_PASSES", passes)
        else:
            monkeypatch.setattr(place, name, alter(getattr(place, name)))
    assert any(noticed(name, device) for name in SAMPLE)
