"""Indexing, gathers, scatters and moves of the PyTorch device, against the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.frontends.torch.operators import scattering  # noqa: E402 - imports torch
from tests.unit.frontends.torch.test_torch_elementwise import compare  # noqa: E402 - imports torch

functional = torch.nn.functional
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(3, 4, 5, generator=GENERATOR)


def integers(*values: int, shape: tuple[int, ...] | None = None) -> Any:
    return torch.tensor(values).reshape(shape or (-1,))


MASK = X > 0.3
INDICES: dict[str, tuple[Any, ...]] = {
    "first axis": (integers(0, 2, -1),),
    "rows": (integers(0, 1, 2, 0, shape=(2, 2)),),
    "middle axis": (slice(None), integers(3, 0, 0, -2)),
    "two axes": (integers(0, 1, 2), integers(-1, 0, 2)),
    "broadcast": (integers(0, 2, shape=(2, 1)), integers(1, 3, 0)),
    "last two": (slice(None), integers(1, 2), integers(0, -1)),
    "apart": (integers(1, 2), slice(None), integers(0, -1)),
    "three": (integers(0, 1), integers(1, 2), integers(4, 0)),
    "slices": (slice(1, None), integers(1, 1), slice(0, 4, 2)),
    "new axis": (None, integers(1, 0), ..., None),
    "mask": (MASK,),
    "mask of rows": (MASK[:, :, 0],),
    "mask of columns": (slice(None), MASK[0, :, 0]),
    "mask and integers": (MASK[:, 0, 0], slice(None), integers(0)),
    "nothing": (integers()[:0].long(),),
    "true": (True,),
    "int32": (integers(0, 2).int(),),
}


def on_device(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(part.to("dml") if isinstance(part, torch.Tensor) else part for part in index)


@pytest.fixture(params=["compared", "sorted"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates are compared with all places, or sorted by place, as if there were too many to compare."""
    if request.param == "sorted":
        monkeypatch.setattr(scattering, "DENSE_LIMIT", 0)


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_reads(index: Any) -> None:
    for x in (X, X.transpose(0, 2).contiguous().transpose(0, 2), X > 0, (X * 9).long()):
        ours = x.to("dml")[on_device(index)].cpu()
        torch.testing.assert_close(ours, x[index], rtol=0, atol=0)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("name", INDICES)
@pytest.mark.usefixtures("order")
def test_writes(name: str, accumulate: bool) -> None:
    index = INDICES[name]
    if any(part is None or isinstance(part, slice) or part is ... or part is True for part in index):
        theirs, ours = X.clone(), X.to("dml")
        theirs[index] = 7.0
        ours[on_device(index)] = 7.0
        torch.testing.assert_close(ours.cpu(), theirs)
        return
    selected = X[index]
    values = torch.arange(selected.numel(), dtype=torch.float32).reshape(selected.shape)
    if not accumulate and name in {"rows", "first axis"}:
        values = torch.zeros_like(values)  # equal indices: either value may stay
    for value in (values, torch.tensor(2.0)):
        theirs = X.clone().index_put_(index, value, accumulate=accumulate)
        ours = X.to("dml").index_put_(on_device(index), value.to("dml"), accumulate=accumulate)
        torch.testing.assert_close(ours.cpu(), theirs)


def test_gradient_of_an_index() -> None:
    gradients = []
    for device in ("cpu", "dml"):
        x = X.clone().to(device).requires_grad_()
        x[integers(0, 2, 0).to(device)].square().sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


PLACES = integers(0, 2, 2, 1, 0, 0, 2, 1, shape=(2, 2, 2))
SOURCE = torch.randn(3, 3, 3, generator=GENERATOR)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_and_scatter(axis: int) -> None:
    places = torch.stack([torch.randperm(3, generator=GENERATOR)[:2] for _ in range(4)]).reshape(2, 2, 2)
    places = places.movedim(-1, axis)
    compare(torch.gather, X, axis, PLACES)
    compare(torch.scatter, X, axis, places, SOURCE)
    compare(torch.scatter, X, axis, places, 2.5)
    compare(torch.scatter, (X * 9).int(), axis, places, (SOURCE * 9).int())


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.usefixtures("order")
def test_reduced_scatter(reduce: str, include_self: bool, axis: int, dtype: Any) -> None:
    x, source = ((3 * tensor).to(dtype) for tensor in (X, SOURCE))
    compare(torch.scatter_reduce, x, axis, PLACES, source, reduce, include_self=include_self)
    if reduce != "sum":
        index = integers(2, 0, 2, 2)
        rows = x.movedim(1, axis).contiguous().index_select(axis, integers(0, 1, 2, 1)).contiguous()
        whole = x.movedim(1, axis).contiguous()
        compare(torch.index_reduce, whole, axis, index, rows, reduce, include_self=include_self)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.usefixtures("order")
def test_slices_by_index(axis: int) -> None:
    index = integers(2, 0, 2)
    rows = X.index_select(axis, integers(0, 1, 2))
    compare(torch.index_select, X, axis, index)
    compare(torch.index_add, X, axis, index, rows, alpha=2)
    compare(torch.index_add, X > 0, axis, index, rows > 0)
    compare(torch.index_copy, X, axis, integers(2, 0, 1), rows)
    compare(torch.index_fill, X, axis, index, 1.5)
    compare(torch.scatter_add, X, axis, PLACES, SOURCE)


