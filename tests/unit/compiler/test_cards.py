"""The described GPUs: figures, units, and the card of an adapter."""

import json
from pathlib import Path

import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler.cards import STREAMED, card_of, cards, find_card
from dmlgpu.compiler.target import Overrides, Profile, Target, Tuned

TABLE = Path(__file__).parents[3] / "benchmarks" / "results" / "compiled.jsonl"

PUBLISHED = {  # TFLOP/s of float32, on AMD's RDNA 3 and 4 without dual issue: half of AMD's figure; GB/s
    "RX 7900 XTX": (61.4 / 2, 960),
    "RX 7600": (21.75 / 2, 288),
    "RX 9070 XT": (48.7 / 2, 640),
    "RX 6800": (16.17, 512),
    "RX Vega 64": (12.66, 484),
    "RTX 4090": (82.6, 1008),
    "RTX 3060": (12.7, 360),
    "A100": (19.5, 1555),
    "H100": (67.0, 3350),
    "Arc A770": (17.2, 560),
    "Apple M2": (3.6, 100),
    "Apple M3": (4.1, 100),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_cores_lanes_and_clock_give_the_published_rate(name):
    card, (teraflops, memory) = cards()[name], PUBLISHED[name]
    assert 2 * card.multiply_adds / 1e12 == pytest.approx(teraflops, rel=0.02)
    assert card.memory / STREAMED / 1e9 == pytest.approx(memory)


def test_every_card_has_a_source_and_positive_figures():
    assert len(cards()) >= 12
    for card in cards().values():
        assert card.source
        assert card.kind in ("discrete", "integrated")
        assert card.simds * card.wave >= card.lanes // 2
        figures = (card.cores, card.clock, card.l2, card.l2_rate, card.registers, card.waves, card.shared, card.launch)
        assert min(figures) > 0
        assert card.l2_rate > card.memory
        assert (card.l3 > 0) == (card.l3_rate > 0)


def test_units():
    card = cards()["RX 7900 XTX"]
    assert (card.clock, card.l2, card.l3, card.registers, card.shared) == (2.5e9, 6 << 20, 96 << 20, 384 << 10, 1 << 16)
    assert (card.latency, card.launch) == (pytest.approx(300e-9), pytest.approx(3e-6))


def test_waves_by_registers_are_those_that_the_compiler_counted():
    families = {card.family: card for card in cards().values() if card.family}
    records = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
    counted = 0
    for record in records:
        if record["status"] == "compiled":
            statistics, card = record["statistics"], families[record["family"]]
            waves = card.waves_by_registers(statistics["vgprs"])
            assert waves == statistics["waves"] or (statistics["shared_bytes"] and waves > statistics["waves"]), record
            counted += 1
    assert counted > 100


@pytest.mark.parametrize(
    ("adapter", "profile", "name"),
    [
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", Profile.DISCRETE, "RX 7900 XTX"),
        ("AMD Radeon RX 7900 XT (RADV NAVI31)", Profile.DISCRETE, "RX 7900 XTX"),  # of the same family
        ("AMD Radeon RX 6800 XT", Profile.DISCRETE, "a discrete GPU"),
        ("AMD Radeon Graphics (RADV PHOENIX)", Profile.INTEGRATED, "Radeon 780M"),
        ("NVIDIA GeForce RTX 4090", Profile.DISCRETE, "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", Profile.DISCRETE, "a discrete GPU"),
        ("NVIDIA RTX A1000", Profile.DISCRETE, "a discrete GPU"),
        ("NVIDIA A100-SXM4-40GB", Profile.DISCRETE, "A100"),
        ("NVIDIA H100 80GB HBM3", Profile.DISCRETE, "H100"),
        ("Intel(R) Arc(tm) A770 Graphics (DG2)", Profile.DISCRETE, "Arc A770"),
        ("Apple M2", Profile.INTEGRATED, "Apple M2"),
        ("Apple M2 Max", Profile.INTEGRATED, "an integrated GPU"),
        ("Adreno (TM) 740", Profile.INTEGRATED, "Adreno 740"),
        ("Mali-G710", Profile.INTEGRATED, "an integrated GPU"),
    ],
)
def test_the_card_of_an_adapter(adapter, profile, name):
    card = card_of(Target(adapter, profile))
    assert card.name == name
    assert card.is_generic == name.startswith("a")


def test_measured_rates_replace_published_ones():
    ceilings = {"copy": 800e9, "multiply_add": 30e12, "launch": 5e-6}
    card = card_of(Target("NVIDIA H100", Profile.DISCRETE, overrides=Overrides(tuned=Tuned.of({}, ceilings))))
    assert (card.memory, card.launch) == (800e9, 5e-6)
    assert 2 * card.multiply_adds == pytest.approx(30e12)
    assert card.cores == 132


@pytest.mark.parametrize("text", ["RX 7900 XTX", "rx 7900  xtx", "7900"])
def test_a_card_is_found_by_a_part_of_its_name(text):
    assert find_card(text).name == "RX 7900 XTX"


def test_an_unknown_card_suggests_the_nearest_and_lists_all():
    with pytest.raises(InvalidArgument) as caught:
        find_card("RTX 4070")
    assert str(caught.value) == (
        "no card is named 'RTX 4070'; the nearest is 'RTX 4090'; there are RX 7900 XTX, RX 7600, RX 9070 XT, RX 6800,"
        " RX Vega 64, Radeon 780M, RTX 4090, RTX 3060, A100, H100, Arc A770, Apple M2, Apple M3, Adreno 740"
    )
    for text in ("", "RTX", "RX"):
        with pytest.raises(InvalidArgument):
            find_card(text)
