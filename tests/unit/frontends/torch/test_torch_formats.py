"""Memory formats: results of the PyTorch device have the strides that those of the CPU have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

import torch.nn.functional as F  # noqa: E402

GENERATOR = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(8, 8, 3, 3, generator=GENERATOR)
SHAPES = [(2, 8, 4, 4), (1, 8, 3, 5)]


def channels_last(x: Any) -> Any:
    return x.contiguous(memory_format=torch.channels_last)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "conv2d": lambda x: F.conv2d(x, WEIGHT.to(x.device), WEIGHT[0, :, 0, 0].to(x.device), padding=1),
    "conv2d, only the weight": lambda x: F.conv2d(x.contiguous(), channels_last(WEIGHT).to(x.device)),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, WEIGHT.to(x.device)),
    "relu": F.relu,
    "add of two formats": lambda x: x + x.contiguous(),
    "add of two formats, swapped": lambda x: x.contiguous() + x,
    "bias": lambda x: x + torch.ones(8, 1, 1, device=x.device),
    "scalar tensor": lambda x: torch.ones((), device=x.device) - x,
    "comparison": lambda x: x > 0,
    "where": lambda x: torch.where(x > 0, x, x.contiguous()),
    "addcmul": lambda x: torch.addcmul(x, x, x),
    "frexp": lambda x: torch.frexp(x)[0],
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "group_norm, weight and bias": lambda x: F.group_norm(x, 2, WEIGHT[0, :, 0, 0].to(x.device), x[0, :, 0, 0]),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "indices of max_pool2d": lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "cat": lambda x: torch.cat([x, x], 1),
    "half": lambda x: x.half(),
    "zeros_like": torch.zeros_like,
    "dropout": lambda x: F.dropout(x * 0, 0.5),
    "in place": lambda x: x.clone().mul_(2).relu_(),
    "in place, of another format": lambda x: x.clone().add_(x.contiguous()),
    "in place, into another format": lambda x: x.contiguous().add_(x),
    "transposed": lambda x: x[0, 0].T * 2,
    "logsigmoid": F.logsigmoid,
    "logsigmoid, transposed": lambda x: F.logsigmoid(x[0, 0].T),
    "buffer of logsigmoid": lambda x: torch.ops.aten.log_sigmoid_forward(x.transpose(0, 2))[1],
    "permuted": lambda x: x.permute(3, 0, 2, 1).exp(),
    "part": lambda x: x[:, :, 1:] + 1,
    "repeated": lambda x: x[:, :1].expand(-1, 8, -1, -1) + 1,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strides_are_those_of_the_cpu(name: str) -> None:
    for shape in SHAPES:
        x = channels_last(torch.randn(shape, generator=GENERATOR))
        expected = FUNCTIONS[name](x)
        for _ in range(2):  # the second call repeats the first one's plan
            result = FUNCTIONS[name](x.to("dml"))
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)
            strides = [
                tuple(s for s, size in zip(y.stride(), y.shape, strict=True) if size > 1) for y in (result, expected)
            ]
            assert strides[0] == strides[1], f"{name} of {shape}"


def test_training_keeps_the_format_of_weights() -> None:
    images = channels_last(torch.randn(2, 8, 6, 6, generator=GENERATOR))
    steps = []
    for device in ("cpu", "dml"):
        weight = channels_last(WEIGHT).to(device).requires_grad_()
        optimizer = torch.optim.AdamW([weight], lr=0.1)
        for _ in range(3):
            F.conv2d(images.to(device), weight).square().mean().backward()
            optimizer.step()
        steps.append(weight.detach())
    assert steps[1].stride() == steps[0].stride()
    torch.testing.assert_close(steps[1].cpu(), steps[0], rtol=1e-3, atol=1e-3)
