"""``torch.Generator("dml")``: made, seeded, saved and passed to everything that draws."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from dmlgpu.ops.random import Generator

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")


DRAWS: dict[str, Callable[[Any], Any]] = {
    "rand": lambda g: torch.rand(5, device="dml", generator=g),
    "randn": lambda g: torch.randn(2, 3, device="dml", generator=g),
    "randint": lambda g: torch.randint(9, (20,), device="dml", generator=g),
    "randperm": lambda g: torch.randperm(20, device="dml", generator=g),
    "normal": lambda g: torch.normal(torch.zeros(5, device="dml"), 1.0, generator=g),
    "normal of sizes": lambda g: torch.normal(0.0, 1.0, (5,), device="dml", generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((50,), 0.5, device="dml"), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(50, device="dml"), 5, generator=g),
    "poisson": lambda g: torch.poisson(torch.full((20,), 5.0, device="dml"), generator=g),
    "binomial": lambda g: torch.binomial(
        torch.full((20,), 9.0, device="dml"), torch.full((20,), 0.5, device="dml"), generator=g
    ),
    "kaiming_uniform_": lambda g: torch.nn.init.kaiming_uniform_(torch.empty(4, 4, device="dml"), generator=g),
    "trunc_normal_": lambda g: torch.nn.init.trunc_normal_(torch.empty(4, 4, device="dml"), generator=g),
    **{
        f"{name}_": lambda g, name=name, args=args: getattr(torch.empty(20, device="dml"), f"{name}_")(
            *args, generator=g
        )
        for name, args in {
            "uniform": (),
            "normal": (),
            "exponential": (),
            "cauchy": (),
            "log_normal": (),
            "geometric": (0.1,),
            "random": (),
            "bernoulli": (0.5,),
        }.items()
    },
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws(name: str) -> None:
    draw, generator = DRAWS[name], torch.Generator("dml").manual_seed(3)
    before = torch.dml.get_rng_state()
    first, second = draw(generator).cpu(), draw(generator).cpu()
    assert not torch.equal(first, second)
    assert torch.equal(torch.dml.get_rng_state(), before), "the device's own state"
    assert torch.equal(draw(generator.manual_seed(3)).cpu(), first)
    torch.dml.manual_seed(3)
    assert torch.equal(draw(None).cpu(), first), "as the device with this seed"


@pytest.mark.parametrize("name", ["rand", "randn", "randperm", "poisson", "normal_", "bernoulli_"])
def test_repeated_draws(name: str) -> None:
    """Calls that were recorded draw what the first one drew of the same state, from either kind of generator."""
    draw, generator = DRAWS[name], torch.Generator("dml")
    for source in (generator, torch.Generator("cpu"), None):
        expected: list[Any] = []
        for _ in range(2):
            torch.manual_seed(7) if source is None else source.manual_seed(7)
            drawn = [draw(source).cpu() for _ in range(20)]  # more than a table of states has
            expected = expected or drawn
            assert all(torch.equal(result, first) for result, first in zip(drawn, expected, strict=True))
        assert not any(torch.equal(drawn[0], other) for other in drawn[1:])


def test_streams_do_not_mix() -> None:
    """Generators that alternate draw what they draw on their own, although their states share memory."""

    def draw(source: Any) -> Any:
        return torch.rand(5, device="dml", generator=source)

    sources = [torch.Generator("dml").manual_seed(1), torch.Generator("dml").manual_seed(2), torch.Generator()]
    alone = [[draw(source.manual_seed(9 + index)).cpu(), *(draw(source).cpu() for _ in range(19))]
             for index, source in enumerate(sources)]  # fmt: skip
    for index, source in enumerate(sources):
        source.manual_seed(9 + index)
    mixed = [[draw(source) for source in sources] for _ in range(20)]
    state = sources[0].get_state()
    for index, draws in enumerate(zip(*mixed, strict=True)):
        assert all(torch.equal(x.cpu(), y) for x, y in zip(draws, alone[index], strict=True))
    following = draw(sources[0]).cpu()
    draw(sources[0])
    assert torch.equal(draw(sources[0].set_state(state)).cpu(), following), "back in the table"


def test_draws_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that draws is recorded: it does not come to the generator again, and draws other numbers each time."""
    x = torch.ones(64, device="dml")
    results = [torch.nn.functional.dropout(x).cpu()]
    monkeypatch.delattr(Generator, "_drawn")
    results += [torch.nn.functional.dropout(x).cpu() for _ in range(8)]
    assert len({tuple(result.tolist()) for result in results}) == 9
    assert all(set(result.tolist()) == {0.0, 2.0} for result in results)


