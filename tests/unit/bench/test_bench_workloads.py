"""From words to workloads: sizes, rows, maps, cases, suites; what they move and compute."""

import numpy as np
import pytest

from dmlgpu import catalog as schema
from dmlgpu.bench.choosing import is_map, of_case, of_operator, schedules_of, size_names
from dmlgpu.bench.counting import count
from dmlgpu.bench.specs import (
    BenchSpec,
    combinations,
    parse_sizes,
    parse_types,
    read_suite,
    sizes_text,
    suite_file,
    suite_names,
)
from dmlgpu.bench.workload import Contents, byte_count, fill
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.cli.subjects import find_workloads
from dmlgpu.common.errors import InvalidArgument, ModelError
from dmlgpu.compiler.explain import check, explain_graph, explain_operator
from dmlgpu.compiler.target import Profile, Target
from dmlgpu.conformance.samples import LAYOUTS, SAMPLES, folded, laid_out
from tests.unit import graph_examples

TARGET = Target("GPU", Profile.DISCRETE)
FLOAT = DataType.FLOAT32


def test_sizes_are_ranges_lists_and_ties():
    ranges = parse_sizes(["m=64..512", "k=n=3,5", "elements=4M"])
    assert ranges == [(("m",), (64, 128, 256, 512)), (("k", "n"), (3, 5)), (("elements",), (1 << 22,))]
    sizes = combinations(ranges)
    assert len(sizes) == 8
    assert sizes[:2] == [
        {"m": 64, "k": 3, "n": 3, "elements": 1 << 22},
        {"m": 64, "k": 5, "n": 5, "elements": 1 << 22},
    ]
    assert combinations([]) == [{}]
    assert sizes_text({"m": 1000, "elements": 3 << 20}) == "m=1000 elements=3M"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("64", "must be NAME=NUMBERS"),
        ("m=", "got '' in 'm='"),
        ("m=0", "from 1 on"),
        ("m=-4", "from 1 on"),
        ("m=4..2", "must begin with the smaller"),
        ("m=1e3", "from 1 on"),
        ("m=m=3", "'m' is given twice"),
        ("m=9999999999G", "from 1 on"),
    ],
)
def test_malformed_sizes_are_rejected(text, said):
    with pytest.raises(InvalidArgument, match=said):
        parse_sizes([text])


def test_too_many_combinations_are_rejected():
    with pytest.raises(InvalidArgument, match="1,024 combinations"):
        combinations(parse_sizes(["m=1..16K,1", "k=1..16K,1", "n=1..8"]))


def test_types_are_named():
    assert parse_types(["float16,float32", "float16"]) == (DataType.FLOAT16, FLOAT)
    with pytest.raises(InvalidArgument, match="got 'float8'"):
        parse_types(["float8"])


@pytest.mark.parametrize("operator", SAMPLES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_row_is_a_valid_description_in_every_layout(operator, layout):
    (workload,) = of_operator(operator, layouts=[layout])
    check(workload.desc)


def test_every_operator_can_be_measured():
    for operator in schema.catalog():
        workloads = of_operator(operator)
        assert workloads[0].operator == operator
        assert bool(workloads[0].sizes) == bool(size_names(operator))


def test_layouts_are_strides():
    assert laid_out((2, 3, 4), "packed") is None
    assert laid_out((2, 3, 4), "strided") == (24, 8, 2)
    assert laid_out((2, 3, 4), "padded") == (24, 8, 1)
    assert laid_out((2, 3, 4), "transposed") == (12, 1, 3)
    assert laid_out((2, 3, 4, 5), "channels-last") == (60, 1, 15, 3)
    with pytest.raises(InvalidArgument, match="must be one of packed"):
        laid_out((2, 3), "sideways")


def test_two_sizes_make_up_a_number():
    assert folded(1 << 22) == (2048, 2048)
    assert folded(12) == (3, 4)
    assert folded(7) == (7, 1)


def test_sizes_types_and_layouts_that_are_not_the_operators_are_rejected():
    with pytest.raises(InvalidArgument, match="GEMM has no size 'rows'; its sizes are batch, m, k, n"):
        of_operator("GEMM", [{"rows": 3}])
    with pytest.raises(InvalidArgument, match="ELEMENT_WISE_IS_NAN has no type int8; there are float32, float16"):
        of_operator("ELEMENT_WISE_IS_NAN", types=[DataType.INT8])
    with pytest.raises(InvalidArgument, match="RNN is measured on a conformance case"):
        of_operator("RNN", [{"batch": 3}])


def test_maps_are_known_by_their_tensors():
    assert is_map("ELEMENT_WISE_ADD")
    assert is_map("ACTIVATION_GELU")
    assert not is_map("ACTIVATION_SOFTMAX1")
    assert not is_map("GEMM")
    assert not is_map("RESAMPLE")


def test_a_map_is_checked_by_a_smaller_case_of_the_same_attributes():
    (workload,) = of_operator("ELEMENT_WISE_CLIP", [{"elements": 1 << 16}])
    small = of_case(workload.case)
    assert small.desc.outputs[0].tensor.sizes == (4096,)
    assert small.desc.replace(input_tensor=None, output_tensor=None) == workload.desc.replace(
        input_tensor=None, output_tensor=None
    )


def test_contents_match_descriptions():
    rng = np.random.default_rng(1)
    indices = fill(rng, TensorDesc(DataType.UINT32, (64, 3)), Contents(below=64, distinct=True))
    assert all(len(set(column)) == 64 for column in indices.T)
    assert fill(rng, TensorDesc(DataType.UINT32, (1000,)), Contents(below=5)).max() == 4
    assert set(fill(rng, TensorDesc(FLOAT, (3,)), Contents(constant=0.5))) == {0.5}


def test_the_same_workload_has_the_same_inputs():
    first, second = (of_operator("GEMM", [{"m": 4, "k": 4, "n": 4}])[0].inputs() for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first[:2], second[:2], strict=True))