@pytest.mark.usefixtures("order")
def test_flat_places_and_masks() -> None:
    compare(torch.take, X, integers(0, -1, 17, 5, shape=(2, 2)))
    compare(torch.Tensor.put, X, integers(0, -1, 17), torch.tensor([1.0, 2.0, 3.0]))
    compare(torch.Tensor.put, X, integers(0, 0, 17), torch.tensor([1.0, 2.0, 3.0]), accumulate=True)
    compare(torch.masked_select, X, MASK)
    compare(torch.masked_scatter, X, MASK, torch.arange(60.0))
    compare(torch.masked_scatter, X[0, 0], MASK, torch.arange(60.0))
    compare(torch.nonzero, MASK)
    compare(torch.nonzero_static, MASK, size=4)
    compare(torch.argwhere, MASK)
    compare(torch.repeat_interleave, X, integers(2, 0, 1), 0)


def test_a_mask_of_another_shape() -> None:
    with pytest.raises(IndexError, match="The shape of the mask"):
        X.to("dml")[torch.ones(2, dtype=torch.bool).to("dml")]


# ---- moves -----------------------------------------------------------------------------------------------------------


def test_joined() -> None:
    compare(lambda *parts: torch.cat(parts, 1), X, X[:, :1], (X[:, :2] * 9).int())
    compare(lambda *parts: torch.cat(parts), torch.empty(0), X)
    compare(lambda *parts: torch.cat(parts, -1), X > 0, X < 0)
    compare(lambda *parts: torch.stack(parts, -1), X, X.flip(0))
    with pytest.raises(RuntimeError, match="zero-dimensional tensor"):
        torch.cat([torch.tensor(1.0).to("dml")])


def test_reversed_rolled_repeated() -> None:
    compare(torch.flip, X, (0, -1))
    compare(torch.roll, X, (1, -2), (0, 2))
    compare(torch.roll, X, 7)
    compare(torch.Tensor.repeat, X, 2, 1, 3)
    compare(torch.Tensor.repeat, X, 2, 1, 1, 1, 2)
    compare(torch.Tensor.repeat, X, 0, 1, 1)
    compare(torch.rot90, X, 1, (1, 2))
    compare(torch.tril, X, -1)
    compare(torch.triu, X > 0, 1)
    compare(torch.diag_embed, X[0])


@pytest.mark.parametrize(
    ("mode", "padding"),
    [
        ("constant", (1, 2, 0, 3)),
        ("constant", (-1, 2, 1, -1, 0, 1)),
        ("reflect", (2, 1)),
        ("reflect", (4, 0, 1, 3)),
        ("replicate", (2, 1, 3, 0)),
        ("replicate", (2, -1)),
        ("circular", (2, 1)),
    ],
)
def test_padding_and_its_gradient(mode: str, padding: Any) -> None:
    host = X.unsqueeze(0) if len(padding) == 4 and mode != "constant" else X
    results = []
    for device in ("cpu", "dml"):
        x = host.clone().to(device).requires_grad_()
        y = functional.pad(x, padding, mode)
        weights = torch.arange(y.numel(), dtype=torch.float32).reshape(y.shape).to(device)
        (y * weights).sum().backward()
        results.append((y.detach().cpu(), x.grad.cpu()))
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_blocks() -> None:
    images = torch.randn(2, 8, 4, 6, generator=GENERATOR)
    compare(functional.pixel_shuffle, images, 2)
    compare(functional.pixel_unshuffle, images, 2)
    compare(functional.channel_shuffle, images, 4)
    compare(functional.unfold, images, (2, 3), 1, 1, 2)
    compare(functional.fold, torch.randn(1, 12, 12, generator=GENERATOR), (4, 5), (2, 2))


@pytest.mark.usefixtures("order")
def test_gradient_of_overlapping_windows() -> None:
    gradients = []
    for device in ("cpu", "dml"):
        x = X.clone().to(device).requires_grad_()
        windows = x.unfold(2, 3, 1)
        (windows * torch.arange(windows.numel()).reshape(windows.shape).to(device)).sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("arange", (5,), {}),
        ("arange", (2, 9, 3), {}),
        ("arange", (5, -4, -2), {"dtype": torch.int32}),
        ("arange", (0.5, 3, 0.25), {}),
        ("arange", (3, 3), {}),
        ("linspace", (-2, 3, 7), {}),
        ("linspace", (0, 10, 4), {"dtype": torch.int64}),
        ("linspace", (1, 2, 1), {}),
        ("logspace", (-1, 2, 5), {}),
        ("logspace", (0, 3, 4), {"base": 2}),
        ("eye", (3,), {}),
        ("eye", (2, 4), {"dtype": torch.bool}),
        ("full", ((2, 3), 7), {}),
        ("tril_indices", (3, 4, 1), {}),
        ("triu_indices", (3, 4), {"dtype": torch.int32}),
    ],
)
def test_creation(name: str, arguments: Any, options: Any) -> None:
    ours = getattr(torch, name)(*arguments, **options, device="dml")
    torch.testing.assert_close(ours.cpu(), getattr(torch, name)(*arguments, **options))


