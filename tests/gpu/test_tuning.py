"""Choices that tuning may make compute the same, and the search runs on a device. Nothing depends on times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dmlgpu import descs
from dmlgpu.bench import tuning
from dmlgpu.bench.choosing import of_operator
from dmlgpu.bench.tuning import Search, race_on
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.tensor_desc import TensorDesc
from dmlgpu.compiler.schedule.gemm_choice import Shape, alternatives
from dmlgpu.compiler.target import UNTUNED, AdapterInfo, Tuned
from dmlgpu.compiler.tuned_files import tuned_for
from dmlgpu.runtime.device import Device
from dmlgpu.runtime.wgpu import GpuBackend
from tests.gpu.descriptions import run_desc

F32 = DataType.FLOAT32

SAMPLED = 4
"""Of how many choices one is compiled."""


def test_choices_compute_the_same(backend: GpuBackend) -> None:
    """Elements are small integers, so that every sum is exact; sizes are near those of tiles."""
    rows, columns, inner = 35, 67, 521
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, sizes).astype(np.float32) for sizes in ((rows, inner), (inner, columns)))
    desc = descs.Gemm(
        a_tensor=TensorDesc(F32, a.shape),
        b_tensor=TensorDesc(F32, b.shape),
        output_tensor=TensorDesc(F32, (rows, columns)),
    )
    target = backend.target.exact
    question = f"product 1x{rows}x{columns}x{inner}"
    choices = alternatives(Shape(1, rows, columns, inner), target)
    assert len(choices) > 5
    for text in [*choices][::SAMPLED]:
        tuned = target.with_overrides(tuned=Tuned.of({question: text}))
        (result,) = run_desc(backend, desc, [a, b], tuned)
        np.testing.assert_array_equal(result, a @ b, err_msg=text)


def test_the_search_runs_on_a_device_and_the_next_device_reads_its_findings(adapter: AdapterInfo, tmp_path) -> None:
    """Without time to be sure, nothing is found faster; what is computed wrong is not measured."""
    sizes = {"channels": 4, "filters": 4, "groups": 4, "height": 8, "width": 8, "stride": 2}
    (workload,) = of_operator("CONVOLUTION", (sizes,))
    device = Device(adapter)
    target = device.backend.target.with_overrides(tuned=UNTUNED)
    (finding,) = Search(workload, target, race_on(device, budget=0.0)).findings({})
    assert finding.question.startswith("convolution 1x4x1x8x8 with 4x1x1x3x3")
    assert finding.ratio is not None and not finding.gains
    assert set(finding.ratios) == {"depthwise", "implicit-gemm"}
    tuning.save_choices(adapter, [replace(finding, answer="implicit-gemm")], tmp_path)
    assert tuned_for(adapter, tmp_path) == Tuned.of({finding.question: "implicit-gemm"})
