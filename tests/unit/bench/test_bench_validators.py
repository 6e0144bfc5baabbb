"""Validation of SPIR-V and of its translations: capabilities, limits of the tools, messages, the command line."""

import json
import shutil
import struct
import subprocess
from types import SimpleNamespace

import pytest

from dmlgpu.bench import radv, validators
from dmlgpu.bench.compiled import CompiledKernel, read_kernels, write_kernels
from dmlgpu.bench.validators import capabilities_of, missing_tools, summary, validate
from dmlgpu.cli.bench import print_kernels
from tests.unit.cli.cli_process import run_here

HEADER = (0x07230203, 0x00010600, 0, 8, 0)
SHADER, FLOAT64, INT64, GROUPS, DOT_PRODUCT = 1, 10, 11, 61, 6019
"""Numbers of capabilities, from the specification."""


def module(*capabilities, rest=((3 << 16 | 14), 0, 1)):
    """A module up to its memory model."""
    words = [word for capability in capabilities for word in (2 << 16 | 17, capability)]
    return struct.pack(f"<{len(words) + len(rest) + 5}I", *HEADER, *words, *rest)


def test_capabilities_of_a_module():
    assert capabilities_of(module(SHADER, INT64)) == {SHADER, INT64}
    assert capabilities_of(module()) == set()
    assert capabilities_of(module(SHADER, rest=())) == {SHADER}


@pytest.mark.parametrize("text", [b"", b"@compute fn main() {}" * 2, module(SHADER)[:19]])
def test_other_files_are_rejected(text):
    with pytest.raises(ValueError, match="not a SPIR-V module"):
        capabilities_of(text)


def test_a_tool_that_is_missing_is_named_by_its_package(monkeypatch):
    installed = {"spirv-val": "/usr/bin/spirv-val"}
    monkeypatch.setattr(shutil, "which", installed.get)
    assert missing_tools() == ("spirv-cross", "glslang-tools")
    done = run_here("bench", "compiled", "GEMM", "--validate")
    assert done.returncode == 1
    assert done.stderr == (
        "dmlgpu: validating kernels needs spirv-cross glslang-tools;"
        " on Debian and Ubuntu: apt-get install spirv-cross glslang-tools\n"
    )


def run_as(results):
    """A replacement of subprocess.run that returns exit codes, output and errors by program."""

    def run(command, **options):
        code, output, errors = results[command[0]]
        return SimpleNamespace(returncode=code, stdout=output, stderr=errors)

    return run


def test_messages_of_all_tools_are_reported(monkeypatch):
    outputs = {
        "spirv-val": (1, b"", b"error: line 3: type does not match\n  OpStore %1 %2\n"),
        "spirv-cross": (0, b"void main() {}", b""),
        "glslangValidator": (2, b"stdin\nERROR: 0:9: 'declaration' : Expected \n", b""),
    }
    monkeypatch.setattr(subprocess, "run", run_as(outputs))
    assert validate(module(SHADER)) == {
        "SPIR-V": "invalid: spirv-val: error: line 3: type does not match",
        "MSL": "valid",
        "HLSL": "invalid: glslangValidator: ERROR: 0:9: 'declaration' : Expected",
    }
    outputs["spirv-cross"] = (-11, b"", b"")
    assert validate(module(SHADER))["MSL"] == "invalid: spirv-cross: exit code -11"


def test_untranslatable_modules_are_skipped(monkeypatch):
    monkeypatch.setattr(subprocess, "run", run_as(dict.fromkeys(("spirv-val", "spirv-cross"), (0, b"", b""))))
    assert validate(module(SHADER, FLOAT64)) == {
        "SPIR-V": "valid",
        "MSL": "skipped: Metal has no 64-bit floats",
        "HLSL": "skipped: glslang has no 64-bit numbers in HLSL",
    }
    assert validate(module(SHADER, GROUPS))["HLSL"] == "skipped: spirv-cross has no subgroup_id in HLSL"
    assert validate(module(SHADER, DOT_PRODUCT))["MSL"] == "skipped: spirv-cross has no dot products of integers"


