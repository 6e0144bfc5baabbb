"""Rows of libraries of computer vision."""

from __future__ import annotations

from typing import Any

from torch_clients.rows import row


def _pictures(device: str, size: int = 64, count: int = 1) -> Any:
    import torch  # noqa: PLC0415

    return torch.rand(count, 3, size, size).to(device)


def _evaluated(model: Any, device: str, *inputs: Any) -> Any:
    import torch  # noqa: PLC0415

    with torch.no_grad():
        return model.eval().to(device)(*inputs)


@row("kornia", "filters, colors, geometry, morphology, features, losses", "kornia")
def kornia_functions(device: str) -> Any:
    """Call functions of several modules."""
    import kornia  # noqa: PLC0415
    import torch  # noqa: PLC0415

    x = _pictures(device, 32, 2)
    return [
        kornia.filters.sobel(x),
        kornia.filters.canny(x)[0],
        kornia.filters.median_blur(x, (3, 3)),
        kornia.filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
        kornia.color.rgb_to_lab(x),
        kornia.color.rgb_to_hsv(x),
        kornia.enhance.equalize(x),
        kornia.geometry.rotate(x, torch.tensor([30.0, 10.0], device=device)),
        kornia.geometry.warp_perspective(x, torch.eye(3, device=device).repeat(2, 1, 1), (16, 16)),
        kornia.morphology.dilation(x, torch.ones(3, 3, device=device)),
        kornia.feature.harris_response(x),
        kornia.losses.ssim_loss(x, x * 0.9, 5),
    ]


@row("kornia", "augmentations", "kornia")
def kornia_augmentations(device: str) -> Any:
    """Augment pictures; kornia checks ranges by `torch._assert_async`."""
    import kornia.augmentation as augmentations  # noqa: PLC0415

    sequence = augmentations.AugmentationSequential(
        augmentations.RandomHorizontalFlip(p=1.0),
        augmentations.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0),
        augmentations.RandomAffine(20.0, p=1.0),
        augmentations.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0),
    )
    return sequence(_pictures(device, 32, 2))


@row("Ultralytics", "YOLO11n: predict", "ultralytics", tolerance=1e-2)
def detection(device: str) -> Any:
    """Detect in a picture; a device is given as `torch.device("dml")`."""
    import torch  # noqa: PLC0415
    from ultralytics import YOLO  # noqa: PLC0415

    picture = (_pictures("cpu", 160)[0].permute(1, 2, 0) * 255).byte().numpy()
    model = YOLO("yolo11n.yaml")
    (result,) = model.predict(picture, device=torch.device(device), conf=0.0, imgsz=160, verbose=False)
    return result.boxes.data


@row("segmentation models", "U-Net of ResNet-18, FPN of MobileNetV2, Dice loss", "segmentation_models_pytorch")
def segmentation(device: str) -> Any:
    """Segment a picture."""
    import segmentation_models_pytorch as models  # noqa: PLC0415
    import torch  # noqa: PLC0415

    options: dict[str, Any] = {"encoder_weights": None, "classes": 3}
    x, target = _pictures(device), torch.randint(3, (1, 64, 64)).to(device)
    mask = _evaluated(models.Unet("resnet18", **options), device, x)
    return [
        mask,
        _evaluated(models.FPN("mobilenet_v2", **options), device, x),
        models.losses.DiceLoss("multiclass")(mask, target),
    ]


@row("open_clip", "CLIP: picture and text", "open_clip")
def clip(device: str) -> Any:
    """Embed a picture and a text."""
    import open_clip  # noqa: PLC0415
    import torch  # noqa: PLC0415

    picture = {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16}
    text = {"context_length": 16, "vocab_size": 100, "width": 32, "heads": 2, "layers": 2}
    words = torch.randint(1, 100, (2, 16)).to(device)
    return _evaluated(open_clip.CLIP(32, picture, text), device, _pictures(device, 32, 2), words)


@row("spandrel", "upscalers: ESRGAN, SwinIR, Compact, DAT", "spandrel")
def upscalers(device: str) -> Any:
    """Enlarge a picture by four architectures, as ComfyUI does."""
    from spandrel.architectures.Compact import Compact  # noqa: PLC0415
    from spandrel.architectures.DAT import DAT  # noqa: PLC0415
    from spandrel.architectures.ESRGAN import ESRGAN  # noqa: PLC0415
    from spandrel.architectures.SwinIR import SwinIR  # noqa: PLC0415

    small: dict[str, Any] = {"img_size": 16, "num_heads": [2], "upscale": 2}
    models = [
        ESRGAN(num_filters=8, num_blocks=1),
        SwinIR(embed_dim=60, depths=[2], window_size=8, upsampler="pixelshuffle", **small),
        Compact(num_feat=8, num_conv=2),
        DAT(embed_dim=64, split_size=[4, 8], depth=[2], **small),
    ]
    x = _pictures(device, 16)
    return [_evaluated(model, device, x) for model in models]


@row("piq", "SSIM, MS-SSIM, VIF, FSIM, GMSD, HaarPSI, MDSI", "piq", tolerance=1e-3)
def quality(device: str) -> Any:
    """Measure how two pictures differ."""
    import piq  # noqa: PLC0415

    x, y = _pictures(device, 192), _pictures(device, 192)
    measures = piq.ssim, piq.multi_scale_ssim, piq.vif_p, piq.fsim, piq.gmsd, piq.haarpsi, piq.mdsi
    return [measure(x, y) for measure in measures]


@row("lpips", "LPIPS of AlexNet", "lpips", tolerance=1e-3)
def perceptual(device: str) -> Any:
    """Compare two pictures by features of a network."""
    import lpips  # noqa: PLC0415

    network = lpips.LPIPS(net="alex", pretrained=False, pnet_rand=True, verbose=False)
    return _evaluated(network, device, _pictures(device), _pictures(device))
