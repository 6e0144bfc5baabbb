"""Rows of timm."""

from __future__ import annotations

from typing import Any

from torch_clients.rows import row
from torch_clients.with_torch import train


def _trained(device: str, name: str, size: int, **options: Any) -> Any:
    import timm  # noqa: PLC0415
    import torch  # noqa: PLC0415

    model = timm.create_model(name, num_classes=5, **options).to(device)
    batch = torch.randn(8, 3, size, size).to(device), torch.arange(8).remainder(5).to(device)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.01), batch, 3)


@row("timm", "mobilenetv3_small_050, trained", "timm", tolerance=1e-3)
def mobilenet(device: str) -> Any:
    """Train a convolutional network; batches of few small images amplify roundings."""
    return _trained(device, "mobilenetv3_small_050", 64)


@row("timm", "vit_tiny, trained", "timm", tolerance=1e-3)
def transformer(device: str) -> Any:
    """Train a transformer of two layers."""
    return _trained(device, "vit_tiny_patch16_224", 32, img_size=32, depth=2)


@row("timm", "ModelEmaV3", "timm")
def average(device: str) -> Any:
    """Average two models."""
    import torch  # noqa: PLC0415
    from timm.utils import ModelEmaV3  # noqa: PLC0415

    model = torch.nn.Linear(4, 3).to(device)
    ema = ModelEmaV3(model, decay=0.9)
    with torch.no_grad():
        model.weight.add_(1)
    ema.update(model)
    return list(ema.module.parameters())