def test_bytes_count_each_element_in_memory_once():
    assert byte_count([TensorDesc(FLOAT, (4, 5), (0, 1)), None, TensorDesc(DataType.INT4, (8,))]) == 20 + 4


def test_a_product_counts_two_operations_for_each_multiplication():
    (workload,) = of_operator("GEMM", [{"m": 8, "k": 16, "n": 4}])
    counts = count(workload.desc, explain_operator("x", workload.desc, TARGET))
    assert counts.bytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert counts.operations == counts.plan_operations == 2 * 8 * 16 * 4
    assert counts.plan_bytes >= counts.bytes


def test_a_convolution_counts_its_window():
    sizes = {"channels": 8, "filters": 4, "height": 5, "width": 5, "groups": 2}
    (workload,) = of_operator("CONVOLUTION", [sizes])
    assert count(workload.desc).operations == 2 * (4 * 5 * 5) * (8 // 2 * 3 * 3)


def test_a_gather_counts_only_the_picked_elements():
    (workload,) = of_operator("GATHER", [{"rows": 1000, "columns": 8, "picked": 4}])
    assert count(workload.desc).bytes == 2 * 4 * 4 * 8 + 4 * 4
    assert count(workload.desc).operations == 4 * 8


def test_a_graph_counts_the_bytes_that_fusion_saves():
    graph = graph_examples.chain(graph_examples.relu(), graph_examples.relu(), graph_examples.relu())
    counts = count(graph, explain_graph("x", graph, TARGET))
    assert counts.plan_bytes < counts.unfused_bytes
    assert counts.bytes <= counts.plan_bytes


@pytest.mark.slow
def test_schedules_are_those_that_make_other_kernels():
    (product,) = of_operator("GEMM", [{"m": 64, "k": 64, "n": 64}])
    names = schedules_of(product, TARGET)
    assert names[0] == ""
    assert {"small", "register"} & set(names)
    (addition,) = of_operator("ELEMENT_WISE_ADD", [{"elements": 64}])
    assert schedules_of(addition, TARGET) == ("", "runs", "strided")


# ---- words and suites


def test_words_are_operators_cases_and_suites():
    specs = [BenchSpec("gemm", ({"m": 4},)), BenchSpec("gather_nd1-float32-uint32-2x3-packed-s0"), BenchSpec("quick")]
    names = [workload.workload.name for workload in find_workloads(specs)]
    assert names[0] == "GEMM m=4 k=1024 n=1024 float32"
    assert names[1] == "gather_nd1-float32-uint32-2x3-packed-s0"
    assert names[2].startswith("GEMM m=128")


def test_unknown_names_are_rejected_with_the_known_ones():
    with pytest.raises(InvalidArgument, match=r"similar names: GEMM.*; bench takes a case .* or a suite"):
        find_workloads([BenchSpec("gemn")])
    with pytest.raises(InvalidArgument, match="has fixed sizes"):
        find_workloads([BenchSpec("gather_nd1-float32-uint32-2x3-packed-s0", ({"m": 3},))])


@pytest.mark.parametrize("name", suite_names())
def test_own_suites_hold_workloads(name):
    assert find_workloads([BenchSpec(name)])
    assert all(row.what for row in read_suite(suite_file(name)))


def test_rows_of_a_suite_may_have_names_and_more(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[[row]]\nwhat = "GEMM"\nname = "product"\nsizes = "m=k=n=4,8"\ntypes = ["float16"]\npeer = "x"\n',
        encoding="utf-8",
    )
    (row,) = read_suite(path)
    assert (row.types, row.more) == ((DataType.FLOAT16,), {"peer": "x"})
    names = [workload.workload.name for workload in find_workloads([BenchSpec(str(path))])]
    assert names == [f"product: GEMM m={size} k={size} n={size} float16" for size in (4, 8)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "is not TOML"),
        ("x = 1", r"must have rows: \[\[row\]\]"),
        ("[[row]]\nname = 'x'", "row 1: must have 'what'"),
        ("[[row]]\nwhat = 'GEMM'\nsizes = 3", "row 1: sizes: must be a string or a list of strings"),
        ("[[row]]\nwhat = 'GEMM'\nsizes = ['m=0']", "row 1: a size must be a number"),
    ],
)
def test_a_malformed_suite_says_which_row_is_wrong(tmp_path, text, said):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=said):
        read_suite(path)


def test_caches_are_named_and_not_for_models(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[[row]]\nwhat = "GEMM"\nname = "product"\nsizes = "m=k=n=4"\n', encoding="utf-8")
    (subject,) = find_workloads([BenchSpec(str(path), cache="cold")])
    assert (subject.workload.name, subject.workload.cache) == ("product, cold caches", "cold")
    model = tmp_path / "model.onnx"
    model.write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"--cache applies to operators, graphs and kernels, got '.*model.onnx'"):
        find_workloads([BenchSpec(str(model), cache="warm")])
