"""Products by cooperative matrices, and requests for the feature."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dmlgpu import Graph, TensorDesc, descs
from dmlgpu.catalog.enums import DataType, MatrixTransform, QuantizationType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.compiler import compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.program import Checks
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.steps.cooperative import ScheduledCooperative, ScheduledCooperativeIntegers
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import COOPERATIVE, AdapterInfo, Matrices, MatrixDialect, Policies, Profile, Target
from dmlgpu.ops import directml as functions
from dmlgpu.runtime.wgpu import context, cooperative, libraries, measured, native, probes
from dmlgpu.runtime.wgpu.context import matrix_support

GPU = Target(
    "GPU",
    Profile.DISCRETE,
    frozenset({"subgroup"}),
    max_workgroup_storage=32768,
    policies=Policies(checked=False),
    matrices=Matrices(),
)
WHOLE = GPU.with_overrides(schedule="cooperative")
"""The largest tile for any number of workgroups."""
NVIDIA = replace(WHOLE, matrices=Matrices(lanes=32, turns=False))
F16, F32 = DataType.FLOAT16, DataType.FLOAT32
CARD = AdapterInfo("Card", "Vulkan", "discrete", "maker", "driver 1")


def gemm(rows: int, inner: int, columns: int, data_type: DataType = F16) -> descs.Gemm:
    a, b, output = (
        TensorDesc(data_type, (1, 1, *sizes)) for sizes in ((rows, inner), (inner, columns), (rows, columns))
    )
    return descs.Gemm(a_tensor=a, b_tensor=b, output_tensor=output)


def schedules(desc: OperatorDesc, target: Target) -> list[type]:
    return [type(step) for step in schedule(operators.lower(desc), target).steps]


@pytest.mark.parametrize(
    ("desc", "target"),
    [
        (gemm(128, 32, 128), replace(GPU, matrices=None)),
        (gemm(128, 32, 128), replace(GPU, profile=Profile.CPU)),
        (gemm(128, 32, 128), GPU.with_policies(precise=True)),
        (gemm(128, 32, 128), GPU.with_overrides(schedule="shared")),
        (gemm(128, 32, 128), replace(GPU, max_workgroup_storage=8192)),
        (gemm(128, 32, 128, F32), GPU),
        (gemm(128, 15, 128), GPU),  # less than a slab, or than the smallest tile
        (gemm(31, 32, 128), GPU),
        (gemm(128, 32, 31), GPU),
        (gemm(128, 32, 128), replace(GPU, max_workgroup_invocations=128)),
    ],
)
def test_other_products_keep_their_schedules(desc: descs.Gemm, target: Target) -> None:
    assert schedules(gemm(128, 32, 128), GPU) == [ScheduledCooperative]
    assert ScheduledCooperative not in schedules(desc, target)


def test_float32_is_rounded_if_the_operator_allows_it() -> None:
    desc, allowing = gemm(128, 32, 128, F32), replace(GPU, features=frozenset({"subgroup", "shader-f16"}))
    (step,) = schedule(operators.lower(desc), allowing.for_operators(half_precision=True)).steps
    assert isinstance(step, ScheduledCooperative) and step.matrices.component == "f16"
    for target in (allowing.for_operators(False), allowing.with_policies(precise=True).for_operators(True)):
        assert ScheduledCooperative not in schedules(desc, target)


@pytest.mark.parametrize("data_type", [F16, F32])
def test_matrices_of_float32_round_nothing(data_type: DataType) -> None:
    """Those of Apple's GPUs, which multiply float16 as well."""
    floats = Matrices(8, 8, 8, lanes=32, dialect=MatrixDialect.TINT, component="f32")
    target = replace(GPU, matrices=replace(floats, floats=floats))
    (step,) = schedule(operators.lower(gemm(128, 32, 128, data_type)), target).steps
    assert isinstance(step, ScheduledCooperative) and step.matrices.component == "f32"
    (kernel,) = compile_operator(gemm(128, 32, 128, data_type), target).kernels
    assert "subgroup_matrix_left<f32, 8, 8>" in kernel.wgsl and not re.search(r"\bf16\b", kernel.wgsl)
    assert ScheduledCooperative not in schedules(gemm(128, 32, 128, data_type), target.with_policies(precise=True))


def integer_product(rows: int, inner: int, columns: int) -> descs.MatrixMultiplyInteger:
    a, b = (TensorDesc(DataType.INT8, (1, 1, *sizes)) for sizes in ((rows, inner), (inner, columns)))
    output = TensorDesc(DataType.INT32, (1, 1, rows, columns))
    return descs.MatrixMultiplyInteger(a_tensor=a, b_tensor=b, output_tensor=output)


