"""The same training by PyTorch, from the same parameters on the same batches."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dmlgpu.demo.training.digits import Digits
from dmlgpu.demo.training.network import EPSILON
from dmlgpu.demo.training.trainer import Adam

FIRST_STEPS = 10
"""So many steps agree to float32's accuracy; after that, what rounding changes grows from step to step."""

TOLERANCE = 1e-3
"""How much the losses of the first steps may differ, relatively."""


def torch_losses(
    digits: Digits, order: NDArray[np.uint32], parameters: Mapping[str, NDArray[np.float32]], adam: Adam
) -> NDArray[np.float32]:
    """Return the losses of all steps, on the processor.

    Raises:
        ModuleNotFoundError: torch is not installed.
    """
    import torch  # noqa: PLC0415  only to compare with
    from torch.nn import functional  # noqa: PLC0415

    torch.set_num_threads(1)  # for layers as small as these, several wait for each other more than they compute
    given = {
        name: torch.tensor(array if name.startswith("filter") else array.squeeze())
        for name, array in parameters.items()
    }
    for one in given.values():
        one.requires_grad_()
    betas = (adam.beta1, adam.beta2)
    optimizer = torch.optim.Adam(list(given.values()), adam.learning_rate, betas, adam.epsilon)
    images, labels = torch.tensor(digits.train_images), torch.tensor(digits.train_labels.astype(np.int64))
    blocks = sum(name.startswith("filter") for name in parameters)
    losses = []
    for batch in order:
        numbers = torch.tensor(batch.astype(np.int64))
        values = images[numbers]
        for number in range(1, blocks + 1):
            values = functional.conv2d(values, given[f"filter{number}"], padding=1)
            scale, shift = given[f"scale{number}"], given[f"shift{number}"]
            values = functional.batch_norm(values, None, None, scale, shift, training=True, eps=EPSILON)
            values = functional.max_pool2d(functional.relu(values), 2)
        scores = functional.linear(values.flatten(1), given["weights"], given["bias"])
        loss = functional.cross_entropy(scores, labels[numbers])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses, np.float32)


def first_difference(losses: NDArray[np.float32], others: NDArray[np.float32]) -> float:
    """Return the largest relative difference of the losses of the first steps."""
    ours, theirs = losses[:FIRST_STEPS], others[:FIRST_STEPS]
    return float((np.abs(ours - theirs) / np.abs(theirs)).max())
