"""The page of a bug report fails in Chromium with a wrong kernel, and passes with the right one."""

from __future__ import annotations

import pytest

from dmlgpu.compiler.program_cache import without_files
from dmlgpu.compiler.target import AdapterInfo, Target
from dmlgpu.compiler.wgsl import templates
from dmlgpu.conformance.mutation.rules import mutant_by_name
from dmlgpu.conformance.mutation.suite import clear_caches
from dmlgpu.export.bugs.programs import programs_of
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
