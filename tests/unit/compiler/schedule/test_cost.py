"""The cost model of GPUs, compared with hand calculations and compiled kernels; better cards are never slower."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from dmlgpu.compiler.cards import card_of, cards, find_card
from dmlgpu.compiler.schedule.cost import (
    BARRIER,
    Work,
    estimate,
    merge_work,
    resident,
    slab_bytes,
    slab_loop,
    slab_work,
    tile_registers,
)
from dmlgpu.compiler.schedule.gemm_choice import Shape, choose
from dmlgpu.compiler.schedule.steps.products import ProductTile
from dmlgpu.compiler.target import Profile, Target

TABLE = Path(__file__).parents[4] / "benchmarks" / "results" / "compiled.jsonl"

SMALL, LONG, WIDE, LARGE = (
    ProductTile(rows, units, 16, 16, depth) for rows, units, depth in ((4, 1, 8), (4, 1, 16), (4, 2, 8), (8, 2, 8))
)

XTX, H100 = find_card("RX 7900 XTX"), find_card("H100")

CARD = replace(
    H100,
    name="round figures",
    cores=10,
    clock=1e9,
    memory=100e9,
    l2=1e6,
    l2_rate=1000e9,
    simds=4,
    lanes=128,
    wave=32,
    latency=1e-6,
    issue=1,
    launch=2e-6,
)


# ---- by hand


def test_a_copy_takes_its_bytes_at_the_rate_of_the_memory():
    work = Work(groups=1000, workgroup=256, moved=200e6, loaded=200e6, vector=10, others=10)
    predicted = estimate(work, CARD)
    assert predicted.limit == "memory"
    assert predicted.seconds == pytest.approx(200e6 / 100e9 + 2e-6)


def test_bytes_in_a_cache_move_at_its_rate():
    work = Work(groups=1000, workgroup=256, moved=200e6, cached=200e6, vector=1)
    assert estimate(work, CARD).parts["memory"] == pytest.approx(200e6 / 1000e9)


def test_instructions_of_the_busiest_core_take_their_cycles():
    """25 workgroups on 10 cores: three on the busiest, each of 256 invocations of 1,000 instructions."""
    work = Work(groups=25, workgroup=256, moved=1, vector=600, multiply_adds=300, others=100)
    assert estimate(work, CARD).parts["arithmetic"] == pytest.approx(3 * 256 * 1000 / 128 / 1e9)
    vector_only = replace(CARD, counts_all=False)
    assert estimate(work, vector_only).parts["arithmetic"] == pytest.approx(3 * 256 * 900 / 128 / 1e9)


def test_multiply_adds_fill_a_share_of_the_issue_slots():
    work = Work(groups=10, workgroup=128, moved=1, multiply_adds=900, others=100)
    assert estimate(work, replace(CARD, issue=0.8)).parts["arithmetic"] == pytest.approx(1000 / 0.8 / 1e9)
    measured = H100.measured({"multiply_add": 40e12})
    assert 2 * measured.multiply_adds * measured.issue == pytest.approx(40e12)


def test_packed_and_integer_products_have_their_own_rates():
    """Two of float16 at twice the rate of float32 take one slot, four of int8 at twice the rate two, an integer at half
    of it two."""
    card = replace(CARD, half=2, dot=2, integer=0.5)
    for kind, slots in (("multiply_adds", 100), ("half", 100), ("dot", 200), ("integers", 200)):
        work = Work(groups=10, workgroup=128, moved=1, **{kind: 100})
        assert estimate(work, card).parts["arithmetic"] == pytest.approx(slots / 1e9), kind


def test_workgroup_memory_has_its_rate():
    """Two workgroups per core of 256 invocations, 1,024 bytes each, at 128 bytes per cycle."""
    work = Work(groups=20, workgroup=256, moved=1, shared_moved=1024)
    assert estimate(work, CARD).parts["workgroup memory"] == pytest.approx(2 * 256 * 1024 / 128 / 1e9)


def test_registers_workgroup_memory_and_waves_bound_the_workgroups_of_a_core():
    """65,536 registers: 128 for each of 256 invocations allow two workgroups; 16 waves of 4 SIMD units eight."""
    work = Work(groups=1, workgroup=256, moved=1, registers=128)
    assert resident(work, H100) == 2
    assert resident(replace(work, registers=32), H100) == 8
    assert resident(replace(work, registers=16), H100) == 8
    assert resident(replace(work, registers=32, shared=100 << 10), H100) == 2
    assert resident(replace(work, registers=255, workgroup=1024), H100) == 1


def test_waits_repeat_for_every_round_of_workgroups():
    """100 workgroups, two at a time on each of 10 cores: five rounds of five waits after a first one."""
    work = Work(groups=100, workgroup=256, moved=1, registers=128, waits=5)
    assert estimate(work, CARD).parts["latency"] == pytest.approx(5 * (1e-6 + 5e-6))


def test_barriers_count_if_nothing_else_runs():
    work = Work(groups=1, workgroup=32, moved=1, barriers=1000)
    assert estimate(work, CARD).parts["latency"] == pytest.approx(1e-6 + 1000 * BARRIER / 1e9)


def test_a_launch_is_the_lower_bound():
    predicted = estimate(Work(groups=1, workgroup=32, moved=4, waits=0), CARD)
    assert (predicted.limit, predicted.seconds > CARD.launch) == ("launch", True)


def test_the_work_of_a_product():
    """256 x 256 x 64 in tiles of 64 x 64: 16 workgroups, two pairs of slabs of 16 steps each."""
    work = slab_work((1, 256, 256, 64), SMALL, 1, CARD)
    assert (work.groups, work.workgroup, work.barriers, work.waits) == (16, 256, 8, 4)
    assert work.multiply_adds == 64 * 16
    assert work.shared_moved == 64 * 8 * 4
    assert work.moved == 4 * (2 * 256 * 64 + 256 * 256)
    assert work.loaded == 4 * (16 * 64 * 128 + 256 * 256)
    assert (work.shared, slab_bytes(SMALL)) == (8192, 8192)


def test_operands_larger_than_the_cache_are_read_again():
    """Of 4,096 x 4,096 x 4,096, 20 workgroups at a time read one row of 128 and 20 columns of 128."""
    card = replace(CARD, l2=1e6)
    work = slab_work((1, 4096, 4096, 4096), LARGE, 1, card)
    assert resident(work, card) == 2
    turns = -(-32 * 32 // 20)
    assert work.moved == pytest.approx(4 * (turns * 4096 * (20 * 128 + 128) + 4096 * 4096))
    assert slab_work((1, 4096, 4096, 4096), LARGE, 1, replace(card, l2=1e9)).moved == 4 * 3 * 4096**2


def test_parts_are_written_and_read_again():
    split = slab_work((1, 128, 128, 4096), LARGE, 8, CARD)
    assert split.groups == 8 * slab_work((1, 128, 128, 4096), LARGE, 1, CARD).groups
    merged = merge_work(128 * 128, 8, CARD)
    assert merged.moved == 128 * 128 * 4 * 9
    assert merged.cached == 128 * 128 * 4 * 8


# ---- better cards are never slower

WORKS = {
    "copy": Work(groups=4096, workgroup=256, moved=50e6, loaded=50e6, vector=10, others=20),
    "gelu": Work(groups=4096, workgroup=256, moved=33e6, loaded=33e6, vector=277, others=100, registers=48),
    "tiny": Work(groups=1, workgroup=64, moved=256, loaded=256, vector=10),
    "serial": Work(groups=32, workgroup=64, moved=1e6, loaded=1e6, multiply_adds=1000, vector=4000, waits=256),
    "product": slab_work((1, 1024, 1024, 1024), WIDE, 1, XTX),
    "large product": slab_work((1, 4096, 4096, 4096), LARGE, 1, XTX),
}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("field", ["memory", "clock", "cores", "l2_rate", "l3_rate", "shared_rate", "registers"])
def test_better_cards_are_never_slower(name, field):
    for card in cards().values():
        better = replace(card, **{field: 2 * getattr(card, field)})
        assert estimate(WORKS[name], better).seconds <= estimate(WORKS[name], card).seconds


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("field", ["latency", "launch"])
def test_longer_latencies_are_never_faster(name, field):
    for card in cards().values():
        worse = replace(card, **{field: 2 * getattr(card, field)})
        assert estimate(WORKS[name], worse).seconds >= estimate(WORKS[name], card).seconds


@pytest.mark.parametrize("card", cards().values(), ids=lambda card: card.name)
def test_more_work_is_never_faster(card):
    sizes = [64, 128, 256, 512, 1024, 2048, 4096]
    for tile in (SMALL, LONG, WIDE, LARGE):
        times = [estimate(slab_work((1, size, size, size), tile, 1, card), card).seconds for size in sizes]
        assert times == sorted(times)


@pytest.mark.parametrize("card", cards().values(), ids=lambda card: card.name)
def test_no_product_is_faster_than_the_rate_of_its_card(card):
    for size in (512, 1024, 2048, 4096):
        for tile in (SMALL, LONG, WIDE, LARGE):
            seconds = estimate(slab_work((1, size, size, size), tile, 1, card), card).seconds
            assert seconds > size**3 / card.multiply_adds


# ---- choice of tiles


def test_whole_rounds_decide_between_tiles():
    """1,024 x 1,024 in tiles of 128 x 128 occupies 64 of 96 cores; in tiles of 64 x 64, at most three of 256 workgroups
    are on each, of a quarter of the work."""
    seconds = [estimate(slab_work((1, 1024, 1024, 1024), tile, 1, XTX), XTX).seconds for tile in (LONG, LARGE)]
    assert seconds[0] < 0.8 * seconds[1]
    assert choose(Shape(1, 1024, 1024, 1024), Target("AMD Radeon RX 7900 XTX", Profile.DISCRETE)).text == "shared 4x1"
    assert choose(Shape(1, 1024, 1024, 1024), Target("GPU", Profile.DISCRETE)).text == "shared 4x2"


def test_sums_are_split_for_large_cards_only():
    """A product of 512 x 512 x 4,096 fills 12 cores without parts."""
    shape = Shape(1, 512, 512, 4096)
    assert choose(shape, Target("NVIDIA H100", Profile.DISCRETE)).parts > 1
    assert choose(shape, Target("AMD Radeon 780M Graphics", Profile.INTEGRATED)).parts == 1


def test_the_reason_names_a_known_card():
    shape = Shape(1, 1024, 1024, 1024)
    known, other = (choose(shape, Target(name, Profile.DISCRETE)).reason for name in ("NVIDIA H100", "GPU"))
    assert "; in tiles for the H100" in known
    assert "in tiles for" not in other
    assert card_of(Target("GPU", Profile.DISCRETE)).name == "a discrete GPU"


# ---- against compiled kernels

TILES = {(256, 8192): SMALL, (512, 16384): LONG, (512, 12288): WIDE, (1024, 16384): LARGE}
"""Tiles by the multiply-adds of a pair of slabs, and bytes of workgroup memory."""


def slab_kernels():
    """Return the statistics of all kernels in slabs, with their tiles."""
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        record = json.loads(line)
        if record["label"].endswith("shared x4") and record["status"] == "compiled":
            statistics = record["statistics"]
            products = statistics["loop_multiply_adds"] // 256 * 256  # without conversions of float16, which count, too
            yield record["family"], statistics, TILES[products, statistics["shared_bytes"]]


def test_tiles_have_the_registers_and_the_share_of_multiply_adds_that_compilers_give_them():
    """Registers within 30 %, the share of multiply-adds within 6 points, workgroup memory exactly."""
    tiles = defaultdict(int)
    for family, statistics, tile in slab_kernels():
        assert tile_registers(tile) == pytest.approx(statistics["vgprs"], rel=0.3), (family, tile)
        share = statistics["loop_multiply_adds"] / statistics["loop_instructions"]
        assert slab_loop(tile).multiply_add_share == pytest.approx(share, abs=0.06), (family, tile)
        assert slab_bytes(tile) == statistics["shared_bytes"]
        tiles[tile] += 1
    assert sum(tiles.values()) >= 12
    assert len(tiles) >= 2


@pytest.mark.parametrize(
    ("tile", "instructions", "multiply_adds", "registers"),
    [(LONG, 653, 512, 72), (LARGE, 1170, 1024, 120), (WIDE, 657, 512, 84), (SMALL, 385, 256, 48)],
)
def test_a_loop_over_slabs_is_as_long_as_compiled(tile, instructions, multiply_adds, registers):
    """RADV of Mesa 25.0.7 for navi31, and gfx1201 for 4 x 8; float32."""
    loop = slab_loop(tile)
    assert loop.multiply_adds == multiply_adds
    assert loop.products + loop.vector + loop.others == pytest.approx(instructions, rel=0.05)
    assert loop.registers == pytest.approx(registers, rel=0.25)
