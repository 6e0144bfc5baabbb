"""What RADV's compiler makes of the kernels of the quick cases and of the benchmark rows, for four GPU families."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dmlgpu.bench import predicting, radv, validators
from dmlgpu.bench.compiled import MAX_VGPRS, CompiledKernel, KernelChangeKind, compare_kernels, read_kernels
from dmlgpu.bench.specs import BenchSpec
from dmlgpu.catalog.enums import DataType
from dmlgpu.cli.subjects import compiled_workloads
from dmlgpu.compiler.cards import find_card

TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "compiled.jsonl"
"""Written by ``dmlgpu bench compiled families -o benchmarks/results/compiled.jsonl``."""

MORE_VGPRS = dict.fromkeys(
    ((family, "convolution streamed") for family in radv.FAMILIES),
    "144 to 148 for float16 in a permuted layout (convolution-float16-2x16x14x11-permuted-dense-s0), without spills",
)
"""Family and label of kernels that may have more than MAX_VGPRS, with the reason."""

MISSING = radv.missing_parts()

pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"compiling for AMD GPUs needs {' and '.join(MISSING)}"),
    pytest.mark.skipif("VK_DRIVER_FILES" in os.environ, reason="RADV's kernels are tested with the machine's drivers"),
]


LARGE = BenchSpec("GEMM", ({"m": 4096, "k": 4096, "n": 4096},), (DataType.FLOAT32, DataType.FLOAT16))
LARGE_SHARE = {"navi31": 0.85, "navi21": 0.85, "gfx1201": 0.84, "vega10": 0.84}
"""Fewest multiply-adds per instruction of the busiest loop."""

INTEGERS = BenchSpec("MATRIX_MULTIPLY_INTEGER")
INTEGER_SHARE = {"navi31": 0.67, "navi21": 0.66, "gfx1201": 0.66}
"""The same of products of 1,024 by 1,024 integers, four per instruction; vega10 has no such instruction."""

_SIZES = [{"heads": 8, "queries": 1, "keys": 4096, "size": size} for size in (64, 128)]
FEW_ROWS = BenchSpec("MULTIHEAD_ATTENTION", tuple(_SIZES), (DataType.FLOAT32, DataType.FLOAT16))
"""Attention of one query: 8 heads of 64 and of 128, 4,096 keys."""


def _of_shared_heads(data_type: DataType) -> BenchSpec:
    """Attention of one query whose 32 heads share 8 heads of keys."""

    def tensor(*sizes: int) -> dict[str, Any]:
        return {"sizes": list(sizes), "type": data_type.name.lower()}

    desc = {
        "query_tensor": tensor(1, 1, 32 * 128),
        **dict.fromkeys(("key_tensor", "value_tensor"), tensor(1, 4096, 8 * 128)),
        "output_tensor": tensor(1, 1, 32 * 128),
        "query_head_count": 32,
        "key_value_head_count": 8,
        "scale": 0.125,
        "mask_filter_value": -10000.0,
        "mask_type": "NONE",
    }
    return BenchSpec("MULTIHEAD_ATTENTION1", desc=desc, name=f"attention of shared heads, {data_type.name.lower()}")


SHARED_HEADS = [_of_shared_heads(data_type) for data_type in (DataType.FLOAT32, DataType.FLOAT16)]
TOKENS = BenchSpec("GEMM", ({"m": 8, "k": 4096, "n": 4096},), (DataType.FLOAT32, DataType.FLOAT16))
"""A layer of a language model on eight tokens."""

PARAMETERS = [pytest.param(name, marks=pytest.mark.xdist_group(f"compiled for {name}")) for name in radv.FAMILIES]


@pytest.fixture(scope="module", params=PARAMETERS)
def compiled(request: pytest.FixtureRequest) -> tuple[str, tuple[CompiledKernel, ...]]:
    """The driver of a family, and the kernels."""
    workloads = compiled_workloads([BenchSpec("families"), LARGE, INTEGERS, FEW_ROWS, *SHARED_HEADS, TOKENS], "quick")
    drivers, kernels = radv.compile_workloads(workloads, [request.param])
    return drivers[request.param], kernels


def test_every_kernel_compiles_without_spills(compiled: tuple[str, tuple[CompiledKernel, ...]]) -> None:
    _, kernels = compiled
    assert len(kernels) > 1000
    assert [(kernel.name, kernel.message) for kernel in kernels if kernel.status != "compiled"] == []
    assert [kernel.name for kernel in kernels if kernel.spills] == []


def test_registers_leave_room_for_waves(compiled: tuple[str, tuple[CompiledKernel, ...]]) -> None:
    _, kernels = compiled
    large = [kernel for kernel in kernels if kernel.statistics.get("vgprs", 0) > MAX_VGPRS]
    assert [kernel.name for kernel in large if (kernel.family, kernel.label) not in MORE_VGPRS] == []


def test_no_benchmark_row_became_worse(compiled: tuple[str, tuple[CompiledKernel, ...]]) -> None:
    driver, kernels = compiled
    family = kernels[0].family
    with TABLE.open(encoding="utf-8") as file:
        recorded = json.loads(file.readline())["drivers"][family]
    if driver != recorded:
        pytest.skip(f"the table is of {recorded}, and this machine has {driver}")
    before = [kernel for kernel in read_kernels(TABLE) if kernel.family == family]
    changes = compare_kernels(before, kernels)
    worse = [change for change in changes if change.before and change.kind is KernelChangeKind.WORSE]
    missing = [change for change in changes if change.kind is KernelChangeKind.MISSING]
    assert [(change.kernel.name, change.reasons) for change in (*worse, *missing)] == []


def test_large_products_multiply_most_of_the_time(compiled: tuple[str, tuple[CompiledKernel, ...]]) -> None:
    _, kernels = compiled
    products = [kernel for kernel in kernels if kernel.workload.startswith("GEMM m=4096")]
    assert len(products) == 2
    for kernel in products:
        assert kernel.multiply_add_share is not None
        assert kernel.multiply_add_share >= LARGE_SHARE[kernel.family], kernel.name


def test_predicted_times_use_compiled_kernels() -> None:
    rows = [BenchSpec("families:ACTIVATION_GELU,GEMM,MULTIHEAD_ATTENTION,LSTM")]
    predictions = list(predicting.predict(compiled_workloads(rows), find_card("RX 7900 XTX")))
    assert len(predictions) == 5
    assert {prediction.compiled for prediction in predictions} == {"compiled"}


def test_products_of_integers_take_an_instruction_for_four(compiled: tuple[str, tuple[CompiledKernel, ...]]) -> None:
    _, kernels = compiled
    (product,) = [kernel for kernel in kernels if kernel.workload.startswith("MATRIX_MULTIPLY_INTEGER ")]
    assert "packed" in product.label
    if product.family in INTEGER_SHARE:
        assert (product.multiply_add_share or 0) >= INTEGER_SHARE[product.family]
        assert product.statistics["loop_multiply_adds"] == 4 * 8 * 2 * 8


def test_kernels_of_few_rows_leave_registers_for_loads(compiled: tuple[str, tuple[CompiledKernel, ...]]) -> None:
    """Attention once took 168 to 252 registers of RDNA, for sums of 16 rows of which one was needed."""
    _, kernels = compiled
    names = ("MULTIHEAD_ATTENTION heads=8 queries=1 ", "attention of shared heads", "GEMM m=8 ")
    few = [kernel for kernel in kernels if kernel.workload.startswith(names)]
    streamed = [kernel for kernel in few if "attention in parts" in kernel.label or "gemm streamed" in kernel.label]
    assert len(streamed) == len({kernel.workload for kernel in few}) == 8
    for kernel in streamed:
        assert kernel.spills is False, kernel.name
        assert kernel.statistics["vgprs"] <= MAX_VGPRS, kernel.name


def _quantized_product(path: Path, rows: int, **attributes: str) -> BenchSpec:
    """A product of rows by 4,096 columns of 2,048 weights of 4 bits, in a model."""
    arrays = {"q": np.zeros((4096, 64, 16), np.uint8), "s": np.ones(4096 * 64, np.float32)}
    sizes = {"K": 2048, "N": 4096, "bits": 4, "block_size": 32}
    node = helper.make_node("MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", **sizes, **attributes)
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size])
        for name, size in (("x", 2048), ("y", 4096))
    )
    weights = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    file = path / f"{'_'.join([str(rows), *attributes.values()])}.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "product", [x], [y], weights), opset_imports=versions), file)
    return BenchSpec(str(file))


@pytest.mark.xdist_group("compiled for navi31")
@pytest.mark.parametrize(
    ("rows", "products"),
    [
        pytest.param(1, (128, 128), id="a word of 32 weights of 4 columns"),
        pytest.param(128, (512, 1024), id="16 steps, or 16 words of four, of a tile"),
    ],
)
def test_integer_activations_halve_the_instructions(tmp_path: Path, rows: int, products: tuple[int, int]) -> None:
    specs = [_quantized_product(tmp_path, rows, **more) for more in ({}, {"activations": "int8"})]
    _, kernels = radv.compile_workloads(compiled_workloads(specs), ["navi31"], listings=True)
    floats, integers = (kernel for kernel in kernels if "gemm" in kernel.label and "sum of parts" not in kernel.label)
    assert "v_dot4_i32_iu8" not in floats.listing and integers.listing.count("v_dot4_i32_iu8") >= products[1] // 4
    assert integers.statistics["vgprs"] <= MAX_VGPRS and not integers.spills
    of_floats, of_integers = (
        kernel.statistics["loop_instructions"] / count
        for kernel, count in zip((floats, integers), products, strict=True)
    )
    assert of_integers < 0.5 * of_floats


@pytest.mark.xdist_group("validated kernels")
@pytest.mark.skipif(bool(validators.missing_tools()), reason=f"needs {' '.join(validators.missing_tools())}")
def test_kernels_are_valid_in_all_languages() -> None:
    """A sixth of the quick cases, and all benchmark rows: `dmlgpu bench compiled --validate` takes them all."""
    workloads = (*compiled_workloads([BenchSpec("families")]), *compiled_workloads([], "quick")[::6])
    _, kernels = radv.compile_workloads(workloads, ["navi31"], validation=True)
    assert len(kernels) > 180
    assert {kernel.name: kernel.invalid for kernel in kernels if kernel.invalid} == {}
    for language, fewest in (("SPIR-V", 1.0), ("MSL", 0.98), ("HLSL", 0.75)):
        valid = [kernel for kernel in kernels if kernel.validation[language] == validators.VALID]
        assert len(valid) >= fewest * len(kernels), language
