"""``torch.autocast("dml")``: layers and losses of float32 with operands of both floating-point dtypes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from torch import nn  # noqa: E402 - after the check

from dmlgpu.frontends.torch import autocast  # noqa: E402 - imports torch

F = nn.functional
DTYPES = [torch.float16, torch.bfloat16]
PARAMETRIZATIONS = nn.utils.parametrizations


class Calls(nn.Module):
    """A module, and a function that calls it."""

    def __init__(self, module: Any, function: Callable[[Any, Any], Any]):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x: Any) -> Any:
        return self.function(self.module, x)


def after_convolution(layer: Any) -> Any:
    return nn.Sequential(nn.Conv2d(6, 6, 3), layer)


def recurrent(kind: str, **options: Any) -> Any:
    return Calls(getattr(nn, kind)(6, 4, **options), lambda layer, x: layer(x)[0])


def two_steps(cell: Any, x: Any) -> Any:
    state = cell(x[1], cell(x[0]))
    return state[0] if isinstance(state, tuple) else state


def embedded(module: Any, x: Any) -> Any:
    return module[1](module[0](torch.tensor([[0, 1], [2, 2]], device=x.device)))


def weighted_bags(module: Any, x: Any) -> Any:
    weights = module[1](x[:2, :2, 0, 0])
    return module[0](torch.tensor([[0, 1], [2, 2]], device=x.device), per_sample_weights=weights.float())


IMAGES, SEQUENCES, ROWS = (4, 6, 5, 5), (5, 3, 6), (4, 6)
LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "batch norm": (lambda: after_convolution(nn.BatchNorm2d(6)), IMAGES),
    "batch norm without weights": (lambda: after_convolution(nn.BatchNorm2d(6, affine=False)), IMAGES),
    "batch norm without statistics": (lambda: after_convolution(nn.BatchNorm2d(6, track_running_stats=False)), IMAGES),
    "batch norm of rows": (lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), ROWS),
    "batch norm of volumes": (lambda: nn.Sequential(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3)), (2, 2, 3, 4, 4)),
    "instance norm": (lambda: after_convolution(nn.InstanceNorm2d(6, affine=True, track_running_stats=True)), IMAGES),
    "group norm": (lambda: after_convolution(nn.GroupNorm(2, 6)), IMAGES),
    "layer norm": (lambda: nn.Sequential(nn.Linear(5, 5), nn.LayerNorm(5)), IMAGES),
    "RMS norm": (lambda: nn.Sequential(nn.Linear(5, 5), nn.RMSNorm(5)), IMAGES),
    "response norm": (lambda: after_convolution(nn.LocalResponseNorm(2)), IMAGES),
    "weight norm": (lambda: PARAMETRIZATIONS.weight_norm(nn.Linear(5, 5)), IMAGES),
    "spectral norm": (lambda: PARAMETRIZATIONS.spectral_norm(nn.Linear(5, 5)), IMAGES),
    "PReLU": (lambda: after_convolution(nn.PReLU(6)), IMAGES),
    "transformer": (lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), SEQUENCES),
    **{kind: (lambda kind=kind: recurrent(kind, num_layers=2), SEQUENCES) for kind in ("LSTM", "GRU", "RNN")},
    "LSTM, two directions": (lambda: recurrent("LSTM", bidirectional=True), SEQUENCES),
    "LSTM, projected": (lambda: recurrent("LSTM", proj_size=2), SEQUENCES),
    **{
        kind: (lambda kind=kind: Calls(getattr(nn, kind)(6, 4), two_steps), SEQUENCES)
        for kind in ("LSTMCell", "GRUCell", "RNNCell")
    },
    "embedding": (
        lambda: Calls(nn.Sequential(nn.Embedding(6, 5, padding_idx=0), nn.Linear(5, 5)), embedded),
        IMAGES,
    ),
    "bags": (lambda: Calls(nn.Sequential(nn.EmbeddingBag(6, 5), nn.Linear(5, 5)), embedded), IMAGES),
    "weighted bags": (
        lambda: Calls(nn.Sequential(nn.EmbeddingBag(6, 5, mode="sum"), nn.Linear(2, 2)), weighted_bags),
        IMAGES,
    ),
}

OF_FLOAT32 = {"group norm", "layer norm", "transformer", "response norm", "weighted bags"}
"""Layers whose last operator autocast computes in float32."""

CLASSES = torch.tensor([0, 2, 1, 1])


def target_of(x: Any) -> Any:
    return torch.linspace(0, 0.9, 12).reshape(4, 3).to(x.device)


LOSSES: dict[str, Callable[[Any], Any]] = {
    "cross_entropy": lambda x: F.cross_entropy(x, CLASSES.to(x.device), weight=torch.ones(3, device=x.device)),
    "cross_entropy of probabilities": lambda x: F.cross_entropy(x, target_of(x).softmax(1)),
    "nll_loss": lambda x: F.nll_loss(x.log_softmax(1), CLASSES.to(x.device)),
    "mse_loss": lambda x: F.mse_loss(x, target_of(x)),
    "l1_loss": lambda x: F.l1_loss(x, target_of(x)),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, target_of(x)),
    "huber_loss": lambda x: F.huber_loss(x, target_of(x)),
    "binary_cross_entropy_with_logits": lambda x: F.binary_cross_entropy_with_logits(
        x, target_of(x).to(x.dtype), pos_weight=torch.ones(3, device=x.device)
    ),
    "kl_div": lambda x: F.kl_div(x.log_softmax(1), target_of(x).softmax(1), reduction="batchmean"),
    "poisson_nll_loss": lambda x: F.poisson_nll_loss(x, target_of(x)),
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, target_of(x), target_of(x) + 1),
    "hinge_embedding_loss": lambda x: F.hinge_embedding_loss(x, target_of(x).sign()),
    "cosine_embedding_loss": lambda x: F.cosine_embedding_loss(x, target_of(x), torch.ones(4, device=x.device)),
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x, target_of(x), torch.ones(4, 3, device=x.device)),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, CLASSES.to(x.device)),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, -1, 1]] * 4, device=x.device)),
    "multilabel_soft_margin_loss": lambda x: F.multilabel_soft_margin_loss(x, target_of(x)),
    "triplet_margin_loss": lambda x: F.triplet_margin_loss(x, target_of(x), target_of(x).flip(0)),
    "ctc_loss": lambda x: F.ctc_loss(
        x.log_softmax(1)[:, None], torch.tensor([[1, 2]], device=x.device), torch.tensor([4]), torch.tensor([2])
    ),
    "cdist": lambda x: torch.cdist(x, target_of(x)),
    "where": lambda x: torch.where(x > 0, x, target_of(x)),
    "vdot": lambda x: torch.vdot(x[0], target_of(x)[0]),
    "attention with a mask": lambda x: F.scaled_dot_product_attention(
        x[None], x[None], x[None], attn_mask=torch.zeros(4, 4, device=x.device)
    ),
    "scatter_add": lambda x: target_of(x).scatter_add(0, CLASSES.to(x.device)[:, None].expand(4, 3), x),
}


def compare(module: Any, sizes: tuple[int, ...], dtype: Any, compiles: bool = False) -> Any:
    """Compare results, gradients and buffers under autocast with those of float32 on the CPU; return the dtype."""
    x = torch.randn(sizes)
    moved = copy.deepcopy(module).to("dml")
    function = torch.compile(moved, backend="dmlgpu") if compiles else moved
    expected = module(x)
    with torch.autocast("dml", dtype):
        result = function(x.to("dml"))
    weights = torch.linspace(-1, 1, expected.numel()).reshape(expected.shape).cos()
    (expected * weights).sum().backward()
    (result * weights.to("dml")).sum().backward()
    error = 10 * torch.finfo(dtype).eps
    torch.testing.assert_close(result.detach().cpu().float(), expected.detach(), rtol=error, atol=error)
    for (name, parameter), other in zip(module.named_parameters(), moved.parameters(), strict=True):
        assert other.grad.dtype is torch.float32, name
        scale = max(1.0, float(parameter.grad.abs().max()))
        torch.testing.assert_close(other.grad.cpu(), parameter.grad, rtol=2 * error, atol=2 * error * scale)
    for buffer, other in zip(module.buffers(), moved.buffers(), strict=True):
        assert other.dtype is buffer.dtype
        torch.testing.assert_close(other.cpu(), buffer, rtol=error, atol=error)
    return result.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: Any) -> None:
    make, sizes = LAYERS[name]
    for training in (True, False):
        torch.manual_seed(0)
        actual = compare(make().train(training), sizes, dtype)
        assert actual is (torch.float32 if name in OF_FLOAT32 else dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str, dtype: Any) -> None:
    torch.manual_seed(0)
    compare(Calls(nn.Linear(6, 3), lambda layer, x: LOSSES[name](layer(x))), ROWS, dtype)


def test_compiled_networks() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    network = nn.Sequential(nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(54, 3))
    assert compare(network, IMAGES, torch.bfloat16, compiles=True) is torch.bfloat16


def test_labels_after_the_first_negative_one_do_not_count() -> None:
    for labels in ([0, -1, 1], [2, 0, -1], [-1, 1, 0], [1, 1, -1]):
        for target in (torch.tensor(labels), torch.tensor([labels, labels[::-1]])):
            for reduction in ("mean", "sum", "none"):
                results = []
                for device in ("cpu", "dml"):
                    x = torch.arange(target.numel() * 1.0).sin().reshape(target.shape).to(device).requires_grad_()
                    loss = F.multilabel_margin_loss(x, target.to(device), reduction=reduction)
                    loss.sum().backward()
                    results.append((loss.detach().cpu(), x.grad.cpu()))
                torch.testing.assert_close(results[1], results[0])


def test_weights_are_cast_once_in_a_block() -> None:
    layer, x = torch.nn.Linear(4, 4).to("dml"), torch.randn(2, 4, device="dml")
    with torch.autocast("dml"):
        before = layer(x)
        with torch.no_grad():
            assert not layer(x).requires_grad
            layer.weight.mul_(2)
            layer.bias.mul_(2)
        after = layer(x)
    torch.testing.assert_close(after.detach().cpu(), 2 * before.detach().cpu())
    after.sum().backward()
    torch.testing.assert_close(layer.bias.grad.cpu(), torch.full((4,), 2.0))
    assert not autocast._weights


def test_casts_of_weights_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = torch.nn.Linear(4, 4).to("dml"), torch.randn(2, 4, device="dml", dtype=torch.float16)
    with torch.autocast("dml"):
        layer(x)  # kernels call the method while they are recorded
    casts: list[Any] = []
    original = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args: casts.append(args) or original(self, *args))
    for is_cached, count in ((True, 2), (False, 6)):
        casts.clear()
        with torch.autocast("dml", cache_enabled=is_cached):
            for _ in range(3):
                layer(x)
        assert len(casts) == count