INTEGERS = replace(GPU, matrices=Matrices(integers=Matrices(steps=32, component="i8")))


@pytest.mark.parametrize(
    ("desc", "target"),
    [
        (integer_product(128, 64, 128), GPU),
        (integer_product(128, 64, 128), replace(INTEGERS, profile=Profile.CPU)),
        (integer_product(128, 64, 128), replace(INTEGERS, multiplies_words=False)),
        (integer_product(128, 64, 128), replace(INTEGERS, max_workgroup_storage=16384)),
        (integer_product(128, 64, 128), replace(INTEGERS, max_workgroup_invocations=128)),
        (integer_product(128, 31, 128), INTEGERS),  # less than a slab, or than the smallest tile
        (integer_product(31, 64, 128), INTEGERS),
    ],
)
def test_other_products_of_integers_keep_their_schedules(desc: descs.MatrixMultiplyInteger, target: Target) -> None:
    assert schedules(integer_product(128, 64, 128), INTEGERS.with_policies(precise=True)) == [
        ScheduledCooperativeIntegers
    ]
    assert ScheduledCooperativeIntegers not in schedules(desc, target)


def test_long_sums_of_integers_are_split() -> None:
    split, merge = schedule(operators.lower(integer_product(64, 8192, 64)), INTEGERS).steps
    assert isinstance(split, ScheduledCooperativeIntegers) and merge.label == "sum of parts"
    assert split.parts > 1 and split.share % split.words_per_slab == 0
    assert (split.parts - 1) * split.share < 2048 <= split.parts * split.share


