"""Names that a PyTorch version lacks are skipped, or named in one message."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch, which the device is for, is not installed")
pytest.importorskip("dmlgpu.torch", reason="the installed PyTorch is older than 2.13")

from dmlgpu.common.errors import NotSupported  # noqa: E402 - after the check
from dmlgpu.frontends.torch import versions  # noqa: E402
from dmlgpu.frontends.torch.operators import registry  # noqa: E402

ROOT = Path(__file__).parents[4]

REMOVED = {"cholesky": (2, 14)}
"""Operators of the table that a version removed."""

ADDED = {"linalg_matrix_sqrth": (2, 14), "linalg_polar": (2, 14)}
"""Operators of the table that a version added."""


def run(program: str) -> str:
    """Return what a program prints, in a process that has not registered the device."""
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout


# ---- operators -------------------------------------------------------------------------------------------------------


def test_only_operators_of_other_versions_are_missing() -> None:
    """A misspelled name would be dropped from the table without a word."""
    missing = {name for name, since in REMOVED.items() if since <= versions.INSTALLED}
    missing |= {name for name, since in ADDED.items() if since > versions.INSTALLED}
    assert set(registry.MISSING) == missing


def test_names_that_the_version_lacks_are_skipped_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MISSING", ["gone.Tensor"])
    assert registry.installed(["add.Tensor", "gone.Tensor", "relu", "other"]) == ["add.Tensor", "relu"]
    assert registry.overloads("relu", "other") == {torch.ops.aten.relu.default}
    assert registry.MISSING == ["gone.Tensor", "other"]


def test_this_version_decomposes_what_the_device_leaves_to_it() -> None:
    names = [
        name
        for name, function in registry.DECOMPOSED.items()
        if getattr(function, "func", None) is registry._decomposed
    ]
    assert names
    for name in names:
        registry.decomposition(name)


def test_a_missing_decomposition_is_an_operator_that_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "decomposition_table", dict)
    registry.decomposition.cache_clear()
    with pytest.raises(
        NotImplementedError, match=f"aten::relu is not supported: PyTorch {re.escape(torch.__version__)}"
    ):
        registry.decomposition("relu")
    registry.decomposition.cache_clear()


@pytest.mark.slow
def test_the_device_works_if_a_version_lacks_operators_of_each_table() -> None:
    output = run("""
        import torch

        LACKED = {
            "softmax.int", "cumsum", "_foreach_add_.List", "_foreach_lerp.Scalar", "lerp.Scalar", "unfold",
            "set_.source_Tensor", "_pin_memory", "lift_fresh_copy", "new_full", "sym_numel",
            "max_pool3d_with_indices_backward", "mse_loss_backward",
        }
        names = [name for name in torch._C._dispatch_get_all_op_names() if name.removeprefix("aten::") not in LACKED]
        torch._C._dispatch_get_all_op_names = lambda: names
        import dmlgpu.torch
        from dmlgpu.frontends.torch.operators import registry

        overload = registry.overload
        def checked(name):
            assert name not in LACKED, name
            return overload(name)
        registry.overload = checked
        layer = torch.nn.Linear(2, 2).to("dml")
        x = torch.ones(3, 2, device="dml")
        with torch.autocast("dml"), torch.no_grad():
            expected = layer(x).cpu()
            assert torch.equal(torch.compile(layer, backend="dmlgpu")(x).cpu(), expected)
        print(sorted(LACKED - set(registry.MISSING)))
    """)
    assert output.splitlines()[-1] == "[]"


# ---- private names ---------------------------------------------------------------------------------------------------


def test_private_names_have_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.private("torch._C._from_dlpack") is torch._C._from_dlpack
    assert versions.private("torch._C._renamed", "torch._C._from_dlpack") is torch._C._from_dlpack
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    with pytest.raises(NotSupported) as caught:
        versions.private("torch._C._renamed", "torch._gone.former")
    assert str(caught.value) == (
        "dmlgpu.torch: the installed PyTorch 9.9.0 lacks torch._C._renamed and torch._gone.former, which dmlgpu needs. "
        f"Tested versions are {', '.join(versions.TESTED)}: install one of them (pip install "
        f"torch=={versions.TESTED[-1]}), and report this message to dmlgpu's maintainers"
    )
    assert caught.value.__cause__ is None


def test_older_versions_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check_version()
    monkeypatch.setattr(versions, "INSTALLED", (2, 12))
    with pytest.raises(NotSupported, match=r"^dmlgpu\.torch: PyTorch 2\.13 or later must be installed, got 2\."):
        versions.check_version()


def test_importing_pytorch_warns_of_a_name_that_it_lacks() -> None:
    output = run("""
        import warnings
        import torch
        from dmlgpu.frontends import torch_backend

        del torch._C._from_dlpack
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch_backend.register()
        print(*[warning.message for warning in caught], sep="\\n")
        try:
            import dmlgpu.torch
        except Exception as error:
            print(type(error).__name__, error)
    """)
    message = f"dmlgpu.torch: the installed PyTorch {torch.__version__} lacks torch._C._from_dlpack, which dmlgpu needs"
    warned, raised = output.splitlines()
    assert warned.startswith(f"the device 'dml' is not registered: {message}")
    assert raised.startswith(f"NotSupported {message}")


@pytest.mark.slow
def test_compiling_names_what_dynamo_lacks() -> None:
    output = run("""
        import torch, dmlgpu.torch
        from torch._dynamo import trace_rules

        del trace_rules.add
        x = torch.ones(2, device="dml")
        print((x + 1).tolist())
        try:
            torch.compile(lambda x: x + 1, backend="dmlgpu")(x)
        except Exception as error:
            print(error)
    """)
    eager, compiled = output.splitlines()[:2]
    assert eager == "[2.0, 2.0]"
    assert "lacks torch._dynamo.trace_rules.add, which dmlgpu needs. Tested versions are" in compiled


def test_pages_name_the_tested_versions() -> None:
    named = "PyTorch {}, {} and {}".format(*versions.TESTED)
    for page in ("README.md", "docs/pytorch.md"):
        assert named in " ".join((ROOT / page).read_text(encoding="utf-8").split()), page
    assert f"torch=={versions.TESTED[0]}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