def test_a_summary_counts_results_by_language():
    results = [{"MSL": "valid"}, {"MSL": "valid"}, {"MSL": "skipped: why"}, {"MSL": "invalid: x"}, {}]
    assert summary(results) == ["MSL: 2 valid, 1 skipped: why, 1 invalid"]
    assert summary([{}]) == []


def test_invalid_kernels_are_printed_and_written(tmp_path, capsys):
    statistics = dict.fromkeys(("vgprs", "waves", "shared_bytes", "code_bytes", "instructions"), 8)
    statistics |= dict.fromkeys(("valu", "vmem", "lds", "loop_instructions"), 0)
    validation = {"SPIR-V": "valid", "MSL": "invalid: spirv-cross: cannot resolve"}
    kernel = CompiledKernel("gemm", 0, "shared", "navi31", statistics=statistics, validation=validation)
    assert not kernel.is_good
    print_kernels([kernel])
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "gemm: 0 shared: invalid MSL: spirv-cross: cannot resolve",
        "1 compiled, 0 spill registers",
        "SPIR-V: 1 valid",
        "MSL: 1 invalid",
    ]
    path = tmp_path / "kernels.jsonl"
    write_kernels(path, {}, [kernel])
    assert json.loads(path.read_text().splitlines()[1])["validation"] == validation
    (read,) = read_kernels(path)
    assert read.validation == validation


# ---- the tools themselves

MISSING = missing_tools()
needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"validating SPIR-V needs {' '.join(MISSING)}")
PARTS = radv.missing_parts()
needs_radv = pytest.mark.skipif(bool(PARTS), reason=f"compiling for AMD GPUs needs {' and '.join(PARTS)}")

GLSL = """#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Data { uint data[]; };
void main() { data[gl_GlobalInvocationID.x] += 2u; }
"""


@pytest.fixture(scope="module")
def spirv(tmp_path_factory):
    path = tmp_path_factory.mktemp("spirv") / "kernel.spv"
    command = ["glslangValidator", "-V", "--stdin", "-S", "comp", "-o", str(path)]
    subprocess.run(command, input=GLSL.encode(), check=True, capture_output=True)
    return path.read_bytes()


@needs_tools
def test_a_module_that_follows_the_rules_is_valid(spirv):
    assert validate(spirv) == {"SPIR-V": "valid", "MSL": "valid", "HLSL": "valid"}


@needs_tools
def test_a_module_that_breaks_a_rule_is_invalid(spirv):
    broken = spirv.replace(struct.pack("<II", 2 << 16 | 17, SHADER), struct.pack("<II", 2 << 16 | 17, GROUPS))
    assert validate(broken)["SPIR-V"].startswith("invalid: spirv-val: error: ")
    assert validate(spirv[:-4])["SPIR-V"].startswith("invalid: spirv-val: error: ")


ALIASES = """
alias first = array<u32, 2>;
alias second = array<u32, 2>;
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
fn total(pair: first) -> u32 { return pair[0] + pair[1]; }
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
    var pair: second;
    pair[at.x & 1u] = at.x;
    data[at.x] = total(pair);
}
"""


@pytest.mark.slow
@needs_tools
@needs_radv
def test_two_names_of_an_array_type_are_invalid_spirv(tmp_path):
    """A defect of naga: if it is fixed, ``names.Names.resolved`` need not replace array types."""
    kernels, output = tmp_path / "kernel.wgsl", tmp_path / "kernels.jsonl"
    results = []
    for text in (ALIASES, ALIASES.replace("second", "first").replace("alias first = array<u32, 2>;\n", "", 1)):
        kernels.write_text(text)
        done = run_here("bench", "compiled", kernels, "-f", "navi31", "--validate", "-o", output)
        results.append((done.returncode, read_kernels(output)[0].validation["SPIR-V"]))
    assert results[0][0] == 1 and "type does not match Function" in results[0][1]
    assert results[1] == (0, validators.VALID)