@pytest.mark.parametrize("sizes", [(127, 24, 129), (64, 16, 64), (1000, 31, 77)])
def test_products_of_other_sizes_have_partial_tiles(sizes: tuple[int, int, int]) -> None:
    (step,) = schedule(operators.lower(gemm(*sizes)), WHOLE).steps
    assert isinstance(step, ScheduledCooperative) and any(step.edges)
    assert step.launch.total == -(-sizes[0] // 128) * -(-sizes[2] // 128)


def convolution(
    channels: int,
    filters: int,
    side: int = 16,
    window: int = 3,
    data_type: DataType = F16,
    *,
    channels_last: bool = False,
) -> descs.Convolution:
    def tensor(batch: int, channels: int, side: int) -> TensorDesc:
        strides = (channels * side * side, 1, side * channels, channels) if channels_last else None
        return TensorDesc(data_type, (batch, channels, side, side), strides)

    return descs.Convolution(
        input_tensor=tensor(2, channels, 16),
        filter_tensor=tensor(filters, channels, window),
        output_tensor=tensor(2, filters, 16),
        strides=(1, 1),
        dilations=(1, 1),
        start_padding=(window // 2,) * 2,
        end_padding=(window // 2,) * 2,
    )


WINOGRAD = ["tiles", "tiles", "contract", "reduce", "reduce", "map", "tiles"]


@pytest.mark.parametrize(
    ("desc", "target", "kernels"),
    [
        (convolution(64, 64), GPU, ["map", "cooperative"]),
        (convolution(64, 64, channels_last=True), GPU, ["cooperative"]),  # channels of filters are adjacent already
        (convolution(64, 64, window=1), GPU, ["cooperative"]),
        (convolution(64, 64), replace(GPU, matrices=None), WINOGRAD),
        (convolution(64, 64, data_type=F32), GPU, WINOGRAD),
        (convolution(3, 64), GPU, ["contract"]),  # less than a slab of channels
        (convolution(64, 31), GPU, WINOGRAD),  # less than the smallest tile of filters
        (convolution(64, 64, window=5), GPU.with_policies(precise=True), ["contract", "map"]),
    ],
)
def test_convolutions_of_float16_are_products_on_matrix_units(
    desc: descs.Convolution, target: Target, kernels: list[str]
) -> None:
    assert [step.kind for step in schedule(operators.lower(desc), target).steps] == kernels


def test_windows_are_gathered_by_taps() -> None:
    """An invocation computes the place of a tap once for all channels, and reads channels at once if it can."""
    planes, pixels = (
        compile_operator(convolution(64, 64, channels_last=last), NVIDIA).kernels[-1].wgsl for last in (False, True)
    )
    loop = planes[planes.index("for (var tap") : planes.index("for (var start")]
    assert loop.count("= b_tap(") == 1 and "b_tap(" not in planes[planes.index("for (var start") :]
    assert planes.count("f16(b_channel(b_tap0, channel3))") == 8  # 128 columns x 32 steps, 128 invocations
    assert pixels.count("vec4<f16>(a_channel(tap_place, start + step))") == 8


@pytest.mark.parametrize("channels_last", [False, True])
def test_windows_of_computed_elements_are_gathered_alike(channels_last: bool) -> None:
    sizes = (2, 64, 16, 16)
    graph = Graph()
    strides = (64 * 256, 1, 16 * 64, 64) if channels_last else None
    x, filters = graph.input(TensorDesc(F16, sizes, strides)), graph.input((64, 64, 3, 3), F16)
    y = functions.convolution(functions.activation_relu(x), filters, start_padding=(1, 1), end_padding=(1, 1))
    kernel = compile_network(resolve(graph.desc([y])), GPU).program.kernels[-1]
    assert "cooperative" in kernel.label
    assert ("vec4<f16>(b_channel(tap_place" in kernel.wgsl) == channels_last
    assert ("f16(b_channel(b_tap0" in kernel.wgsl) == (not channels_last)


@pytest.mark.parametrize(
    ("rows", "block", "kinds"),
    [(64, 32, ["cooperative"]), (64, 8, ["contract"]), (16, 32, ["quantizedproduct"]), (64, 18, ["contract"])],
)
def test_columns_are_dequantized_on_the_way_to_workgroup_memory(rows: int, block: int, kinds: list[str]) -> None:
    """If rows are many, and blocks have a slab of elements in units of four."""
    graph = Graph()
    x, scale = graph.input((rows, 8 * block), F16), graph.input((64, 8), F16)
    weights = functions.dequantize(
        graph.input((64, 8 * block), DataType.INT8), (scale,), quantization_type=QuantizationType.SCALE
    )
    product = functions.gemm(x, weights, trans_b=MatrixTransform.TRANSPOSE)
    compiled = compile_network(resolve(graph.desc([product])), GPU)
    assert [step.kind for step in compiled.schedule.steps] == kinds
    if kinds == ["cooperative"]:
        assert "b_step(unit_start, tap1, start + step)" in compiled.program.kernels[0].wgsl


def test_slabs_fill_workgroup_memory() -> None:
    """Two slabs of 16 or 8 matrices of 16 x 24 and 4 KiB of sums: rows of 16 steps are padded by 8."""
    (large,) = compile_operator(gemm(128, 32, 128), WHOLE).kernels
    (small,) = compile_operator(gemm(128, 32, 128), replace(WHOLE, max_workgroup_storage=16384)).kernels
    assert "a_slab: array<array<f16, 384>, 16>" in large.wgsl and "a_slab: array<array<f16, 384>, 8>" in small.wgsl
    assert large.checks is Checks.NONE
    assert large.wgsl.split("\n")[:2] == ["enable f16;", "enable wgpu_cooperative_matrix;"]


def test_dialects_say_the_same_in_other_words() -> None:
    """Every operation of naga has its counterpart, and the rest of the text is the same."""
    naga, tint = (
        compile_operator(gemm(100, 48, 128), replace(GPU, matrices=replace(units, dialect=dialect))).kernels[0].wgsl
        for units in (Matrices(8, 8, 8, turns=False),)
        for dialect in MatrixDialect
    )
    assert tint.startswith("enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n")
    sides = {"A": "left<f16", "B": "right<f16", "C": "result<f32"}
    for pattern, replacement in (
        (r"enable wgpu_cooperative_matrix;", "enable subgroups;\nenable chromium_experimental_subgroup_matrix;"),
        (r"coop_mat8x8<f\d+, (.)>", lambda match: f"subgroup_matrix_{sides[match[1]]}, 8, 8>"),
        (r"coopLoadT<(.*?>)>\(&(\w+\[.*?\])\[(.*?)\], (\d+u)\)", r"subgroupMatrixLoad<\1>(&\2, \3, false, \4)"),
        (r"coopLoad<(.*?>)>\(&(\w+\[.*?\])\[(.*?)\], (\d+u)\)", r"subgroupMatrixLoad<\1>(&\2, \3, true, \4)"),
        (r"coopMultiplyAdd", "subgroupMatrixMultiplyAccumulate"),
        (r"coopStoreT\((\w+), &sums\[(.*?)\], 8u\)", r"subgroupMatrixStore(&sums, \2, \1, false, 8u)"),
    ):
        if "coopLoad<" in pattern:
            assert "coopLoad<" not in naga  # b lies row by row, as a does
            continue
        naga, count = re.subn(pattern, replacement, naga)
        assert count, pattern
    assert naga == tint


RX_7900 = replace(GPU, name="AMD Radeon RX 7900 XTX (RADV NAVI31)")
RADEON_780M = replace(GPU, name="AMD Radeon 780M")


@pytest.mark.parametrize(
    ("desc", "target", "block", "parts", "workgroups"),
    [
        (gemm(4096, 4096, 4096), RX_7900, 4, 1, 1024),
        (gemm(1024, 1024, 1024), RX_7900, 2, 1, 256),  # 64 tiles of 128 x 128 leave 32 of 96 cores idle
        (gemm(1024, 1024, 1024), RADEON_780M, 4, 1, 64),  # but none of 12
        (gemm(512, 512, 512), RX_7900, 1, 1, 256),
        (gemm(512, 512, 512), replace(GPU, name="Apple M2"), 2, 1, 64),  # has none by its documents
        (gemm(128, 4096, 4096), RX_7900, 4, 3, 96),  # 32 tiles
        (convolution(512, 512), RX_7900, 2, 3, 192),  # parts of 3 taps of 9
        (gemm(128, 4096, 4096), RX_7900.with_overrides(schedule="cooperative"), 4, 1, 32),
    ],
)
def test_few_tiles_are_smaller_or_split(desc: Any, target: Target, block: int, parts: int, workgroups: int) -> None:
    """So that they keep the cores of the card busy."""
    steps = schedule(operators.lower(desc), target).steps
    (step,) = (step for step in steps if isinstance(step, ScheduledCooperative))
    assert (step.matrices.block, step.parts, step.launch.total) == (block, parts, workgroups)
    assert steps[-1].label == ("sum of parts" if parts > 1 else step.label)


def test_control_flow_does_not_depend_on_subgroups() -> None:
    """Uniformity, which naga checks around matrices: the subgroup only selects where they are."""
    (kernel,) = compile_operator(gemm(100, 48, 128), GPU).kernels
    main = kernel.wgsl.partition("fn main")[2]
    assert re.findall(r".*\bsubgroup\b.*", main)[1:] == ["    let quarter = subgroup & 3u;"]
    assert [line for line in re.findall(r" (?:if|for) \(.*", main) if "quarter" in line or "_mine" in line] == []
    assert "@workgroup_size(256)" in kernel.wgsl
    assert compile_operator(gemm(100, 48, 128), NVIDIA).kernels[0].wgsl.count("@workgroup_size(128)") == 1


class _Adapter:
    """An adapter that records what is requested."""

    def __init__(self, features: set[str], error: str = ""):
        self.features, self.error, self.requested = features, error, []
        self.limits: dict[str, int] = {}
        self.info = {"vendor_id": 0}

    def request_device_sync(self, *, label: str, required_features: list[str]) -> Any:
        self.requested.append(required_features)
        if self.error and COOPERATIVE in required_features:
            raise RuntimeError(self.error)
        return required_features


REJECTED = "Validation Error\n\nCaused by:\n  Some experimental features, X, were requested, but they are not enabled\n"


@pytest.fixture(autouse=True)
def plain_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "without_cycle", lambda device: device)


@pytest.mark.parametrize(
    ("features", "error", "disabled", "expected"),
    [
        (cooperative.NEEDED, "", (), [["cooperative-matrix", "shader-f16", "subgroup"]]),
        (cooperative.NEEDED, REJECTED, (), [["cooperative-matrix", "shader-f16", "subgroup"], ["subgroup"]]),
        (cooperative.NEEDED, "", ("shader-f16",), [["subgroup"]]),
        ({"subgroup", "shader-f16"}, "", (), [["subgroup"]]),
    ],
)
def test_devices_are_asked_for_matrix_units(
    features: set[str], error: str, disabled: tuple[str, ...], expected: list[list[str]]
) -> None:
    adapter = _Adapter(set(features), error)
    cooperative.request_device(adapter, {"subgroup"}, disabled)
    assert adapter.requested == expected


class _Dawn:
    """Dawn with matrix units, or without."""

    name = "Dawn"

    def __init__(self, units: Matrices | None):
        self.units = units

    def features(self, raw: Collection[str], limits: object) -> Collection[str]:
        return raw

    def matrix_units(self, adapter: object) -> Matrices | None:
        return self.units


@pytest.mark.parametrize(
    ("dawn", "adapters", "advice"),
    [
        (None, (), "Dawn may enable it: pip install 'dmlgpu[dawn]'"),
        (_Dawn(Matrices(8, 16, 16)), (replace(CARD, backend="Dawn Vulkan"),), "Dawn has 8 x 16 x 16: -a dawn"),
        (_Dawn(Matrices()), (replace(CARD, backend="Dawn D3D12"), replace(CARD, name="Other")), ""),
        (_Dawn(None), (replace(CARD, backend="Dawn Vulkan"),), ""),
    ],
)
def test_a_rejection_is_described(
    dawn: _Dawn | None, adapters: tuple[AdapterInfo, ...], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_dawn = _Adapter(set(cooperative.NEEDED))
    monkeypatch.setattr(context, "dawn", lambda: dawn)
    monkeypatch.setattr(context, "dawn_adapters", lambda: adapters)
    monkeypatch.setattr(context, "wgpu_adapter", lambda info: of_dawn)
    monkeypatch.setattr(libraries, "library_of", lambda thing: dawn if thing is of_dawn else native.NATIVE)
    monkeypatch.setattr(cooperative, "library_of", libraries.library_of)
    text = matrix_support(_Adapter(set(cooperative.NEEDED), REJECTED), CARD)
    assert text == (
        "cooperative-matrix is not used, because wgpu-native rejects it: "
        "Some experimental features, X, were requested, but they are not enabled"
    ) + (f"; {advice}" if advice else "")
    assert matrix_support(_Adapter({"subgroup"}), CARD) == ""


@pytest.mark.parametrize(
    ("facts", "failure", "reason"),
    [
        ({"equal", "faster"}, "", ""),
        ({"equal"}, "", "its products are slower than ordinary ones"),
        ((), "", "its products differ from NumPy's"),
        ((), "Required uniformity", "its products do not compile: Required uniformity"),
    ],
)
def test_the_reason_why_products_are_not_used_is_described(
    facts: Collection[str], failure: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts are unknown, and measured again, as long as the kernel fails."""

    def measure(device: object) -> frozenset[str]:
        if failure:
            raise RuntimeError(f"Validation Error\n\nCaused by:\n  {failure}\n")
        return frozenset(facts)

    device = SimpleNamespace(features=cooperative.NEEDED)
    monkeypatch.setenv("DMLGPU_CACHE", "off")
    monkeypatch.setattr(measured, "CACHED", {})
    monkeypatch.setattr(measured, "FAILURES", {})
    monkeypatch.setattr(probes, "MATRICES", replace(probes.MATRICES, measure=measure))
    monkeypatch.setattr(cooperative, "request_features", lambda adapter, features: device)
    monkeypatch.setattr(native.NATIVE, "destroy", lambda device: None)
    used = "16 x 16 x 16, float16 with float32 sums"
    expected = f"cooperative-matrix is not used, because {reason}" if reason else used
    assert matrix_support(_Adapter(set(cooperative.NEEDED)), CARD) == expected


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"equal", "faster"}, ""),
        ({"equal"}, " is not used, because its products are slower than ordinary ones"),
    ],
)
@pytest.mark.parametrize("probe", ["float-matrices", "integer-matrices"])
def test_other_matrix_units_are_described(
    facts: set[str], reason: str, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLGPU_CACHE", "off")
    is_of_integers = probe == "integer-matrices"
    other = Matrices(steps=32, component="i8" if is_of_integers else "f32")
    library = _Dawn(Matrices(integers=other) if is_of_integers else Matrices(floats=other))
    monkeypatch.setattr(library, "destroy", lambda device: None, raising=False)
    monkeypatch.setattr(context, "library_of", lambda thing: library)
    monkeypatch.setattr(cooperative, "library_of", lambda thing: library)
    known = {("matrices", str(CARD)): frozenset({"equal", "faster"}), (probe, str(CARD)): frozenset(facts)}
    monkeypatch.setattr(measured, "CACHED", known)
    monkeypatch.setattr(cooperative, "request_features", lambda adapter, features: object())
    assert matrix_support(_Adapter(set(cooperative.NEEDED)), CARD) == (
        "16 x 16 x 16, float16 with float32 sums; 16 x 16 x 32, "
        f"{'int8 with int32' if is_of_integers else 'float32 with float32'} sums{reason}"
    )


def test_matrix_units_of_cpu_adapters_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    software, adapter = replace(CARD, kind="cpu"), _Adapter(set(cooperative.NEEDED), REJECTED)
    monkeypatch.delenv("DMLGPU_MATRICES", raising=False)
    assert matrix_support(adapter, software) == (
        "cooperative-matrix is not used: assumed for adapters of the kind cpu, not measured"
    )
    monkeypatch.setenv("DMLGPU_MATRICES", "never")
    assert matrix_support(adapter, CARD) == "cooperative-matrix is not used: set by DMLGPU_MATRICES"
    assert adapter.requested == []
