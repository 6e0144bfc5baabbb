"""Statistics of compiled kernels: RADV's output, files, comparisons, the command line, and real compilation."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from dmlgpu.bench import radv
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.compiled import (
    CompiledKernel,
    KernelChangeKind,
    busiest_loop,
    compare_kernels,
    is_compiled_file,
    parse_statistics,
    read_kernels,
    write_kernels,
)
from dmlgpu.bench.workload import OwnKernel, Workload
from dmlgpu.common.errors import DmlError, ModelError, NotSupported
from tests.unit.cli.cli_process import run_here

SAMPLES = Path(__file__).parents[2] / "data" / "radv"
"""What RADV of Mesa 25.0.7 printed for addition of 4M elements and GEMM with m=1, k=n=4096. LLVM knew no gfx1201."""


def printed(name):
    return (SAMPLES / f"{name}.txt").read_text(encoding="utf-8")


def kernel(workload="gemm", number=0, label="shared", family="navi31", **statistics):
    return CompiledKernel(
        workload, number, label, family, statistics={"vgprs": 48, "instructions": 800, "spilled_vgprs": 0, **statistics}
    )


# ---- RADV's output


def test_statistics_of_a_kernel_without_loops():
    statistics, listing = parse_statistics(printed("add-navi31"), "navi31")
    assert listing.startswith("BB0:\n\tv_lshl_add_u32 v0, s6, 8, v0")
    assert listing.endswith("; bfb00000\n")
    assert statistics == {
        "vgprs": 24,
        "sgprs": 128,
        "waves": 16,  # 32, in units of 32 lanes
        "spilled_vgprs": 0,
        "spilled_sgprs": 0,
        "scratch_bytes": 0,
        "shared_bytes": 0,
        "code_bytes": 172,
        "instructions": 31,
        "valu": 10,
        "salu": 5,
        "vmem": 3,
        "smem": 3,
        "latency": 621,
        "lds": 0,
        "waits": 2,
        "barriers": 0,
        "loop_instructions": 0,
        "loop_multiply_adds": 0,
    }


def test_waves_of_vega_are_counted_in_64_lanes():
    statistics, _ = parse_statistics(printed("add-vega10"), "vega10")
    assert (statistics["waves"], statistics["sgprs"], statistics["vgprs"]) == (10, 32, 16)
    assert parse_statistics(printed("add-vega10"), "navi21")[0]["waves"] == 5


def test_statistics_of_a_kernel_with_a_loop():
    statistics, _ = parse_statistics(printed("gemm-one-row-navi31"), "navi31")
    # BB2 has 9 instructions, BB5 26, with 4 v_fmac_f32; waits: lgkmcnt and vmcnt in BB5, lgkmcnt in BB7.
    assert (statistics["loop_instructions"], statistics["loop_multiply_adds"]) == (9 + 26, 4)
    assert (statistics["waits"], statistics["instructions"]) == (3, 69)


def test_instructions_that_llvm_does_not_know_are_in_the_form_of_the_compiler():
    statistics, listing = parse_statistics(printed("gemm-one-row-gfx1201"), "gfx1201")
    assert listing.startswith("BB0\n/* logical preds: ")
    assert listing.endswith("\ts_endpgm\n")
    # BB2 has 10 instructions, BB5 29, with 4 v_fmac_f32; waits: kmcnt, loadcnt and kmcnt in BB5, kmcnt in BB7.
    assert (statistics["loop_instructions"], statistics["loop_multiply_adds"]) == (10 + 29, 4)
    assert statistics["waits"] == 4


def test_output_without_statistics_is_an_error():
    listing, _, _ = printed("add-navi31").partition("*** SHADER STATS ***")
    for text in ("", listing, "*** SHADER STATS ***\nVGPRs: 24\n"):
        with pytest.raises(ValueError, match="RADV printed no statistics"):
            parse_statistics(text, "navi31")


NESTED = """BB0:
\ts_mov_b32 s0, 0 ; be800080
BB1:
\tv_fma_f32 v0, v1, v2, v0 ; 00
\ts_nop 0 ; bf800000
\t(then repeated 6 times)
BB2:
\tv_dual_fmac_f32 v0, v1, v2 :: v_dual_fmac_f32 v3, v4, v5 ; 00
\tv_dual_fmac_f32 v6, v7, v8 :: v_dual_mov_b32 v9, v10 ; 00
\tv_pk_fma_f16 v0, v1, v2, v0 ; 00
\tv_dot4_i32_iu8 v0, v1, v2, v0 ; 00
\ts_cbranch_scc1 BB2 ; 00
BB3:
\tv_add_f32 v0, v1, v2 ; 00
\ts_branch BB1 ; 00
BB4:
\ts_endpgm ; bfb00000
"""


def test_the_busiest_loop_is_the_inner_one():
    # 5 instructions, two of them dual; fmac 3 times, pk_fma, dot4.
    assert busiest_loop(NESTED) == (7, 5)
    # Without its multiply-adds, the outer loop has more: v_fma in BB1; BB1 and BB3 have 4 instructions.
    plain = NESTED.replace("fmac", "add").replace("v_pk_fma", "v_pk_add").replace("v_dot4", "v_sad")
    assert busiest_loop(plain) == (4, 1)


def test_instructions_that_the_disassembler_does_not_know_count():
    unknown = NESTED.replace("\tv_pk_fma_f16 v0, v1, v2, v0 ; 00", "(invalid instruction)  ; 2c28351c")
    assert busiest_loop(unknown) == (7, 4)


def test_branches_forward_are_no_loops():
    assert busiest_loop("BB0:\n\ts_cbranch_scc1 BB1\n\tv_fma_f32 v0, v0, v0, v0\nBB1:\n\ts_endpgm\n") == (0, 0)


# ---- files


def test_kernels_survive_a_file(tmp_path):
    path = tmp_path / "kernels.jsonl"
    kernels = (
        replace(kernel(loop_instructions=709, loop_multiply_adds=256), listing="BB0:", wgsl="fn main() {}"),
        CompiledKernel("sorting", 0, "", "vega10", "failed", "the process ended with signal 11"),
    )
    write_kernels(path, {"navi31": "RADV"}, kernels)
    assert is_compiled_file(path)
    assert read_kernels(path) == kernels
    header, first, _ = map(json.loads, path.read_text().splitlines())
    assert header["drivers"] == {"navi31": "RADV"}
    assert "listing" not in first and "wgsl" not in first
    assert read_kernels(path)[0].multiply_add_share == pytest.approx(256 / 709)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"record": "bench"}\n', "line 1: was not written by `dmlgpu bench compiled -o`"),
        ('{"record": "compiled", "format": 2}\n', "line 1: format: must be 1, got 2"),
        ('{"record": "compiled", "format": 1}\n', "has no kernels of `dmlgpu bench compiled`"),
        ('{"record": "compiled", "format": 1}\n{"workload": "a"}\n', "line 2: is not a compiled kernel: 'number' is"),
        ('{"record": "compiled", "format": 1}\nnonsense\n', "line 2: is not a compiled kernel: "),
    ],
)
def test_malformed_files_name_the_line(tmp_path, text, message):
    path = tmp_path / "kernels.jsonl"
    path.write_text(text)
    with pytest.raises(ModelError) as caught:
        read_kernels(path)
    assert message in str(caught.value)


def test_other_files_hold_no_kernels(tmp_path):
    (tmp_path / "bench.jsonl").write_text('{"record": "bench"}\n')
    assert not is_compiled_file(tmp_path / "bench.jsonl")
    assert not is_compiled_file(tmp_path / "missing.jsonl")


# ---- comparison


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ({}, {"spilled_vgprs": 4}, ("spilled_vgprs 0 -> 4",)),
        ({"spilled_vgprs": 4}, {"spilled_vgprs": 4}, ()),
        ({}, {"scratch_bytes": 64}, ("scratch_bytes 0 -> 64",)),
        ({}, {"vgprs": 129}, ("more than 128 VGPRs",)),
        ({}, {"vgprs": 128}, ()),
        ({"vgprs": 160}, {"vgprs": 156}, ()),
        (
            {"loop_instructions": 100, "loop_multiply_adds": 60},
            {"loop_instructions": 100, "loop_multiply_adds": 58},
            ("multiply-add share 60 % -> 58 %",),
        ),
        (
            {"loop_instructions": 1000, "loop_multiply_adds": 600},
            {"loop_instructions": 1000, "loop_multiply_adds": 595},
            (),
        ),
        (
            {"loop_instructions": 100, "loop_multiply_adds": 60},
            {"loop_instructions": 0, "loop_multiply_adds": 0},
            ("multiply-add share 60 % -> 0 %",),
        ),
    ],
)
def test_a_kernel_is_worse_if_a_statistic_says_so(before, after, reasons):
    (change,) = compare_kernels([kernel(**before)], [kernel(**after)])
    assert change.reasons == reasons
    assert (change.kind is KernelChangeKind.WORSE) is bool(reasons)


def test_kinds_of_changes():
    failed = CompiledKernel("gemm", 0, "shared", "navi31", "failed", "signal 11")
    (change,) = compare_kernels([kernel()], [failed])
    assert (change.kind, change.reasons) == (KernelChangeKind.WORSE, ("does not compile",))
    (change,) = compare_kernels([failed], [failed])
    assert change.kind is KernelChangeKind.SAME
    (change,) = compare_kernels([kernel()], [kernel(instructions=400)])
    assert (change.kind, change.ratio) == (KernelChangeKind.CHANGED, 0.5)
    assert change.differences == {"instructions": (800, 400)}
    missing, new = compare_kernels([kernel()], [kernel(family="navi21")])
    assert (missing.kind, new.kind) == (KernelChangeKind.MISSING, KernelChangeKind.NEW)
    (change,) = compare_kernels([], [kernel(spilled_sgprs=1)])
    assert change.kind is KernelChangeKind.WORSE
    # The workload has two kernels less and another one.
    (change,) = compare_kernels([kernel(), kernel(number=1)], [kernel(label="register")])
    assert change.kind is KernelChangeKind.NEW


def test_bench_compare_takes_compiled_kernels(tmp_path):
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write_kernels(before, {}, [kernel(), kernel("add")])
    write_kernels(after, {}, [kernel(vgprs=156), kernel("add", instructions=200)])
    same = run_here("bench", "compare", before, before)
    assert (same.returncode, same.stdout) == (0, "2 same\n")
    worse = run_here("bench", "compare", before, after)
    assert worse.returncode == 1
    _, first, second, counts = worse.stdout.splitlines()
    assert first.split() == ["worse", "navi31", "1.00", "gemm:", "0", "shared", "more", "than", "128", "VGPRs"]
    assert second.endswith("instructions 800 -> 200")
    assert counts == "1 worse, 1 changed"
    record = json.loads(run_here("bench", "compare", before, after, "--json").stdout)
    assert record["worse"]
    assert record["changes"][1]["differences"] == {"instructions": [800, 200]}


# ---- missing parts


def test_everything_that_is_missing_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(radv, "machine_manifests", lambda: ())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    done = run_here("bench", "compiled", "GEMM", "--family", "navi31")
    assert done.returncode == 1
    assert done.stderr == (
        "dmlgpu: compiling for AMD GPUs needs RADV's manifest, radeon_icd.json, of Mesa's Vulkan drivers and a C"
        " compiler, gcc or cc; on Debian and Ubuntu: apt-get install mesa-vulkan-drivers gcc\n"
    )
    monkeypatch.setattr("sys.platform", "win32")
    assert radv.missing_parts() == ("Linux",)


@pytest.mark.parametrize(
    ("manifest", "is_missing"),
    [
        ('{"ICD": {"api_version": "1.4.305", "library_path": "x.so"}}', False),
        ('{"ICD": {"api_version": "1.3.230", "library_path": "x.so"}}', True),
        ('{"ICD": {}}', True),
        ("nonsense", True),
    ],
)
def test_older_drivers_are_rejected(tmp_path, monkeypatch, manifest, is_missing):
    path = tmp_path / "radeon_icd.json"
    path.write_text(manifest)
    monkeypatch.setattr(radv, "machine_manifests", lambda: (tmp_path / "radeon_icd.i686.json", path))
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/gcc")
    monkeypatch.setattr("sys.platform", "linux")
    assert radv.missing_parts() == ((f"Mesa 25 or newer, not the one of {path}",) if is_missing else ())


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'no room' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda name: str(compiler))
    with pytest.raises(DmlError, match=r"gcc cannot build .*radv_layer\.c: no room"):
        radv.build_layer()


def test_arguments_are_checked_before_anything_is_compiled():
    nothing = run_here("bench", "compiled")
    assert nothing.returncode == 2
    assert "give an operator, a case, a model, a kernel or a suite, or --profile" in nothing.stderr
    schedule = run_here("bench", "compiled", "GEMM", "--schedule", "best")
    assert schedule.returncode == 2
    assert "a schedule must be one of" in schedule.stderr
    others = run_here("show", "gemm", "--isa", "navi31", "--wgsl")
    assert others.returncode == 2
    assert "--isa can be combined with --shape, --entry-point and --define only" in others.stderr
    operator = run_here("show", "gemm", "--define", "TILE=8")
    assert operator.returncode == 2
    assert "--entry-point and --define are for kernels in WGSL" in operator.stderr


# ---- RADV itself

MISSING = radv.missing_parts()
needs_radv = pytest.mark.skipif(bool(MISSING), reason=f"compiling for AMD GPUs needs {' and '.join(MISSING)}")

FAMILIES = ("navi31", "vega10")


@pytest.mark.slow
@needs_radv
def test_addition_for_two_families(tmp_path):
    path, folder = tmp_path / "kernels.jsonl", tmp_path / "listing"
    words = ["ELEMENT_WISE_ADD", "-f", "navi31", "-f", "vega10"]
    done = run_here("bench", "compiled", *words, "-o", path, "--listing", folder)
    assert done.returncode == 0, done.stderr
    kernels = {kernel.family: kernel for kernel in read_kernels(path)}
    assert kernels.keys() == set(FAMILIES)
    for family, name in (("navi31", "buffer_load_b128"), ("vega10", "buffer_load_dwordx4")):
        assert 0 < kernels[family].statistics["vgprs"] <= 128
        assert kernels[family].statistics["vmem"] == 3  # two vectors are read, one is written
        (listing,) = folder.glob(f"*.{family}.s")
        assert listing.read_text().count(name) == 2
    (source,) = folder.glob("*.wgsl")
    assert "@compute" in source.read_text()
    assert "2 compiled, 0 spill registers" in done.stdout


@pytest.mark.slow
@needs_radv
def test_a_product_has_a_loop_of_multiply_adds():
    workloads = of_operator("GEMM", [{"m": 256, "n": 256, "k": 256}])
    drivers, (navi31, vega10) = radv.compile_workloads(workloads, FAMILIES)
    assert "RADV NAVI31" in drivers["navi31"]
    for kernel in (navi31, vega10):
        assert kernel.is_good
        assert kernel.multiply_add_share is not None and 0.1 < kernel.multiply_add_share < 1
        assert not kernel.listing


@pytest.mark.slow
@needs_radv
def test_kernels_that_do_not_compile_are_failures_and_others_go_on():
    def own(source):
        return Workload("own", "KERNEL", kernel=OwnKernel(source, "", {}, (), {}, (1, 1, 1)))

    good = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(64)\nfn main() {}"
    _, (bad, right, again) = radv.compile_workloads(
        [own(good.replace("{}", "{ x[0] = 1; x = 2; }")), own(good), own(good)], ["navi31"], listings=True
    )
    assert bad.status == "failed"
    assert "main does not compile" in bad.message
    assert right.statistics == again.statistics
    assert "s_endpgm" in right.listing
    assert right.wgsl == good


@pytest.mark.slow
@needs_radv
def test_an_unknown_family_is_an_error():
    done = run_here("bench", "compiled", "GEMM", "--family", "nonsense")
    assert done.returncode == 1
    assert done.stderr == (
        "dmlgpu: --family must be a GPU family that RADV knows, such as navi31, navi21, gfx1201, vega10, got"
        " 'nonsense'\n"
    )


@pytest.mark.slow
@needs_radv
def test_show_prints_the_instructions():
    done = run_here("show", "element_wise_add", "--isa", "navi31")
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.startswith("// ==== ELEMENT_WISE_ADD, its typical case ") and " VGPRs, " in first
    assert lines[0] == "BB0:"
    assert any("s_endpgm" in line for line in lines)


@needs_radv
def test_the_layer_is_built_once(tmp_path):
    with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(tmp_path)}):
        folder = radv.build_layer()
        library = folder / "libradv_layer.so"
        manifest = json.loads((folder / "radv_layer.json").read_text())
        assert manifest["layer"]["library_path"] == str(library)
        before = library.stat().st_mtime_ns
        assert radv.build_layer() == folder
        assert library.stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("module", ["bench", "show"])
def test_commands_load_no_driver(module):
    code = f"import sys, dmlgpu.cli.{module}; sys.exit('wgpu' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_compiling_without_radv_is_rejected(monkeypatch):
    monkeypatch.setattr(radv, "machine_manifests", lambda: ())
    with pytest.raises(NotSupported, match=r"radeon_icd\.json"):
        radv.environment_of("navi31")
