"""The numbers and the picture of docs/index.md are those of the pages it links to, and of the compiler."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import dmlgpu
from dmlgpu import Tensor, ops
from dmlgpu.catalog import catalog
from dmlgpu.compiler.explain import explain_graph
from dmlgpu.compiler.target import Profile, Target

DOCS = Path(__file__).parents[2] / "docs"
INDEX = re.sub(r"\s+", " ", (DOCS / "index.md").read_text(encoding="utf-8"))
ADAPTERS = {
    "NVIDIA H100 80GB HBM3 (Vulkan": "NVIDIA H100, [driver 580.159](devices.md#nvidia)",
    "llvmpipe (Vulkan": "lavapipe (llvmpipe, on the CPU)",
    "llvmpipe (OpenGL": "llvmpipe (on the CPU)",
    "llvmpipe (Dawn Vulkan": "lavapipe, by Dawn",
    "numpy (NumPy": "the NumPy reference, `numpy`",
    "SwiftShader Device (Vulkan": "SwiftShader (on the CPU)",
    "SwiftShader Device (Dawn Vulkan": "SwiftShader, by Dawn",
    "google swiftshader (Browser": "phones and computers with a browser",
}
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def rows(page: str, beginning: str = "| ") -> list[list[str]]:
    """The cells of the lines of tables that begin so."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith(beginning)]


def default_runs() -> list[dict[str, str]]:
    """The runs of the default suite in the conformance table, by heading."""
    table = rows("conformance-table.md")
    heading = next(row for row in table if row[0] == "adapter" and "suite" in row)
    runs = [dict(zip(heading, row, strict=True)) for row in table if len(row) == len(heading)]
    return [run for run in runs if run["suite"].startswith("dmlgpu, ")]


def test_cases_passed_are_those_of_the_conformance_table() -> None:
    runs = default_runs()
    assert runs
    for run in runs:
        name = next(name for beginning, name in ADAPTERS.items() if run["adapter"].startswith(beginning))
        (row,) = (row for row in rows("index.md") if row[0] == name)
        assert row[2].startswith(f"[{run['pass']} of {run['cases']}](conformance-table.md)")
        assert int(run["pass"]) + int(run["not supported"]) + int(run.get("expected fail", 0)) == int(run["cases"])


def test_totals_are_those_of_the_conformance_table() -> None:
    runs = default_runs()
    cases, passed, unsupported = (sum(int(run[name]) for run in runs) for name in ("cases", "pass", "not supported"))
    text = f"conformance cases passed in {WORDS[len(runs)]} runs, {unsupported:,} were not supported"
    assert f"**{passed:,} of {cases:,}** {text}" in INDEX


def test_models_are_those_that_ran() -> None:
    models = [row for row in rows("onnx-models.md") if len(row) == 6 and row[3].isdigit()]
    differences = [float(row[5]) for row in models if re.match(r"[\d.]+e", row[5])]
    near = sum(difference <= 0.001 for difference in differences)
    packages = len({row[0] for row in models})
    assert f"**{len(differences)} of {len(models)}** ONNX models of {packages} packages run. {near} agree" in INDEX
    assert len(differences) - near == int(re.findall(r"magnitude, (\d+) quantized", INDEX)[0])
    assert max(differences) <= 0.07


def test_functions_are_as_accurate() -> None:
    bounds = {row[0].strip("`"): float(row[1]) for row in rows("accuracy.md", "| `") if len(row) == 4}
    assert bounds.pop("pow_f32") == bounds.pop("tan_f32") == 4
    assert max(bounds.values()) == 2
    assert "**2 ULP** is the bound of functions of one argument in float32, on every driver (pow and tan: 4" in INDEX


def test_faults_are_caught() -> None:
    page = (DOCS / "mutants.md").read_text(encoding="utf-8")
    mutants, caught = re.findall(r"Of ([\d,]+) mutants .*?\s([\d,]+):? ", page.replace("**", ""), re.DOTALL)[0]
    share = int(caught.replace(",", "")) / int(mutants.replace(",", ""))
    assert f"**{share:.1%}".replace("%", " %") + f"** of {int(mutants.replace(',', '')):,} faults" in INDEX


def test_ceilings_are_reached() -> None:
    (product,) = rows("speed.md", "| GEMM m=1024 k=1024 n=1024 float32 ")
    (addition,) = rows("speed.md", "| ELEMENT_WISE_ADD elements=4M float32 ")
    shares = re.findall(r"\*\*(\d+ %)\*\* of the multiply-add rate .* matrices, (\d+ %) of its copy rate", INDEX)
    assert shares[0][0] + " of the multiply-add rate" in product
    assert shares[0][1] + " of the copy rate" in addition


def test_operators_are_counted() -> None:
    assert f"all {len(catalog())} operators" in INDEX


def test_picture_shows_how_the_layer_is_compiled() -> None:
    @dmlgpu.compile
    def layer(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return ops.relu(x @ weight + bias)

    square, row = (Tensor(np.ones(sizes, np.float32), device="numpy") for sizes in ((1024, 1024), (1024,)))
    desc = layer.desc(square, square, row)
    explanation = explain_graph("layer", desc, Target("GPU", Profile.DISCRETE))
    picture = (DOCS / "images" / "pipeline.svg").read_text(encoding="utf-8")
    shown = re.findall(r"<text [^>]*>([^<]+)<", picture)

    assert [node.desc.operator for node in desc.nodes] == [name for name in shown if name in catalog()]
    (kernel,) = explanation.schedule.steps
    assert (
        kernel.reason.endswith("each invocation computes 4 x 8 outputs")
        and "tiles in workgroup memory" in kernel.reason
    )
    assert "4 x 8 outputs each, tiles in workgroup memory" in shown
    (groups, *rest), size = kernel.launch.grid, kernel.launch.workgroup
    assert rest == [1, 1] and f"{groups} workgroups of {size} invocations" in shown
    (rendered,) = explanation.program.kernels
    assert next(line for line in shown if line.startswith("sum0_0")).strip() in rendered.wgsl
