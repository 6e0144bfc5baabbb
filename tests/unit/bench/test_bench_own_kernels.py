"""``dmlgpu bench my.wgsl`` and ``show my.wgsl``: options, rejections, expressions; what needs no GPU."""

import json

import numpy as np
import pytest

from dmlgpu.bench.ceilings import CachedCeilings, Ceilings, save_ceilings
from dmlgpu.bench.kernel_files import compiled_workloads_of, kernel_workload
from dmlgpu.bench.numpy_baseline import has_formula
from dmlgpu.bench.prepared_kernel import expected_results, kernel_arrays
from dmlgpu.bench.specs import KernelOptions, define_combinations, is_kernel_output
from dmlgpu.bench.worker import prepare
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.compiler import quirks
from dmlgpu.runtime import adapters
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.numpy import NUMPY_ADAPTER
from tests.unit.cli.cli_process import run_here

ADD = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&c)) { c[id.x] = a[id.x] + b[id.x]; }
}
"""
SCALE = """
struct Scale { count: u32, factor: f32 }
override tile: u32 = 64u;
@group(0) @binding(0) var<uniform> scale: Scale;
@group(0) @binding(3) var<uniform> shift: vec2<f32>;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<atomic<u32>>;
@compute @workgroup_size(tile) fn scaled(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < scale.count) { y[id.x] = x[id.x / 4][id.x % 4] * scale.factor + shift[id.x % 2]; }
}
@compute @workgroup_size(8, 4) fn summed() { atomicAdd(&sums[0], 1u); }
"""
TWO = """
override factor: f32;
@group(0) @binding(0) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(64) fn scaled(@builtin(global_invocation_id) id: vec3<u32>) { c[id.x] *= factor; }
@compute @workgroup_size(64) fn doubled(@builtin(global_invocation_id) id: vec3<u32>) { c[id.x] *= 2.0; }
"""
THREE = ("1K:float32", "1024:f32")


@pytest.fixture
def add(tmp_path):
    path = tmp_path / "my.wgsl"
    path.write_text(ADD)
    return path


@pytest.fixture
def scale(tmp_path):
    path = tmp_path / "scale.wgsl"
    path.write_text(SCALE)
    return path


def test_every_entry_point_is_compiled_unless_one_is_named(tmp_path):
    path = tmp_path / "two.wgsl"
    path.write_text(TWO)
    both = compiled_workloads_of(path, KernelOptions(defines=("factor=3",)))
    assert [(each.name, each.kernel.entry_point) for each in both] == [
        ("two.wgsl scaled factor=3", "scaled"),
        ("two.wgsl doubled factor=3", "doubled"),
    ]
    assert [each.kernel.constants for each in both] == [{"factor": 3.0}] * 2
    (named,) = compiled_workloads_of(path, KernelOptions(entry_point="doubled"))
    assert (named.name, named.kernel.entry_point) == ("two.wgsl doubled", "doubled")
    with pytest.raises(InvalidArgument, match=r"two\.wgsl: --entry-point must be .*\(scaled, doubled\), got 'halved'"):
        compiled_workloads_of(path, KernelOptions(entry_point="halved"))


def options(**changes):
    return KernelOptions(**{"inputs": THREE, "outputs": ("32x32:float32",), **changes})


def test_bindings_are_matched_in_order(add):
    workload = kernel_workload(add, options(references=("a + b",)))
    kernel = workload.kernel
    assert workload.name == "my.wgsl 1024:float32 1024:float32 -> 32x32:float32"
    assert [(buffer.name, buffer.is_output) for buffer in kernel.buffers] == [("a", False), ("b", False), ("c", True)]
    assert kernel.grid == (16, 1, 1)
    assert kernel.references == {"c": "a + b"}
    arrays = kernel_arrays(workload)
    assert np.array_equal(arrays["a"], kernel_arrays(workload)["a"]) and not np.array_equal(arrays["a"], arrays["b"])
    expected = expected_results(kernel, arrays)["c"]
    np.testing.assert_array_equal(expected, (arrays["a"] + arrays["b"]).reshape(32, 32))


def test_uniforms_files_overrides_and_several_outputs(scale, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32))
    workload = kernel_workload(
        scale,
        KernelOptions(
            (str(tmp_path / "x.npy"),),
            ("8", "1:uint32"),
            ("scale=8u,0.5f", "shift=1,2"),
            ("tile=32",),
            ("y=x * scale['f1'] + np.tile(shift, 4)", "sums = [0 for _ in range(1)]"),
            "2,1",
            "scaled",
        ),
    )
    kernel = workload.kernel
    assert kernel.grid == (2, 1, 1) and kernel.constants == {"tile": 32}
    assert kernel.uniforms["scale"].tobytes() == np.uint32(8).tobytes() + np.float32(0.5).tobytes()
    results = expected_results(kernel, kernel_arrays(workload))
    np.testing.assert_allclose(results["y"], np.arange(8) * 0.5 + np.tile([1, 2], 4))
    assert results["sums"].tolist() == [0] and results["sums"].dtype == np.uint32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": ("1M:float32",)}, r"reads 2 bindings \(a: .*\), got 1 --input; .* --input 1M:float32 --input 1M:"),
        ({"outputs": ()}, r"writes 1 bindings \(c: array<f32>\), got 0 --output; .* such as --output 1M:float32"),
        ({"outputs": ("many:float32",)}, r"--output must be SIZES:TYPE, .*, got 'many:float32'"),
        ({"outputs": ("1M:flot",)}, r"--output '1M:flot': the type must be one of .*float32"),
        ({"outputs": ("1M:int32",)}, r"c is array<f32>, which holds float32, not int32"),
        ({"outputs": ("64M:float32",)}, r"exceeds the 65,535 .*--grid 61681,17 "),
        ({"inputs": ("none.npy", "4")}, r"--input: there is no file 'none.npy'"),
        (
            {"grid": "0,1"},
            r"--grid must be one to three positive numbers, X,Y,Z, or .*, got '0,1'",
        ),
        ({"grid": "1,2,3,4"}, r"--grid must be .*, got '1,2,3,4'"),
        ({"defines": ("tile",)}, r"--define must be NAME=NUMBER, such as --define TILE=16, got 'tile'"),
        ({"defines": ("tile=4",)}, r"--define must be among the overrides of the source \(none\), got 'tile'"),
        ({"entry_point": "f"}, r"--entry-point must be one of the @compute functions .*\(main\), got 'f'"),
        ({"uniforms": ("n=4",)}, r"--uniform must be NAME=VALUES of a uniform of my.wgsl \(none\), got 'n=4'"),
        ({"references": ("a +",)}, r"--reference 'a \+' is no expression in Python"),
        ({"references": ("d=a",)}, r"--reference 'd=a': d is none of the outputs, c"),
        ({"references": ("a + d",)}, r"--reference 'a \+ d': d is no binding; there are np, a, b, c"),
    ],
)
def test_rejections(add, changes, message):
    with pytest.raises(InvalidArgument, match=message):
        kernel_workload(add, options(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, r"--grid X,Y,Z must be given, since the workgroup size of scaled depends on constants"),
        (
            {"grid": "1", "uniforms": ()},
            r"has the uniform scale: Scale; give --uniform scale=VALUES, such as 1024u,0.5f",
        ),
        ({"grid": "1", "uniforms": ("scale=8,1f",)}, r"scale takes numbers with the types of its fields.*, got '8'"),
        ({"grid": "1", "uniforms": ("shift=1,x",)}, r"shift takes numbers of vec2<f32>, got 'x'"),
        ({"grid": "1", "references": ("x",)}, r"writes y, sums: --reference must say which, such as .*y"),
        ({"entry_point": ""}, r"--entry-point must be one of .*\(scaled, summed\)"),
    ],
)
def test_rejections_of_uniforms_and_overrides(scale, changes, message):
    full = {"inputs": ("8",), "outputs": ("8", "1"), "uniforms": ("scale=8u,1f", "shift=1,2"), "entry_point": "scaled"}
    with pytest.raises(InvalidArgument, match=message):
        kernel_workload(scale, KernelOptions(**{**full, **changes}))


@pytest.mark.parametrize("text", ["a / c[0, 0, 0]", "a[:3]", "np.nothing"])
def test_expressions_that_fail_say_so(add, text):
    workload = kernel_workload(add, options(references=(text,)))
    with pytest.raises(InvalidArgument, match="--reference c="):
        expected_results(workload.kernel, kernel_arrays(workload))


def test_output_is_a_buffer_of_kernels_and_a_file_of_others():
    assert is_kernel_output(["my.wgsl"], "1M:float32") and is_kernel_output(["my.wgsl"], "y.npy")
    assert not is_kernel_output(["my.wgsl"], "r.jsonl") and not is_kernel_output(["GEMM"], "1M:float32")


def test_options_of_kernels_are_rejected_for_others(add):
    result = run_here("bench", "GEMM", "--reference", "a + b")
    assert result.returncode == 2 and "are for kernels in WGSL (FILE.wgsl), got 'GEMM'" in result.stderr
    result = run_here("bench", add, "-s", "m=4")
    assert result.returncode == 2 and "takes --input SIZES:TYPE and --output SIZES:TYPE in place of" in result.stderr
    result = run_here("bench", add.with_name("none.wgsl"))
    assert result.returncode == 2 and "there is no file" in result.stderr


def test_show_tells_declarations_without_a_gpu(scale):
    result = run_here("show", scale, "-a", "numpy")
    assert result.returncode == 0, result.stderr
    assert "summed, workgroups of 8 x 4" in result.stdout and "tile: u32 = 64u" in result.stdout
    assert "runs no shaders" in result.stdout
    shown = json.loads(run_here("show", scale, "-a", "numpy", "--json").stdout)
    assert [binding["name"] for binding in shown["bindings"]] == ["scale", "y", "x", "shift", "sums"]
    assert shown["entry_points"][0]["compiles"] is None


def test_show_rejects_options_of_operators(add):
    result = run_here("show", add, "--wgsl")
    assert result.returncode == 2 and "for a WGSL kernel, show takes only --adapter, --entry-point" in result.stderr


def test_the_option_numpy_measures_the_reference(add):
    workload = kernel_workload(add, options(references=("a + b",)))
    assert has_formula(workload) and not has_formula(kernel_workload(add, options()))
    prepared = prepare(Device(NUMPY_ADAPTER), workload, True, True)
    assert prepared.readiness.counts.bytes == 3 * 4096 and prepared.round(2).wall > 0
    result = run_here("bench", add, "--input", "4", "--input", "4", "--output", "4", "--numpy", "-a", "numpy")
    assert result.returncode == 2 and "--numpy needs --reference EXPRESSION" in result.stderr


FAULT = """
[[quirk]]
name = "lost-sums"
why = "sums are lost"
remedy = "install 2.0"
link = "a page"
wgsl = "fn main() {}"
before = [1]
after = [2]
features = ["subgroup"]
"""


def test_known_faults_of_the_driver_are_warned_of(monkeypatch):
    fault = quirks.read_quirks(FAULT, "a file")
    monkeypatch.setattr(quirks, "quirks", lambda: fault)
    monkeypatch.setattr(adapters, "announced", set())
    result = run_here("bench", "ELEMENT_WISE_ADD", "-s", "elements=4", "-a", "numpy", "--budget", "0")
    assert result.stderr.count("kernels of your own do not: install 2.0") == 1


@pytest.mark.slow
def test_results_of_kernels_are_written_and_compared(add, tmp_path, monkeypatch):
    """Without a GPU they are rejected with a message, which `bench compare` reads."""
    monkeypatch.setattr("dmlgpu.bench.ceilings.cache_folder", lambda: tmp_path / "cache")
    save_ceilings(NUMPY_ADAPTER, CachedCeilings(Ceilings(1e10, 1e10, 1e-6, 1e-6, "wall clock"), 0.0))
    words = ("bench", add, "--input", "4K", "--input", "4K", "--output", "4K", "-a", "numpy", "--budget", "0")
    for name in ("before.jsonl", "after.jsonl"):
        result = run_here(*words, "--output", tmp_path / name)
        assert result.returncode == 0 and "kernels in WGSL need a GPU adapter" in result.stdout, result.stderr
    assert run_here("bench", "compare", tmp_path / "before.jsonl", tmp_path / "after.jsonl").returncode == 0


def test_operations_come_from_an_expression_of_bindings(add):
    workload = kernel_workload(add, options(flops="2 * a.size + c.shape[0]"))
    assert workload.kernel.operations == 2 * 1024 + 32
    with pytest.raises(InvalidArgument, match=r"--flops 'm' fails: name 'm' is not defined; the names are np, a, b, c"):
        kernel_workload(add, options(flops="m"))
    with pytest.raises(InvalidArgument, match="must be a positive number of operations, got -1"):
        kernel_workload(add, options(flops="-1"))


def test_the_grid_may_depend_on_overrides(scale):
    more = {"inputs": ("64x4:f32",), "outputs": ("256:f32", "1:u32"), "uniforms": ("scale=256u,2f", "shift=1,2")}
    for tile, groups in ((64, 4), (48, 6)):
        chosen = KernelOptions(**more, defines=(f"tile={tile}",), grid="256/tile,2", entry_point="scaled")
        assert kernel_workload(scale, chosen).kernel.grid == (groups, 2, 1)
    for grid in ("tile/0", "-tile", "tile +"):
        with pytest.raises(InvalidArgument, match="or expressions of overrides, got"):
            kernel_workload(scale, KernelOptions(**more, defines=("tile=64",), grid=grid, entry_point="scaled"))


def test_every_combination_of_overrides_is_measured():
    combinations = define_combinations(["TILE=8,16", "DEEP=1", "ROWS=1, 2"])
    assert combinations[:2] == [("TILE=8", "DEEP=1", "ROWS=1"), ("TILE=8", "DEEP=1", "ROWS=2")]
    assert len(combinations) == 4 and define_combinations([]) == [()]
    with pytest.raises(InvalidArgument, match="1,024 combinations"):
        define_combinations([f"{name}=1,2" for name in "abcdefghij"])


def test_immediates_are_rejected_before_anything_is_measured(tmp_path):
    path = tmp_path / "immediate.wgsl"
    path.write_text(ADD_IMMEDIATE)
    with pytest.raises(InvalidArgument, match=r"'n' is in var<immediate>.*@group\(0\) @binding\(1\) var<uniform> n"):
        kernel_workload(path, KernelOptions(outputs=("64:float32",)))


ADD_IMMEDIATE = """
var<immediate> n: u32;
@group(0) @binding(0) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { c[id.x] = f32(n); }
"""
