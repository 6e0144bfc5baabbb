"""Training on a device: one graph is one step, whose outputs are the inputs of the next one.

The images are scikit-learn's handwritten digits. Data, the order of the batches, parameters, the optimizer's state and
the losses stay on the device. There are two buffers for each part of the state, read and written in turns by two
recorded command lists, so that a step is one submission: nothing is copied, and the host waits for no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog.enums import DataType
from dmlgpu.compiler.graph.description import OperatorNode
from dmlgpu.demo.training.network import SIDE, classify, initial_moments, learn
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.commands import CommandList
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors.graphs import functions as f
from dmlgpu.tensors.graphs.graph import Graph

HELD_OUT = 360


@dataclass(frozen=True)
class Digits:
    """Images {count, 1, 8, 8} from 0 to 1, and the digits on them, UINT32 {count}."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.uint32]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.uint32]


def load_digits(seed: int) -> Digits:
    """Return the digits, 360 that ``seed`` picks held out.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed.
    """
    from sklearn import datasets  # noqa: PLC0415  an extra

    dataset = datasets.load_digits()
    images = (dataset.images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = dataset.target.astype(np.uint32)
    order = np.random.default_rng([seed, 1]).permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[train], labels[train], images[test], labels[test])


def batch_order(count: int, steps: int, batch: int, seed: int) -> NDArray[np.uint32]:
    """Return which images each step takes, {steps, batch}: all ``count`` of them in a new order, again and again."""
    draw = np.random.default_rng([seed, 2])
    epochs = -(-steps * batch // count)
    numbers = np.concatenate([draw.permutation(count) for _ in range(epochs)])
    return numbers[: steps * batch].reshape(steps, batch).astype(np.uint32)


Array = NDArray[np.float32]


@dataclass(frozen=True)
class Adam:
    """The optimizer's constants (Kingma and Ba 2015)."""

    learning_rate: float = 0.003
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8


MOMENTUM = 0.1
"""How much of a batch's mean and variance goes into the running ones."""


class Trainer:
    """A network in training.

    Args:
        device: where it is trained.
        digits: what it learns.
        order: the images of each step's batch, UINT32 {steps, batch}.
        parameters: to start from, as ``network.initial_parameters`` returns them.
        adam: the optimizer's constants.

    Attributes:
        compiled: one step.
        operators: of which it was made.
    """

    def __init__(
        self,
        device: Device,
        digits: Digits,
        order: NDArray[np.uint32],
        parameters: Mapping[str, Array],
        adam: Adam = Adam(),
    ):
        self.device, self.steps = device, len(order)
        self._done, self._digits = 0, digits
        self._names = tuple(parameters)
        filters = [array.shape[0] for name, array in parameters.items() if name.startswith("filter")]
        state: dict[str, NDArray[Any]] = {
            "step": np.zeros((1, 1, 1, 1), np.uint32),
            "losses": np.zeros((1, 1, 1, len(order)), np.float32),
        }
        learnt = {**parameters, **initial_moments(filters)}
        self._sizes = {name: array.shape for name, array in learnt.items()}
        state |= {name: array.copy() for name, array in learnt.items()}
        state |= {f"{name} {which}": np.zeros_like(parameters[name]) for name in parameters for which in ("m", "v")}
        data = {
            "images": digits.train_images.reshape(1, 1, -1, SIDE * SIDE),
            "labels": digits.train_labels.reshape(1, 1, -1, 1),
            "order": order.reshape(1, 1, *order.shape),
        }
        self.compiled, self.operators = _compile_step(device, data, state, self._names, adam)
        fixed = [_uploaded(device, array) for array in data.values()]
        self._sides = [{name: _uploaded(device, array) for name, array in state.items()} for _ in range(2)]
        persistent = _initialized(self.compiled)
        self._lists = [
            _recorded(self.compiled, [*fixed, *reads.values()], list(writes.values()), persistent)
            for reads, writes in (self._sides, self._sides[::-1])
        ]

    @property
    def state(self) -> Mapping[str, Buffer]:
        """Where the state after the last step lies, by name."""
        return self._sides[self._done % 2]

    def advance(self, count: int) -> None:
        """Compute so many steps; the host does not wait for them.

        Raises:
            ValueError: there are no batches for so many.
        """
        if self._done + count > self.steps:
            raise ValueError(f"advance: count must be at most {self.steps - self._done}, got {count}")
        for _ in range(count):
            self.device.queue.execute([self._lists[self._done % 2]])
            self._done += 1

    def losses(self) -> Array:
        """Return the losses of the steps so far, {steps}."""
        return self.state["losses"].read().view(np.float32)[: self._done]

    def parameters(self) -> dict[str, Array]:
        """Return the parameters after the last step, by name; they are flat."""
        return {name: self.state[name].read().view(np.float32) for name in self._names}

    def accuracy(self) -> float:
        """Return the share of the held-out images that the network, as it is now, classifies right."""
        images, labels = self._digits.test_images, self._digits.test_labels
        graph = Graph(self.device, name="classify")
        images_input = graph.input(images.shape, name="images")
        learnt = {name: graph.input(sizes, name=name) for name, sizes in self._sizes.items()}
        arrays = {name: self.state[name].read().view(np.float32).reshape(sizes) for name, sizes in self._sizes.items()}
        (probabilities,) = graph.evaluate([classify(images_input, learnt)], {"images": images, **arrays})
        return float((probabilities[0, 0].argmax(axis=1) == labels).mean())


def _compile_step(
    device: Device,
    data: Mapping[str, NDArray[Any]],
    state: Mapping[str, NDArray[Any]],
    names: Sequence[str],
    adam: Adam,
) -> tuple[CompiledOperator, int]:
    """Compile one step, and count its operators.

    Its inputs are the data and the state, its outputs the state after it, in the same order.
    """
    graph = Graph(device, name="step")
    inputs = {
        name: graph.input(array.shape, DataType.from_numpy(array.dtype), name=name)
        for name, array in {**data, **state}.items()
    }
    step = inputs["step"]
    batch = f.gather(inputs["order"], step, axis=2, index_dimensions=1)
    images = f.gather(inputs["images"], batch, axis=2, index_dimensions=1)
    labels = f.gather(inputs["labels"], batch, axis=2, index_dimensions=1)
    images = images.reinterpret((images.sizes[2], 1, SIDE, SIDE))
    learned = learn(graph, images, labels, {name: inputs[name] for name in names})
    following = step + 1
    after = {"step": following, "losses": f.scatter_elements(inputs["losses"], step, learned.loss, axis=3)}
    for name in names:
        after[name], after[f"{name} m"], after[f"{name} v"] = f.adam_optimizer(
            inputs[name], inputs[f"{name} m"], inputs[f"{name} v"], learned.gradients[name], following, **asdict(adam)
        )
    for name, moment in learned.moments.items():
        after[name] = inputs[name] * (1 - MOMENTUM) + moment * MOMENTUM
    outputs = [after[name] for name in state]
    operators = sum(isinstance(node, OperatorNode) for node in graph.desc(outputs).nodes)
    return graph.compile(outputs), operators


def _uploaded(device: Device, array: NDArray[Any]) -> Buffer:
    buffer = device.create_buffer(array.nbytes)
    buffer.write(array)
    return buffer


def _initialized(compiled: CompiledOperator) -> Buffer | None:
    """Initialise a graph, and return its persistent resource if it has one."""
    device, size = compiled.device, compiled.binding_properties.persistent_resource_size
    persistent = device.create_buffer(size) if size else None
    initializer = device.create_operator_initializer([compiled])
    table = device.create_binding_table(initializer)
    table.bind_outputs([persistent])
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, initializer, table)
    commands.close()
    device.queue.execute([commands])
    return persistent


def _recorded(
    compiled: CompiledOperator, inputs: Sequence[Buffer], outputs: Sequence[Buffer], persistent: Buffer | None
) -> CommandList:
    """Return a list of one dispatch, to be executed any number of times."""
    device, size = compiled.device, compiled.binding_properties.temporary_resource_size
    table = device.create_binding_table(compiled)
    table.bind_inputs(list(inputs))
    table.bind_outputs(list(outputs))
    table.bind_temporary_resource(device.create_buffer(size) if size else None)
    table.bind_persistent_resource(persistent)
    commands = device.create_command_list()
    device.create_command_recorder().record_dispatch(commands, compiled, table)
    commands.close()
    return commands
