"""The page of a bug report fails in Chromium with a wrong kernel, and passes with the right one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.mutation.rules import mutant_by_name
from dmlgpu.conformance.mutation.suite import clear_caches
from dmlgpu.export.bugs.cutting import cut
from dmlgpu.export.bugs.programs import BugProgram, programs_of
from dmlgpu.export.bugs.runners import RunnerResult, run
from dmlgpu.export.bugs.writing import page_of
from dmlgpu.export.folder import write_files
from tests.chromium.conftest import served
from tests.chromium.test_conformance_page import finished, verdict_of

pytestmark = pytest.mark.xdist_group("chromium")

INFO = AdapterInfo("card", "Vulkan", "discrete", "vendor", "driver 1.2", limits={})


@pytest.mark.parametrize(
    ("fault", "status"), [("elementwise/element_wise_subtract:3:16:plus_for_minus", "fail"), ("", "pass")]
)
def test_the_page_judges_its_kernels(page, tmp_path, fault, status):
    clear_caches()
    mutant = mutant_by_name(fault or "elementwise/element_wise_add:3:16:minus_for_plus")
    with without_files(), templates.replaced(mutant.file, mutant.text):
        (program,) = programs_of("element_wise_subtract-float32-2x3-packed-s0", Target("card"), INFO)
    clear_caches()
    files = page_of(program, "cpu")
    write_files(tmp_path, {name.removeprefix("page/"): data for name, data in files.items()})
    with served(page, tmp_path) as visited:
        assert verdict_of(finished(visited)) == {status: 1}


@pytest.mark.slow
def test_the_page_of_one_kernel_judges_it(page, tmp_path):
    """The second of three kernels is wrong; its inputs come from the other driver, here the same adapter."""
    (whole,) = programs_of(
        "quantized_linear_matrix_multiply-int8-int8-int8-3x15x16x5-aligned-single-s0", Target("card"), INFO
    )
    faulty = whole.files["kernel-1.wgsl"]
    wrong = faulty.replace(b"] = block;", b"] = block + block;")

    def planted(program: BugProgram) -> BugProgram:
        texts = {name: wrong for name, text in program.files.items() if text == faulty}
        return replace(program, files={**program.files, **texts})

    def judge(program: BugProgram) -> RunnerResult:
        return run(program, 0, 60.0)

    def suspect(program: BugProgram) -> RunnerResult:
        return judge(planted(program))

    result = suspect(whole)
    if result.status != "wrong":
        pytest.skip(f"the runner does not compute on this machine: {result.message}")
    cut_program = cut(whole, result, suspect, judge)
    assert cut_program is not None and (cut_program.kernel, cut_program.is_alone) == (2, True)
    (entry_run,) = cut_program.program.entry["runs"]
    (shader,) = entry_run["shaders"]
    for code, status in ((wrong, "fail"), (faulty, "pass")):
        shader["code"] = code.decode()
        files = page_of(cut_program.program, "cpu")
        write_files(tmp_path / status, {name.removeprefix("page/"): data for name, data in files.items()})
        with served(page, tmp_path / status) as visited:
            assert verdict_of(finished(visited)) == {status: 1}