def test_states() -> None:
    generator = torch.Generator(device="dml")
    assert generator.device == torch.device("dml", 0) and generator.initial_seed() == torch.Generator().initial_seed()
    assert generator.manual_seed(-1).initial_seed() == 2**64 - 1
    generator.manual_seed(5)
    torch.rand(2, device="dml", generator=generator)
    copies = [
        pickle.loads(pickle.dumps(generator)),
        copy.deepcopy(generator),
        generator.clone_state(),
        torch.Generator("dml").set_state(generator.get_state()),
    ]
    expected = torch.rand(4, device="dml", generator=generator).cpu()
    for other in copies:
        assert other.device == generator.device and other.initial_seed() == 5
        assert torch.equal(torch.rand(4, device="dml", generator=other).cpu(), expected)
    assert generator.seed() == generator.initial_seed() != 5
    with pytest.raises(RuntimeError, match="16 bytes"):
        generator.set_state(torch.Generator().get_state())


def test_generators_of_other_devices() -> None:
    generator = torch.Generator()
    assert type(generator) is type(torch.default_generator) and generator.device.type == "cpu"
    assert isinstance(generator, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
    assert isinstance(torch.Generator("dml"), torch.Generator) and not isinstance(3, torch.Generator)
    assert torch.rand(2, device="dml", generator=generator.manual_seed(1)).device.type == "dml"
    if torch.dml.device_count() > 1:
        with pytest.raises(RuntimeError, match="generator device"):
            torch.rand(2, device="dml:0", generator=torch.Generator("dml:1"))


def test_loaders_and_blocks() -> None:
    orders = []
    for _ in range(2):
        generator = torch.Generator("dml").manual_seed(7)
        loader = torch.utils.data.DataLoader(range(20), shuffle=True, generator=generator, batch_size=20)
        orders.append(next(iter(loader)).tolist())
    assert orders[0] == orders[1] != sorted(orders[0])
    torch.manual_seed(1)
    expected = torch.rand(3, device="dml").cpu()
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[0], device_type="dml"):
        torch.rand(3, device="dml")
    assert torch.equal(torch.rand(3, device="dml").cpu(), expected)
    torch.set_default_device("dml")
    try:
        loader = torch.utils.data.DataLoader(
            torch.arange(20).cpu(), shuffle=True, generator=torch.Generator("dml"), batch_size=20
        )
        assert sorted(next(iter(loader)).tolist()) == list(range(20))
    finally:
        torch.set_default_device(None)


def test_functions_that_draw_are_compiled() -> None:
    generator = torch.Generator("dml")

    def noisy(x: Any) -> Any:
        return x * 2 + torch.randn(3, device="dml", generator=generator)

    x = torch.ones(3, device="dml")
    expected = noisy(x).cpu()
    generator.manual_seed(generator.initial_seed())
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(noisy, backend="dmlgpu")(x).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_new_tensors_draw_the_streams_of_in_place_draws(dtype: Any) -> None:
    pairs: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (
            lambda: torch.rand(3, 5, dtype=dtype, device="dml"),
            lambda: torch.empty(3, 5, dtype=dtype, device="dml").uniform_(),
        ),
        (
            lambda: torch.randn(3, 5, dtype=dtype, device="dml"),
            lambda: torch.empty(3, 5, dtype=dtype, device="dml").normal_(),
        ),
    ]
    for new, in_place in pairs:
        draws = []
        for draw in (new, in_place):
            torch.manual_seed(3)
            draws.append([draw().cpu() for _ in range(3)])
        assert all(map(torch.equal, *draws))
        assert not torch.equal(draws[0][0], draws[0][1])
