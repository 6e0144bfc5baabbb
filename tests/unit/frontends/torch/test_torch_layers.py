"""Layers, losses, attention, resampling and random numbers of the PyTorch device, against PyTorch's CPU."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.frontends.torch.operators import embedding  # noqa: E402 - after the check
from dmlgpu.frontends.torch.storage import tensor_of  # noqa: E402
from tests.unit.frontends.torch.torch_comparison import assert_close, check_on_device, leaf, tensors_in  # noqa: E402

F = torch.nn.functional


def integers(limit: int, *sizes: int) -> Any:
    return torch.randint(limit, sizes)


CASES: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    # products
    "mm": (torch.mm, lambda: (leaf(3, 4), leaf(4, 5))),
    "mm of integers": (torch.mm, lambda: (integers(9, 3, 4), integers(9, 4, 5))),
    "bmm": (torch.bmm, lambda: (leaf(2, 3, 4), leaf(2, 4, 5))),
    "matmul of a vector": (torch.matmul, lambda: (leaf(2, 3, 4), leaf(4))),
    "matmul without elements": (torch.matmul, lambda: (leaf(3, 0), leaf(0, 2))),
    "cross": (lambda a, b: torch.linalg.cross(a, b, dim=1), lambda: (leaf(2, 3, 5), leaf(1, 3, 5))),
    **{
        f"solve_triangular, {options}": (
            lambda a, b, options=options: torch.linalg.solve_triangular(a, b, **options),
            lambda: ((torch.eye(5) + 0.3 * torch.randn(2, 5, 5)).requires_grad_(), leaf(2, 5, 5)),
        )
        for options in (
            {"upper": False},
            {"upper": True},
            {"upper": True, "left": False},
            {"upper": False, "unitriangular": True},
        )
    },
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), lambda: (leaf(5), leaf(3, 4), leaf(4, 5))),
    "addmm, beta 0": (
        lambda a, b: torch.addmm(torch.full((3, 5), math.nan, device=a.device), a, b, beta=0),
        lambda: (leaf(3, 4), leaf(4, 5)),
    ),
    "baddbmm": (torch.baddbmm, lambda: (leaf(2, 3, 5), leaf(2, 3, 4), leaf(2, 4, 5))),
    "addbmm": (lambda *x: torch.addbmm(*x, alpha=0.5), lambda: (leaf(3, 5), leaf(2, 3, 4), leaf(2, 4, 5))),
    "addmv": (torch.addmv, lambda: (leaf(3), leaf(3, 4), leaf(4))),
    "addr": (lambda *x: torch.addr(*x, beta=0.5), lambda: (leaf(3, 4), leaf(3), leaf(4))),
    "dot": (torch.dot, lambda: (leaf(7), leaf(7))),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), lambda: (leaf(2, 3, 4), leaf(2, 5, 4))),
    "bilinear": (F.bilinear, lambda: (leaf(4, 3), leaf(4, 5), leaf(2, 3, 5), leaf(2))),
    # convolution
    "conv1d": (lambda *x: F.conv1d(*x, padding=1, stride=2), lambda: (leaf(2, 3, 9), leaf(4, 3, 3), leaf(4))),
    "conv2d": (
        lambda *x: F.conv2d(*x, padding=(1, 2), dilation=2, stride=(2, 1)),
        lambda: (leaf(2, 3, 9, 8), leaf(4, 3, 3, 2), leaf(4)),
    ),
    "conv2d, groups": (lambda *x: F.conv2d(*x, groups=2), lambda: (leaf(2, 4, 5, 5), leaf(6, 2, 3, 3), leaf(6))),
    "conv2d, depthwise": (lambda *x: F.conv2d(*x, groups=4), lambda: (leaf(1, 4, 5, 5), leaf(4, 1, 3, 3))),
    "conv3d": (F.conv3d, lambda: (leaf(1, 2, 4, 4, 4), leaf(3, 2, 2, 2, 2), leaf(3))),
    "conv_transpose1d": (
        lambda *x: F.conv_transpose1d(*x, stride=3, output_padding=1),
        lambda: (leaf(2, 3, 5), leaf(3, 2, 4), leaf(2)),
    ),
    "conv_transpose2d": (
        lambda *x: F.conv_transpose2d(*x, stride=2, padding=1, output_padding=1, groups=2, dilation=2),
        lambda: (leaf(1, 4, 4, 5), leaf(4, 3, 3, 3), leaf(6)),
    ),
    "conv_tbc": (lambda *x: torch.conv_tbc(*x, 1), lambda: (leaf(6, 2, 3), leaf(3, 3, 4), leaf(4))),
    # pooling
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda: (leaf(2, 3, 8, 7),)),
    "max_pool2d, ceil_mode": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), lambda: (leaf(2, 3, 8, 8),)),
    "max_pool2d, indices": (
        lambda x: F.max_pool2d(x, 2, dilation=2, stride=1, return_indices=True),
        lambda: (leaf(2, 3, 6, 7),),
    ),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), lambda: (leaf(3, 8),)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), lambda: (leaf(1, 2, 4, 4, 4),)),
    "max_unpool2d": (
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        lambda: (leaf(2, 3, 4, 4),),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), lambda: (leaf(2, 3, 8, 7),)),
    "avg_pool2d, ceil_mode": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), lambda: (leaf(2, 3, 8, 8),)),
    "avg_pool2d, only inside": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda: (leaf(2, 3, 8, 8),),
    ),
    "avg_pool2d, divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), lambda: (leaf(2, 3, 4, 4),)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), lambda: (leaf(2, 1, 4, 4, 4),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), lambda: (leaf(2, 3, 7, 5),)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 2), True), lambda: (leaf(2, 3, 7, 5),)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 2), lambda: (leaf(1, 2, 3, 4, 5),)),
    "fractional_max_pool2d": (
        lambda x, samples: F.fractional_max_pool2d(x, 2, (3, 4), _random_samples=samples),
        lambda: (leaf(2, 3, 7, 9), torch.rand(2, 3, 2)),
    ),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), lambda: (leaf(2, 3, 4, 4),)),
    # normalization
    "layer_norm": (lambda *x: F.layer_norm(x[0], (3, 4), *x[1:]), lambda: (leaf(2, 3, 4), leaf(3, 4), leaf(3, 4))),
    "layer_norm, far from 0": (lambda x: F.layer_norm(x, (8,)), lambda: ((torch.randn(2, 8) + 100).requires_grad_(),)),
    "group_norm": (lambda *x: F.group_norm(x[0], 2, *x[1:]), lambda: (leaf(2, 4, 3), leaf(4), leaf(4))),
    "instance_norm": (F.instance_norm, lambda: (leaf(2, 3, 4, 5),)),
    "rms_norm": (lambda *x: F.rms_norm(x[0], (4,), x[1]), lambda: (leaf(3, 4), leaf(4))),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), lambda: (leaf(2, 5, 4),)),
    "vector norms": (
        lambda x: tuple(torch.linalg.vector_norm(x, order, 1) for order in (0, 1, 2, 3.5, math.inf, -math.inf)),
        lambda: (leaf(3, 4),),
    ),
    # losses
    "cross_entropy": (
        lambda *x: F.cross_entropy(*x, ignore_index=1, label_smoothing=0.1),
        lambda: (leaf(6, 4), integers(4, 6), torch.rand(4)),
    ),
    "cross_entropy of images": (F.cross_entropy, lambda: (leaf(2, 4, 3, 3), integers(4, 2, 3, 3))),
    "cross_entropy, none": (lambda *x: F.cross_entropy(*x, reduction="none"), lambda: (leaf(6, 4), integers(4, 6))),
    "nll_loss of one row": (F.nll_loss, lambda: (leaf(4), torch.tensor(2))),
    "mse_loss": (F.mse_loss, lambda: (leaf(3, 4), leaf(3, 4))),
    "l1_loss": (F.l1_loss, lambda: (leaf(3, 4), leaf(3, 4))),
    "smooth_l1_loss": (lambda *x: F.smooth_l1_loss(*x, beta=0.5), lambda: (leaf(3, 4), leaf(3, 4))),
    "huber_loss": (lambda *x: F.huber_loss(*x, reduction="sum"), lambda: (leaf(3, 4), leaf(3, 4))),
    "binary_cross_entropy": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), lambda: (leaf(9), torch.rand(9))),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, lambda: (leaf(9), torch.rand(9))),
    "kl_div": (lambda *x: F.kl_div(*x, reduction="batchmean"), lambda: (leaf(3, 4), torch.rand(3, 4))),
    "multi_margin_loss": (F.multi_margin_loss, lambda: (leaf(5, 4), integers(4, 5))),
    "multilabel_margin_loss": (
        F.multilabel_margin_loss,
        lambda: (leaf(2, 4), torch.tensor([[3, 0, -1, 1], [2, 2, 1, 0]])),
    ),
    "cosine_embedding_loss": (
        F.cosine_embedding_loss,
        lambda: (leaf(3, 4), leaf(3, 4), torch.tensor([1.0, -1.0, 1.0])),
    ),
    "triplet_margin_loss": (F.triplet_margin_loss, lambda: (leaf(3, 4), leaf(3, 4), leaf(3, 4))),
    # distances
    "cdist": (
        lambda *x: tuple(torch.cdist(*x, p=p) for p in (0, 1, 1.5, 2, 3, math.inf)),
        lambda: (leaf(3, 4), leaf(5, 4)),
    ),
    "pdist": (F.pdist, lambda: (leaf(5, 4),)),
    # embeddings
    "embedding": (
        lambda i, w: F.embedding(i, w, padding_idx=1, scale_grad_by_freq=True),
        lambda: (integers(5, 3, 4), leaf(5, 6)),
    ),
    "embedding of many rows": (F.embedding, lambda: (integers(900, 1500), leaf(1000, 3))),
    **{
        f"embedding_bag, {mode}": (
            lambda i, w, mode=mode: F.embedding_bag(i, w, torch.tensor([0, 3, 3, 7], device=i.device), mode=mode),
            lambda: (integers(5, 9), leaf(5, 6)),
        )
        for mode in ("sum", "mean", "max")
    },
    "embedding_bag, weights": (
        lambda i, w, s: F.embedding_bag(i, w, mode="sum", per_sample_weights=s, padding_idx=2),
        lambda: (integers(5, 4, 3), leaf(5, 6), leaf(4, 3)),
    ),
    # attention
    "attention": (F.scaled_dot_product_attention, lambda: (leaf(2, 4, 5, 8), leaf(2, 4, 7, 8), leaf(2, 4, 7, 6))),
    "attention, causal": (
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True, scale=0.3),
        lambda: (leaf(2, 4, 5, 8), leaf(2, 4, 7, 8), leaf(2, 4, 7, 8)),
    ),
    "attention, shared heads": (
        lambda *x: F.scaled_dot_product_attention(*x, enable_gqa=True),
        lambda: (leaf(2, 4, 5, 8), leaf(2, 2, 7, 8), leaf(2, 2, 7, 8)),
    ),
    "attention, float mask": (
        F.scaled_dot_product_attention,
        lambda: (leaf(2, 4, 5, 8), leaf(2, 4, 7, 8), leaf(2, 4, 7, 8), leaf(5, 7)),
    ),
    "attention, rows that see nothing": (
        F.scaled_dot_product_attention,
        lambda: (leaf(1, 2, 3, 8), leaf(1, 2, 4, 8), leaf(1, 2, 4, 8), torch.arange(12).reshape(3, 4) > 4),
    ),
    "attention, one head for all, boolean mask": (
        F.scaled_dot_product_attention,
        lambda: (leaf(2, 4, 3, 8), leaf(2, 1, 4, 8), leaf(2, 1, 4, 8), torch.arange(12).reshape(3, 4) % 3 != 0),
    ),
    "attention of rank 3": (F.scaled_dot_product_attention, lambda: (leaf(2, 5, 8), leaf(2, 7, 8), leaf(2, 7, 8))),
    # resampling
    **{
        f"interpolate, {mode}, {options}": (
            lambda x, mode=mode, options=options: F.interpolate(x, mode=mode, **options),
            lambda rank=rank: (leaf(2, 3, *(5, 4, 3)[:rank]),),
        )
        for mode, rank, options in (
            ("nearest", 1, {"size": 7}),
            ("nearest", 2, {"scale_factor": 1.7}),
            ("nearest-exact", 3, {"size": (3, 7, 2)}),
            ("linear", 1, {"scale_factor": 2}),
            ("bilinear", 2, {"size": (7, 3)}),
            ("bilinear", 2, {"size": (7, 3), "align_corners": True}),
            ("bilinear", 2, {"size": (3, 2), "antialias": True}),
            ("bicubic", 2, {"scale_factor": (1.5, 2.0)}),
            ("bicubic", 2, {"size": (3, 2), "antialias": True}),
            ("trilinear", 3, {"size": (6, 6, 6)}),
            ("area", 2, {"size": (3, 3)}),
        )
    },
    **{
        f"grid_sample, {mode}, {padding}, {aligned}": (
            lambda x, grid, mode=mode, padding=padding, aligned=aligned: F.grid_sample(
                x, grid, mode, padding, align_corners=aligned
            ),
            lambda: (leaf(2, 3, 4, 5), leaf(2, 3, 3, 2, scale=0.8)),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (False, True)
    },
    "grid_sample of volumes": (
        lambda *x: F.grid_sample(*x, align_corners=False),
        lambda: (leaf(1, 2, 3, 4, 5), leaf(1, 2, 2, 2, 3, scale=0.8)),
    ),
    "affine_grid": (lambda x: F.affine_grid(x, (2, 3, 4, 5), align_corners=False), lambda: (leaf(2, 2, 3),)),
}


@pytest.mark.parametrize("name", CASES)
def test_forward_and_gradient(name: str) -> None:
    function, make = CASES[name]
    torch.manual_seed(len(name))
    check_on_device(function, make())


# ---- modules ---------------------------------------------------------------------------------------------------------


class Packed(torch.nn.Module):
    """An LSTM over sequences of several lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(5, 6, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        lengths = torch.tensor([4, 2, 3])
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, state = self.layer(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(output, batch_first=True)[0], state


class Tied(torch.nn.Module):
    """A table of embeddings that is the weight of the last layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7, bias=False)
        self.last.weight = self.table.weight

    def forward(self, x: Any) -> Any:
        return self.last(self.table(x))


ENCODER = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True, "dropout": 0.0}
MODULES: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "LSTM": (lambda: torch.nn.LSTM(5, 6, num_layers=2), lambda: (torch.randn(4, 3, 5),)),
    "GRU": (lambda: torch.nn.GRU(5, 6, bidirectional=True), lambda: (torch.randn(4, 3, 5),)),
    "GRU without bias": (lambda: torch.nn.GRU(5, 6, bias=False), lambda: (torch.randn(4, 3, 5),)),
    "RNN": (lambda: torch.nn.RNN(5, 6, nonlinearity="relu"), lambda: (torch.randn(4, 3, 5),)),
    "packed": (Packed, lambda: (torch.randn(3, 4, 5),)),
    "tied": (Tied, lambda: (integers(7, 2, 3),)),
    "BatchNorm1d": (lambda: torch.nn.BatchNorm1d(3), lambda: (torch.randn(4, 3) + 2,)),
    "BatchNorm2d": (lambda: torch.nn.BatchNorm2d(3, momentum=0.3), lambda: (torch.randn(2, 3, 4, 5),)),
    "BatchNorm2d, plain": (
        lambda: torch.nn.BatchNorm2d(3, affine=False, track_running_stats=False),
        lambda: (torch.randn(2, 3, 4, 5),),
    ),
    "MultiheadAttention": (
        lambda: torch.nn.MultiheadAttention(8, 2, batch_first=True),
        lambda: (torch.randn(2, 5, 8),) * 3,
    ),
    "TransformerEncoder": (
        lambda: torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(**ENCODER), 2, enable_nested_tensor=False),
        lambda: (torch.randn(2, 5, 8), None, torch.tensor([[False] * 5, [False] * 3 + [True] * 2])),
    ),
    "TransformerEncoderLayer, norm first": (
        lambda: torch.nn.TransformerEncoderLayer(**ENCODER, norm_first=True, activation="gelu"),
        lambda: (torch.randn(2, 5, 8),),
    ),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, training: bool) -> None:
    make, inputs = MODULES[name]
    torch.manual_seed(len(name))
    module, args = make().train(training), inputs()
    moved, moved_args = copy.deepcopy(module).to("dml"), [x if x is None else x.to("dml") for x in args]
    with torch.set_grad_enabled(training):
        expected, actual = tensors_in(module(*args)), tensors_in(moved(*moved_args))
    assert len(expected) == len(actual)
    for result, reference in zip(actual, expected, strict=True):
        assert_close(result, reference)
    if training and list(module.parameters()):
        torch.autograd.backward(expected, [torch.ones_like(x) * 0.5 + x.detach() for x in expected])
        torch.autograd.backward(actual, [(torch.ones_like(x) * 0.5 + x.detach()).to("dml") for x in expected])
    for x, reference in zip(moved.parameters(), module.parameters(), strict=True):
        assert (x.grad is None) == (reference.grad is None)
        if x.grad is not None:
            assert_close(x.grad, reference.grad, 1e-3)
    for x, reference in zip(moved.buffers(), module.buffers(), strict=True):
        assert_close(x, reference)


# ---- random numbers --------------------------------------------------------------------------------------------------

COUNT = 20000
DRAWS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "rand": (torch.rand_like, 0.5, 1 / 12),
    "uniform_": (lambda x: x.uniform_(-1, 3), 1.0, 16 / 12),
    "randn": (torch.randn_like, 0.0, 1.0),
    "normal_": (lambda x: x.normal_(3, 2), 3.0, 4.0),
    "normal": (lambda x: torch.normal(x + 1, x + 2), 1.0, 4.0),
    "exponential_": (lambda x: x.exponential_(0.5), 2.0, 4.0),
    "log_normal_": (lambda x: x.log_normal_(0, 0.5), math.exp(0.125), (math.exp(0.25) - 1) * math.exp(0.25)),
    "geometric_": (lambda x: x.geometric_(0.25), 4.0, 12.0),
    "bernoulli": (lambda x: torch.bernoulli(x + 0.3), 0.3, 0.21),
    "bernoulli_": (lambda x: x.bernoulli_(0.3), 0.3, 0.21),
    "randint": (lambda x: torch.randint(-5, 5, x.shape, device=x.device), -0.5, 99 / 12),
    "random_": (lambda x: x.int().random_(10), 4.5, 99 / 12),
    "dropout": (lambda x: F.dropout(x + 1, 0.2), 1.0, 0.25),
    "randperm": (lambda x: torch.randperm(len(x), device=x.device), (COUNT - 1) / 2, (COUNT**2 - 1) / 12),
    "multinomial": (
        lambda x: torch.multinomial(torch.tensor([1.0, 0.0, 3.0], device=x.device), len(x), True),
        1.5,
        0.75,
    ),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers(name: str) -> None:
    draw, mean, variance = DRAWS[name]
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(draw(torch.zeros(COUNT, device="dml")))
    assert results[0].device.type == "dml"
    first, again, other = (x.double() if x.device.type == "cpu" else x.cpu().double() for x in results)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert abs(float(first.mean()) - mean) < 6 * math.sqrt(variance / COUNT)
    assert abs(float(first.var()) / variance - 1) < 0.15


NORMALIZATIONS: dict[str, Callable[..., Any]] = {
    "layer_norm": lambda x, *vectors: F.layer_norm(x, (4,), *vectors),
    "group_norm": lambda x, *vectors: F.group_norm(x, 2, *vectors),
    "rms_norm": lambda x, *vectors: F.rms_norm(x, (4,), *vectors[:1]),
}


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_normalizations_without_gradients(name: str) -> None:
    """These compute no statistics; those with gradients do, also if only a weight needs one, or a tangent is given."""
    function = NORMALIZATIONS[name]
    vectors = torch.rand(4), torch.rand(4)
    for x in (torch.randn(2, 4, 3, 4), torch.randn(3, 4, 4).transpose(1, 2) + 100, torch.randn(0, 4, 4)):
        on_device = x.to("dml")
        for count in range(3):
            for context in (torch.no_grad(), torch.inference_mode()):
                with context:
                    for _ in range(2):  # the second call repeats the first one
                        result = function(on_device, *(vector.to("dml") for vector in vectors[:count]))
                        assert_close(result, function(x, *vectors[:count]))
    weights = [vectors[0].clone().to(device).requires_grad_() for device in ("cpu", "dml")]
    x = torch.randn(2, 4, 3, 4)
    for weight in weights:
        function(x.to(weight.device), weight).pow(3).sum().backward()
    assert_close(weights[1].grad, weights[0].grad)
    tangent = torch.randn(2, 4, 3, 4)
    expected, actual = (torch.func.jvp(function, (x.to(device),), (tangent.to(device),)) for device in ("cpu", "dml"))
    for ours, theirs in zip(actual, expected, strict=True):
        assert_close(ours, theirs)
    with pytest.raises(RuntimeError, match="divisible" if name == "group_norm" else "normalized_shape"):
        function(torch.ones(2, 5, 5, device="dml"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NORMALIZATIONS)
@pytest.mark.parametrize("of_weights", [torch.float32, None])
def test_normalizations_of_16_bits(name: str, dtype: torch.dtype, of_weights: torch.dtype | None) -> None:
    """They compute in float32 and round once, with weights of either dtype; gradients too."""
    function, x = NORMALIZATIONS[name], (torch.randn(2, 4, 3, 4) * 3 + 1).to(dtype)
    vectors = [vector.to(of_weights or dtype) for vector in (torch.rand(4), torch.rand(4))]
    operands = [operand.to("dml").requires_grad_() for operand in (x, *vectors)]
    wide = [operand.double().requires_grad_() for operand in (x, *vectors)]
    expected = function(*wide)
    results = [function(*operands), function(*(operand.detach() for operand in operands))]
    close = torch.testing.assert_close
    for result in results:
        assert result.dtype is dtype
        close(result.detach().cpu().double(), expected.detach(), atol=1e-5, rtol=2 * torch.finfo(dtype).eps)
    if name != "rms_norm" or of_weights is None:
        results[0].sum().backward()
        expected.sum().backward()
        for operand, other in zip(operands[: 2 if name == "rms_norm" else 3], wide, strict=False):
            scale = float(other.grad.abs().max()) + 1
            close(operand.grad.cpu().double(), other.grad, atol=8 * scale * torch.finfo(dtype).eps, rtol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("has_gradient", [False, True])
def test_rms_norm_adds_the_epsilon_of_float32(dtype: torch.dtype, has_gradient: bool) -> None:
    x = torch.full((1, 4), 2.0**-9, dtype=dtype)
    result = F.rms_norm(x.to("dml").requires_grad_(has_gradient), (4,))
    torch.testing.assert_close(result.detach().cpu(), F.rms_norm(x, (4,)))


def test_draws_without_replacement_are_distinct() -> None:
    draws = torch.multinomial(torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 1.0, 1.0]], device="dml"), 3).cpu()
    assert all(len(set(row)) == 3 for row in draws.tolist())
    assert 1 not in draws[1].tolist()


def test_a_cpu_generator_seeds_draws() -> None:
    draws = [torch.zeros(4, device="dml").normal_(generator=torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)]
    assert draws[0].tolist() == draws[1].tolist() != draws[2].tolist()


def test_gradients_of_dropout_follow_its_mask() -> None:
    x = torch.ones(1000, device="dml", requires_grad=True)
    y = F.dropout(x, 0.5)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), x.grad.cpu())


def test_missing_operators_are_rejected() -> None:
    x = torch.randn(4, 2, 3, device="dml")
    with pytest.raises(NotImplementedError, match="linalg_householder_product"):
        torch.linalg.householder_product(x.mT, x[:, :, 0])
    with pytest.raises(RuntimeError, match=r"expects std >= 0\.0"):
        x.normal_(0, -1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.max_pool1d(x[0], 3, 2, 1),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        lambda x: F.max_pool2d(x.half(), 2, ceil_mode=True),
        lambda x: F.max_pool3d(x, 2),
        lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    ],
    ids=["1d", "2d", "float16", "3d", "adaptive"],
)
def test_max_pooling_propagates_nan(function: Callable[[Any], Any]) -> None:
    x = torch.randn(2, 3, 8, 9)
    x[0, 0, 3, 3] = x[1, 2, 0] = math.nan
    x[0, 1, 2, 2], x[1, 1] = math.inf, -math.inf
    torch.testing.assert_close(function(x.to("dml")).cpu(), function(x), equal_nan=True)


@pytest.mark.parametrize(("rows", "count"), [(1, 3), (33, 4), (100, 7), (900, 9), (5000, 3)])
def test_sorted_rows_are_summed_in_blocks(rows: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "MAX_MATRIX", 0)
    values, indices = torch.randn(rows, 3), torch.randint(0, count, (rows,))
    indices[indices == 1] = 2
    sums = embedding.summed_rows(tensor_of(values.to("dml")), tensor_of(indices.to("dml")), count)
    expected = torch.zeros(count, 3).index_add(0, indices, values)
    torch.testing.assert_close(torch.from_numpy(sums.numpy()), expected, atol=1e-4, rtol=1e-4)