def test_indices_on_the_cpu() -> None:
    rows, mask = torch.tensor([2, 0]), torch.tensor([True, False, True])
    x = torch.arange(12.0).reshape(3, 4)
    leaf = x.to("dml").requires_grad_()
    assert torch.equal(leaf[rows].cpu(), x[rows]) and torch.equal(leaf[:, mask.nonzero()[:, 0]].cpu(), x[:, [0, 2]])
    (leaf[rows] * leaf[mask]).sum().backward()
    assert leaf.grad.tolist() == [[8 + 8, 9 + 9, 10 + 10, 11 + 11], [0] * 4, [0, 2, 4, 6]]
    y = x.to("dml")
    y[rows], y[mask, 1] = torch.zeros(4, device="dml"), 7.0
    assert y.tolist() == [[0, 7, 0, 0], [4, 5, 6, 7], [0, 7, 0, 0]]
    assert y.index_put((rows,), torch.tensor(1.0), accumulate=True).sum() == y.sum() + 8


PARTS: dict[str, Any] = {
    "row": 1,
    "rows": slice(1, 3),
    "column": (slice(None), 2),
    "element": (1, 2),
    "everything": ...,
    "every second": (slice(None, None, 2), slice(1, None)),
    "indices": torch.tensor([2, 0]),
}
NUMBERS: dict[Any, tuple[Any, ...]] = {
    torch.float32: (1.7, -3, True, float("inf")),
    torch.float16: (1.7, 1e6),
    torch.bfloat16: (1.7, 300),
    torch.float64: (1.7,),
    torch.complex64: (1.7, 2 + 1j),
    torch.int64: (1.7, -3, 1 << 40),
    torch.int8: (-3.9, 100, 300, float("nan")),
    torch.uint8: (7, True, -1),
    torch.bool: (2, 0.0),
}


@pytest.mark.parametrize("place", PARTS)
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numbers_are_written_into_views(dtype: Any, place: str) -> None:
    """PyTorch's versions reject different numbers: 2.15 also those that float16 cannot represent."""

    def outcome(device: str, number: Any) -> Any:
        x = torch.zeros(4, 5).to(dtype).to(device)
        index = PARTS[place]
        try:
            x[index.to(device) if isinstance(index, torch.Tensor) else index] = number
        except RuntimeError as error:
            return str(error)
        return x.tolist()

    for number in NUMBERS[dtype]:
        for _ in range(2):  # the second call repeats the first one
            assert outcome("dml", number) == outcome("cpu", number), number


def test_numbers_are_written_under_masks() -> None:
    """PyTorch 2.15 calls `masked_fill_` and `index_fill_`."""
    for dtype, number in ((torch.uint8, -1), (torch.int8, -3.9), (torch.float16, 2.5), (torch.bool, 2)):
        for rows in (False, True):
            expected, actual = (torch.eye(4).to(dtype).to(device) for device in ("cpu", "dml"))
            for x in (expected, actual):
                x[[0, -1], 1:] = number
                x[(x == 0)[:, 0] if rows else x == 0] = number
            assert torch.equal(actual.cpu(), expected), dtype


def test_a_tensor_of_one_number_is_like_others() -> None:
    """Its number is written when it is used."""

    def number() -> Any:
        return torch.scalar_tensor(2.5, device="dml")

    def copied(source: Any) -> list[Any]:
        x = torch.zeros(3, dtype=source.dtype, device="dml")
        x[1:].copy_(source.expand(2))
        result: list[Any] = x.tolist()
        return result

    assert number().item() == 2.5 and (number() + 1).item() == 3.5
    assert copied(number()) == [0, 2.5, 2.5]
    assert copied(number().add_(1)) == copied(number().fill_(3.5)) == [0, 3.5, 3.5]
    assert copied(number().view(torch.int32)) == [0, 0x40200000, 0x40200000]
    used = number()
    assert copied(used) == copied(used) == [0, 2.5, 2.5]
    assert torch.scalar_tensor(2, dtype=torch.int8, device="dml").tolist() == 2


@pytest.mark.parametrize("dtype", [None, *NUMBERS], ids=str)
def test_filled_tensors(dtype: Any) -> None:
    for _ in range(2):  # the second call repeats the first one
        for shape in ((2, 3), (), (0, 3)):
            for function, *others in ((torch.zeros,), (torch.ones,), (torch.full, 2), (torch.full, True)):
                expected = function(shape, *others, dtype=dtype)
                actual = function(shape, *others, dtype=dtype, device="dml")
                assert actual.dtype is expected.dtype and torch.equal(actual.cpu(), expected)
                actual.zero_()  # memory of its own
    assert torch.full((2,), 1 + 2j, device="dml").tolist() == [1 + 2j, 1 + 2j]
    assert torch.arange(1, 9, 2, device="dml").tolist() == torch.arange(1, 9, 2, device="dml").tolist() == [1, 3, 5, 7]
