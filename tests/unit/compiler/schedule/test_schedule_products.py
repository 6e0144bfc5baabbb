"""The list of schedules of matrix products: which is taken, and the reasons against the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu import Graph, TensorDesc, descs
from dmlgpu.catalog.enums import DataType, MatrixTransform
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import operators
from dmlgpu.compiler.graph.compiler import CompiledGraph, compile_network
from dmlgpu.compiler.graph.resolve import resolve
from dmlgpu.compiler.persistent_parts import filled_parts
from dmlgpu.compiler.plan import Contract
from dmlgpu.compiler.schedule import schedule
from dmlgpu.compiler.schedule.gemm import PRODUCT_SCHEDULES, ProductProblem
from dmlgpu.compiler.schedule.registry import observed_choices, pick
from dmlgpu.compiler.schedule.steps.products import ScheduledFloatPanels
from dmlgpu.compiler.sizes.arithmetic import Recording
from dmlgpu.compiler.target import Matrices, Profile, Target, Tuned
from dmlgpu.ops import directml as functions
from tests.unit.compiler.schedule.test_schedule_quantized import CPU as INT64_CPU
from tests.unit.compiler.schedule.test_schedule_quantized import compiled

CPU, GPU = Target("CPU"), Target("GPU", Profile.DISCRETE)
F32, F16 = DataType.FLOAT32, DataType.FLOAT16


def gemm(rows: int, inner: int, columns: int, data_type: DataType = F32) -> descs.Gemm:
    a, b, output = (
        TensorDesc(data_type, (1, 1, *sizes)) for sizes in ((rows, inner), (inner, columns), (rows, columns))
    )
    return descs.Gemm(a_tensor=a, b_tensor=b, output_tensor=output)


def integers(rows: int, inner: int, columns: int) -> descs.MatrixMultiplyInteger:
    return descs.MatrixMultiplyInteger(
        a_tensor=TensorDesc(DataType.INT8, (1, 1, rows, inner)),
        b_tensor=TensorDesc(DataType.UINT8, (1, 1, inner, columns)),
        output_tensor=TensorDesc(DataType.INT32, (1, 1, rows, columns)),
    )


def outcomes(desc: descs.Gemm | descs.MatrixMultiplyInteger, target: Target) -> dict[str, str]:
    """Return what became of every schedule of a product."""
    with observed_choices() as choices:
        schedule(operators.lower(desc), target)
    (choice,) = (choice for choice in choices if choice.kind == "product")
    return {tried.name: str(tried) for tried in choice.tried}


def taken(desc: descs.Gemm | descs.MatrixMultiplyInteger, target: Target) -> str:
    """Return the name of the schedule of a product."""
    (name,) = (name for name, text in outcomes(desc, target).items() if text.startswith("taken: "))
    return name


def test_every_schedule_has_a_reason() -> None:
    texts = outcomes(gemm(1024, 1024, 1024), GPU)
    assert texts == {
        "panels": "for CPU adapters",
        "columns": "for CPU adapters",
        "lanes": "does not fit: its columns are not quantized in blocks",
        "dequantized": "for CPU adapters",
        "cooperative": "does not fit: the adapter has no usable matrix units for its numbers",
        "float-panels": "for CPU adapters",
        "small": "does not pay: 1,073,741,824 multiplications, at most 65,536",
        "small-split": "does not pay: 1,073,741,824 multiplications, at most 65,536",
        "streamed": "does not pay: 1,024 rows, at most 16",
        "streamed-split": "does not pay: 1,024 rows, at most 16",
        "packed": "does not fit: its operands are not 8-bit integers",
        "packed-split": "does not fit: its operands are not 8-bit integers",
        "shared": "taken: tiles in workgroup memory",
        "shared-split": "does not pay: shared 4x2 is faster",
        "register": "does not pay: shared 4x2 is faster",
        "register-split": "does not pay: shared 4x2 is faster",
    }


@pytest.mark.parametrize(
    ("desc", "target", "name"),
    [
        (gemm(8, 8, 8), CPU, "small"),
        (gemm(64, 512, 512), CPU, "register"),
        (gemm(16, 100_000, 16), CPU, "register-split"),
        (gemm(4, 4096, 8192), GPU, "streamed"),
        (gemm(300, 70, 3), GPU, "small"),
        (gemm(30_000, 70, 3), GPU, "register"),
        (gemm(48, 100_000, 48), GPU, "shared-split"),
        (integers(256, 256, 256), GPU, "packed"),
        (integers(256, 256, 256), replace(GPU, multiplies_words=False), "shared"),
        (gemm(256, 256, 256, F16), replace(GPU, matrices=Matrices()), "cooperative"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_schedules_of_products(desc: descs.Gemm | descs.MatrixMultiplyInteger, target: Target, name: str) -> None:
    assert taken(desc, target) == name


def test_without_words_of_integers_packed_products_do_not_fit() -> None:
    target = replace(GPU, multiplies_words=False)
    reason = "does not fit: the adapter multiplies no words of four integers"
    assert outcomes(integers(256, 256, 256), target)["packed"] == reason
    with pytest.raises(InvalidArgument, match="multiplies no words"):
        schedule(operators.lower(integers(256, 256, 256)), target.with_overrides(schedule="packed"))


def test_schedules_that_are_switched_off_leave_others() -> None:
    for excluded, name in (
        ({"product/shared"}, "register-split"),
        ({"product/shared-split"}, "shared"),
        ({"product/shared", "product/register-split"}, "register"),
    ):
        target = GPU.with_overrides(excluded=frozenset(excluded))
        assert taken(gemm(48, 100_000, 48), target) == name


def test_a_tuned_choice_is_taken() -> None:
    question = "product 1x1024x1024x1024"
    tuned = GPU.with_overrides(tuned=Tuned.of({question: "register 8x2"}))
    texts = outcomes(gemm(1024, 1024, 1024), tuned)
    assert texts["register"].startswith("taken") and texts["shared"] == "does not pay: register 8x2 is faster"


def test_quantized_products_obey_a_requested_schedule() -> None:
    for target, name in ((CPU, "register"), (GPU, "shared"), (GPU, "product/register")):
        (*_, kernel) = compiled(target.with_overrides(schedule=name)).schedule.steps
        assert kernel.label.endswith(name.removeprefix("product/"))  # type: ignore[union-attr]
    with pytest.raises(InvalidArgument, match=r"product/dequantized' cannot compute .* 1 rows, at least 17"):
        compiled(CPU.with_overrides(schedule="dequantized"))
    dequantized, *_, product = compiled(CPU.with_overrides(schedule="dequantized"), 64).schedule.steps
    assert dequantized.kind == "dequantize" and product.kind == "contract"  # type: ignore[union-attr]


@pytest.mark.parametrize("target", [CPU, GPU, replace(GPU, matrices=Matrices())])
def test_the_list_adds_one_guard_on_symbolic_sizes(target: Target) -> None:
    recording = Recording([48])
    with recording.active(), observed_choices():
        (step,) = operators.lower(gemm(recording.symbols[0], 256, 128)).steps
        assert isinstance(step, Contract)
        problem = ProductProblem(step, target)
        assert problem.shape.columns == 128
        before = len(recording.guards)
        assert pick(PRODUCT_SCHEDULES, problem) is not None
        assert len(recording.guards) <= before + 1 + (target.matrices is not None)


def product_of_owned_columns(rows: int, inner: int, columns: int, *, transposed: bool = False) -> CompiledGraph:
    """Return a compiled product on a CPU adapter, by floats that are known at initialization."""
    graph = Graph()
    b = graph.input((columns, inner) if transposed else (inner, columns), owned=True)
    transform = MatrixTransform.TRANSPOSE if transposed else MatrixTransform.NONE
    output = functions.gemm(graph.input((rows, inner)), b, trans_b=transform)
    return compile_network(resolve(graph.desc([output])), INT64_CPU)


@pytest.mark.parametrize("sizes", [pytest.param((352, 192), id="rows of memory"), (1024, 64)])
@pytest.mark.parametrize("transposed", [False, True])
def test_few_and_many_rows_share_columns_in_panels(sizes: tuple[int, int], transposed: bool) -> None:
    """Else the weights of a language model would be in memory twice, for prompts and for tokens."""
    layouts, are_panels = [], []
    for rows in (1, 16, 17, 128, 1024):
        product = product_of_owned_columns(rows, *sizes, transposed=transposed)
        (filled,) = filled_parts(product.program)
        layouts.append(filled.key(product.program, ["columns", "rows"]))
        are_panels.append(isinstance(product.schedule.steps[0], ScheduledFloatPanels))
    assert len(set(layouts)) == 1 and {part.size for part in filled.parts} == {4 * sizes[0] * sizes[1]}
    assert are_panels == [True, True, False, False, False]


@pytest.mark.parametrize(("columns", "transposed", "fits"), [(576, True, True), (580, False, True), (580, True, False)])
def test_tables_of_embeddings_have_whole_panels(columns: int, transposed: bool, fits: bool) -> None:
    (step,) = product_of_owned_columns(1, 128, columns, transposed=transposed).schedule.steps
    assert isinstance(step, ScheduledFloatPanels) is fits


def test_few_columns_that_stay_in_a_cache_have_no_panels() -> None:
    steps = product_of_owned_columns(1, 512, 64).schedule.steps
    assert not any(isinstance(step, ScheduledFloatPanels) for step in steps)
