"""Rows of torchvision: models, transforms on the device, operators of detection."""

from __future__ import annotations

from typing import Any

from torch_clients.rows import row
from torch_clients.with_torch import train

TORCHVISION = "torchvision"


def _images(device: str, count: int = 2, size: int = 32) -> Any:
    import torch  # noqa: PLC0415

    return torch.rand(count, 3, size, size).to(device)


def _labeled(device: str) -> Any:
    """Return a batch for training; fewer or smaller images amplify roundings in batch normalization."""
    import torch  # noqa: PLC0415

    return _images(device, 8, 64), torch.arange(8).remainder(5).to(device)


def _classifier(name: str, device: str) -> Any:
    import torchvision  # noqa: PLC0415

    return getattr(torchvision.models, name)(weights=None, num_classes=5).to(device)


@row(TORCHVISION, "ResNet-18", "torchvision", tolerance=1e-3)
def resnet(device: str) -> Any:
    """Classify."""
    import torch  # noqa: PLC0415

    with torch.no_grad():
        return _classifier("resnet18", device).eval()(_images(device))


@row(TORCHVISION, "ResNet-18, trained under autocast to float16", "torchvision", tolerance=5e-2)
def resnet_autocast(device: str) -> Any:
    """Train a step; on the CPU in float32."""
    import torch  # noqa: PLC0415

    model, (x, target) = _classifier("resnet18", device).train(), _labeled(device)
    with torch.autocast(device, torch.float16, enabled=device != "cpu"):
        loss = torch.nn.functional.cross_entropy(model(x), target)
    torch.amp.GradScaler(device, enabled=device != "cpu").scale(loss).backward()
    return loss


@row(TORCHVISION, "MobileNetV3, trained", "torchvision", tolerance=1e-2)
def mobilenet(device: str) -> Any:
    """Train two steps."""
    import torch  # noqa: PLC0415

    model = _classifier("mobilenet_v3_small", device)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Dropout):
            layer.p = 0.0
    return train(model, torch.optim.SGD(model.parameters(), lr=0.01), _labeled(device), 2)


@row(
    TORCHVISION,
    "transforms v2 on the device: resize, crop, flip, color, blur, normalize",
    "torchvision",
    tolerance=1e-3,
)
def transforms(device: str) -> Any:
    """Apply transforms without chance."""
    from torchvision.transforms import v2  # noqa: PLC0415

    chain = v2.Compose([
        v2.Resize(24), v2.CenterCrop(20), v2.RandomHorizontalFlip(1.0), v2.Grayscale(3), v2.GaussianBlur(3, 1.0),
        v2.Normalize([0.5] * 3, [0.2] * 3), v2.Pad(2),
    ])  # fmt: skip
    return chain(_images(device))


@row(TORCHVISION, "transforms v2 that draw: rotation, affine, elastic, RandAugment, ColorJitter", "torchvision")
def random_transforms(device: str) -> Any:
    """Return the shapes of results."""
    import torch  # noqa: PLC0415
    from torchvision.transforms import v2  # noqa: PLC0415

    image = (_images(device) * 255).to(torch.uint8)
    chosen = v2.RandomRotation(20), v2.RandomAffine(10, (0.1, 0.1)), v2.ElasticTransform(), v2.RandAugment()
    return [list(transform(image).cpu().shape) for transform in (*chosen, v2.ColorJitter(0.2, 0.2, 0.2, 0.1))]


@row(TORCHVISION, "nms, box_iou, roi_align", "torchvision")
def boxes(device: str) -> Any:
    """Suppress boxes, and pool from them."""
    import torch  # noqa: PLC0415
    from torchvision import ops  # noqa: PLC0415

    corners = torch.rand(20, 2) * 10
    box = torch.cat((corners, corners + 1 + torch.rand(20, 2) * 8), 1).to(device)
    indices = ops.nms(box, torch.rand(20).to(device), 0.3)
    pooled = ops.roi_align(_images(device), [box[:3], box[3:6]], 4, sampling_ratio=2)
    return indices, ops.box_iou(box, box), pooled


@row(TORCHVISION, "deform_conv2d", "torchvision")
def deformable(device: str) -> Any:
    """Convolve with offsets."""
    import torch  # noqa: PLC0415
    from torchvision import ops  # noqa: PLC0415

    x, weight, offset = torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(1, 18, 6, 6)
    return ops.deform_conv2d(x.to(device), offset.to(device), weight.to(device))
