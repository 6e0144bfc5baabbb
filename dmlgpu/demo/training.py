"""A network that learns handwritten digits: forward, backward and ADAM in DirectML's operators, one graph per step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dmlgpu.catalog.enums import ConvolutionDirection, DataType, MatrixTransform, ReduceFunction
from dmlgpu.compiler.graph.description import OperatorNode
from dmlgpu.demo.drawing import BACKGROUND, FAINT, INK, SCALE, write
from dmlgpu.runtime.buffer import Buffer
from dmlgpu.runtime.commands import CommandList
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.operator import CompiledOperator
from dmlgpu.tensors import directml as f
from dmlgpu.tensors.graphs.graph import Graph
from dmlgpu.tensors.tensor import Tensor

Parameters = Mapping[str, Tensor]
Backward = Callable[[Tensor], tuple[Tensor, dict[str, Tensor]]]

FILTERS = (16, 32)
"""Number of filters of the two blocks."""

SIDE, CLASSES = 8, 10
EPSILON = 1e-5
"""Added to variances."""


@dataclass(frozen=True)
class Forward:
    """Results of the forward pass.

    Attributes:
        loss: The mean cross entropy of the batch, {1, 1, 1, 1}.
        moments: Mean and variance of each block's normalization by the names of the running ones, {1, channels, 1, 1}.
        gradients: Gradient of the loss with respect to each parameter, by name.
    """

    loss: Tensor
    moments: dict[str, Tensor]
    gradients: dict[str, Tensor]


def initial_parameters(seed: int, filters: Sequence[int] = FILTERS) -> dict[str, NDArray[np.float32]]:
    """Return parameters to start from, by name: filters and weights as He et al. (2015) draw them, scales of 1."""
    draw = np.random.default_rng(seed)
    parameters = {}
    channels = 1
    for index, count in enumerate(filters, 1):
        parameters[f"filter{index}"] = _drawn(draw, (count, channels, 3, 3), 9 * channels)
        parameters[f"scale{index}"] = np.ones((1, count, 1, 1), np.float32)
        parameters[f"shift{index}"] = np.zeros((1, count, 1, 1), np.float32)
        channels = count
    features = channels * (SIDE >> len(filters)) ** 2
    parameters["weights"] = _drawn(draw, (1, 1, CLASSES, features), features)
    parameters["bias"] = np.zeros((1, 1, 1, CLASSES), np.float32)
    return parameters


def initial_moments(filters: Sequence[int] = FILTERS) -> dict[str, NDArray[np.float32]]:
    """Return the running means and variances to start from, by name."""
    moments = {}
    for index, count in enumerate(filters, 1):
        moments[f"mean{index}"] = np.zeros((1, count, 1, 1), np.float32)
        moments[f"variance{index}"] = np.ones((1, count, 1, 1), np.float32)
    return moments


def _drawn(draw: np.random.Generator, sizes: tuple[int, ...], inputs: int) -> NDArray[np.float32]:
    return (draw.standard_normal(sizes) * np.sqrt(2 / inputs)).astype(np.float32)


def learn(graph: Graph, images: Tensor, labels: Tensor, parameters: Parameters) -> Forward:
    """Compute the loss of a batch and its gradients.

    Args:
        graph: To which the operators are added.
        images: {batch, 1, 8, 8}.
        labels: Their classes, UINT32 {1, 1, batch, 1}.
        parameters: Named as in ``initial_parameters``.
    """
    steps: list[Backward] = []
    moments: dict[str, Tensor] = {}
    values = images
    for index in _blocks(parameters):
        with graph.scope(f"block {index}"):
            values, block_moments, backward = _block(values, parameters, index)
        moments |= block_moments
        steps.append(backward)
    with graph.scope("dense"):
        scores, backward = _dense(values, parameters)
        steps.append(backward)
    with graph.scope("loss"):
        loss, gradient = _cross_entropy(graph, scores, labels)
    gradients: dict[str, Tensor] = {}
    for backward in reversed(steps):
        gradient, block_gradients = backward(gradient)
        gradients |= block_gradients
    return Forward(loss, moments, gradients)


def classify(images: Tensor, parameters: Parameters) -> Tensor:
    """Compute the probabilities of classes, {1, 1, batch, 10}; ``parameters`` has running moments, too."""
    values = images
    for index in _blocks(parameters):
        normal = f.batch_normalization(
            _convolved(values, parameters[f"filter{index}"]),
            parameters[f"mean{index}"],
            parameters[f"variance{index}"],
            parameters[f"scale{index}"],
            parameters[f"shift{index}"],
            spatial=True,
            epsilon=EPSILON,
        )
        values = _pooled(f.activation_relu(normal))
    scores, _ = _dense(values, parameters)
    return f.activation_softmax1(scores, axes=(3,))


def _blocks(parameters: Parameters) -> range:
    return range(1, 1 + sum(name.startswith("filter") for name in parameters))


def _block(values: Tensor, parameters: Parameters, index: int) -> tuple[Tensor, dict[str, Tensor], Backward]:
    """Add a convolution, batch normalization, ReLU and max pooling; return the batch's moments as well."""
    filters, scale = parameters[f"filter{index}"], parameters[f"scale{index}"]
    shift = parameters[f"shift{index}"]
    convolved = _convolved(values, filters)
    normal = f.batch_normalization_training(convolved, scale, shift, epsilon=EPSILON)
    active = f.activation_relu(normal.output)

    def backward(gradient: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        unpooled = f.max_pooling_grad(active, gradient, window_size=(2, 2), strides=(2, 2))
        passed = f.activation_relu_grad(normal.output, unpooled)
        gradients = f.batch_normalization_training_grad(
            convolved, passed, normal.output_mean, normal.output_variance, scale, epsilon=EPSILON
        )
        of_input = f.convolution(
            gradients.output_gradient,
            filters,
            direction=ConvolutionDirection.BACKWARD,
            start_padding=(1, 1),
            end_padding=(1, 1),
        )
        return of_input, {
            f"filter{index}": _filter_gradient(values, gradients.output_gradient),
            f"scale{index}": gradients.output_scale_gradient,
            f"shift{index}": gradients.output_bias_gradient,
        }

    moments = {f"mean{index}": normal.output_mean, f"variance{index}": normal.output_variance}
    return _pooled(active), moments, backward


def _convolved(values: Tensor, filters: Tensor) -> Tensor:
    return f.convolution(values, filters, start_padding=(1, 1), end_padding=(1, 1))


def _pooled(values: Tensor) -> Tensor:
    return f.max_pooling2(values, window_size=(2, 2), strides=(2, 2), output_indices=False).output


def _filter_gradient(values: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of a convolution's filters: a convolution with channels and batch exchanged.

    Its input is the values, its filters are the gradient, as large as the images; each of the 3 x 3 places to which
    padding lets them slide is one element of a filter. Nothing is copied for it: strides describe the layout.
    """
    gradient_by_batch = f.convolution(_turned(values), _turned(gradient), start_padding=(1, 1), end_padding=(1, 1))
    return _turned(gradient_by_batch)


def _turned(values: Tensor) -> Tensor:
    """View {a, b, height, width} as {b, a, height, width}."""
    a, b, height, width = values.sizes
    return values.reinterpret((b, a, height, width), (height * width, b * height * width, width, 1))


def _dense(values: Tensor, parameters: Parameters) -> tuple[Tensor, Backward]:
    """Add a product with a matrix and a bias; return scores {1, 1, batch, 10}."""
    weights, bias = parameters["weights"], parameters["bias"]
    batch, features = values.sizes[0], weights.sizes[3]
    flat = values.reinterpret((1, 1, batch, features))
    scores = f.gemm(flat, weights, bias.broadcast_to((1, 1, batch, CLASSES)), trans_b=MatrixTransform.TRANSPOSE)

    def backward(gradient: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        of_values = f.gemm(gradient, weights).reinterpret(values.sizes)
        return of_values, {
            "weights": f.gemm(gradient, flat, trans_a=MatrixTransform.TRANSPOSE),
            "bias": f.reduce(gradient, function=ReduceFunction.SUM, axes=(2,)),
        }

    return scores, backward


def _cross_entropy(graph: Graph, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over the batch of the negative logarithm of the correct class's probability, and the scores'
    gradient."""
    batch = scores.sizes[2]
    off_on = graph.constant(np.array([[[[0, 1]]]], np.float32))
    right = f.one_hot(labels, off_on, axis=3, output_sizes=scores.sizes)
    likelihoods = f.activation_log_softmax1(scores, axes=(3,)) * right
    loss = f.reduce(likelihoods, function=ReduceFunction.SUM, axes=(2, 3)) * (-1 / batch)
    return loss, (f.activation_softmax1(scores, axes=(3,)) - right) * (1 / batch)


HELD_OUT = 360


@dataclass(frozen=True)
class Digits:
    """Images {count, 1, 8, 8} from 0 to 1, and the digits on them, UINT32 {count}."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.uint32]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.uint32]


def load_digits(seed: int) -> Digits:
    """Return the digits; 360 of them, drawn by ``seed``, are held out.

    Raises:
        ModuleNotFoundError: Scikit-learn is not installed.
    """
    from sklearn import datasets  # noqa: PLC0415  an extra

    dataset = datasets.load_digits()
    images = (dataset.images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    labels = dataset.target.astype(np.uint32)
    order = np.random.default_rng([seed, 1]).permutation(len(images))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    return Digits(images[train], labels[train], images[test], labels[test])


def batch_order(count: int, steps: int, batch: int, seed: int) -> NDArray[np.uint32]:
    """Return the indices of the images of each step, {steps, batch}: a new permutation of all ``count`` per epoch."""
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
"""Weight of a batch's mean and variance in the running ones."""


class Trainer:
    """A network in training.

    Args:
        device: Device to train on.
        digits: Training data.
        order: The images of each step's batch, UINT32 {steps, batch}.
        parameters: To start from, as ``network.initial_parameters`` returns them.
        adam: The optimizer's constants.

    Attributes:
        compiled: One step.
        operators: Number of its operators.
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
        learned = {**parameters, **initial_moments(filters)}
        self._sizes = {name: array.shape for name, array in learned.items()}
        state |= {name: array.copy() for name, array in learned.items()}
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
        """Buffers with the state after the last step, by name."""
        return self._sides[self._done % 2]

    def advance(self, count: int) -> None:
        """Compute ``count`` steps; the host does not wait for them.

        Raises:
            ValueError: If there are not enough batches.
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
        """Return the share of the held-out images that the network classifies correctly at present."""
        images, labels = self._digits.test_images, self._digits.test_labels
        graph = Graph(self.device, name="classify")
        images_input = graph.input(images.shape, name="images")
        learned = {name: graph.input(sizes, name=name) for name, sizes in self._sizes.items()}
        arrays = {name: self.state[name].read().view(np.float32).reshape(sizes) for name, sizes in self._sizes.items()}
        (probabilities,) = graph.evaluate([classify(images_input, learned)], {"images": images, **arrays})
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
    """Initialize a graph, and return its persistent resource if it has one."""
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


FIRST_STEPS = 10
"""Steps that agree to float32 accuracy; after them, rounding differences grow with every step."""

TOLERANCE = 1e-3
"""Relative tolerance of the losses of the first steps."""


class TorchTrainer:
    """The same network in training by PyTorch's modules, autograd and optimizer, compiled on the device ``dml``.

    Args:
        digits: Training data of the network.
        order: As of ``Trainer``.
        parameters: To start from.
        adam: The optimizer's constants.
        device: Device of PyTorch: ``cpu`` or ``dml``.

    Raises:
        ModuleNotFoundError: torch is not installed.
    """

    def __init__(
        self,
        digits: Digits,
        order: NDArray[np.uint32],
        parameters: Mapping[str, NDArray[np.float32]],
        adam: Adam,
        device: str = "cpu",
    ):
        import torch  # noqa: PLC0415  an extra
        from torch.nn import functional  # noqa: PLC0415

        torch.set_num_threads(1)  # for layers as small as these, several wait for each other more than they compute
        tensors = {
            name: torch.tensor(array if name.startswith("filter") else array.squeeze()).to(device)
            for name, array in parameters.items()
        }
        for tensor in tensors.values():
            tensor.requires_grad_()
        betas = (adam.beta1, adam.beta2)
        optimizer = torch.optim.Adam(list(tensors.values()), adam.learning_rate, betas, adam.epsilon)
        arrays = digits.train_images, digits.train_labels.astype(np.int64), order.astype(np.int64)
        images, labels, batches = (torch.tensor(array).to(device) for array in arrays)
        blocks = sum(name.startswith("filter") for name in parameters)

        def step(numbers: Any) -> Any:
            optimizer.zero_grad()
            values = images[numbers]
            for index in range(1, blocks + 1):
                values = functional.conv2d(values, tensors[f"filter{index}"], padding=1)
                scale, shift = tensors[f"scale{index}"], tensors[f"shift{index}"]
                values = functional.batch_norm(values, None, None, scale, shift, training=True, eps=EPSILON)
                values = functional.max_pool2d(functional.relu(values), 2)
            scores = functional.linear(values.flatten(1), tensors["weights"], tensors["bias"])
            loss = functional.cross_entropy(scores, labels[numbers])
            loss.backward()
            optimizer.step()
            return loss.detach()

        self._step = torch.compile(step, backend="dmlgpu") if device == "dml" else step
        self._batches, self._losses = iter(batches), list[Any]()

    def advance(self, count: int) -> None:
        """Compute ``count`` steps."""
        for _ in range(count):
            self._losses.append(self._step(next(self._batches)))

    def losses(self) -> NDArray[np.float32]:
        """Return the losses of the steps so far, {steps}."""
        return np.array([loss.item() for loss in self._losses], np.float32)


def torch_losses(*task: Any) -> NDArray[np.float32]:
    """Return the losses of all steps of a ``TorchTrainer`` of these arguments."""
    trainer = TorchTrainer(*task)
    trainer.advance(len(task[1]))
    return trainer.losses()


def first_difference(losses: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """Return the largest relative difference of the losses of the first steps."""
    ours, theirs = losses[:FIRST_STEPS], others[:FIRST_STEPS]
    return float((np.abs(ours - theirs) / np.abs(theirs)).max())


WIDTH, HEIGHT = 960, 480
LEFT, TOP, RIGHT, BOTTOM = 96, 110, 36, 64
GRID = "#2b313a"
COLORS = ("#4895ef", "#f4a261")


def draw_losses(losses: Mapping[str, NDArray[np.float32]], title: str, subtitle: str) -> Image.Image:
    """Return a picture of curves.

    Args:
        losses: Positive losses of each step, by library. At most two curves, the second one drawn thinner.
        title: Above them.
        subtitle: Below it.
    """
    steps = max(len(series) for series in losses.values())
    values = np.concatenate(list(losses.values()))
    low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()))
    high = max(high, low + 1)
    canvas = Image.new("RGB", (WIDTH, HEIGHT), BACKGROUND)
    write(canvas, (36, 32), title, INK, 30)
    write(canvas, (36, 74), subtitle, FAINT, 16)

    def place(step: float, loss: float) -> tuple[float, float]:
        across = (step - 1) / max(steps - 1, 1)
        up = (math.log10(loss) - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    large = canvas.resize((WIDTH * SCALE, HEIGHT * SCALE), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(large)
    for power in range(low, high + 1):
        ends = [place(1, 10**power), place(steps, 10**power)]
        draw.line([(x * SCALE, y * SCALE) for x, y in ends], GRID, SCALE)
    for index, curve in enumerate(losses.values()):
        points = [place(step, float(loss)) for step, loss in enumerate(curve, 1)]
        thickness = 2 * SCALE if index == 0 else SCALE
        draw.line([(x * SCALE, y * SCALE) for x, y in points], COLORS[index], thickness, joint="curve")
    picture = large.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    for power in range(low, high + 1):
        write(picture, (LEFT - 12, round(place(1, 10**power)[1])), f"{10.0**power:g}", FAINT, 14, anchor="rm")
    for step in dict.fromkeys((1, *(round(steps * part / 5) for part in range(1, 6)))):
        write(picture, (round(place(step or 1, 1)[0]), HEIGHT - BOTTOM + 12), str(step or 1), FAINT, 14, anchor="ma")
    for index, name in enumerate(losses):
        write(picture, (WIDTH - RIGHT, 40 + 24 * index), name, COLORS[index], 16, anchor="ra")
    return picture
