"""What people type after the first example, as they typed it, and what must come.

The lines are those of an engineer who knows NumPy and PyTorch, of a user of onnxruntime, and of a tester of drivers
in a terminal of 80 columns. Values are NumPy's.
"""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import Device, Tensor, ops
from dmlgpu.tensors import array_like
from tests.unit.cli.terminal import in_terminal

RNG = np.random.default_rng(35)
FLAGS = np.tril(np.ones((5, 5), bool))
NAMES: dict[str, Any] = {
    "np": np,
    "dmlgpu": dmlgpu,
    "xp": xp,
    "ops": ops,
    "Tensor": Tensor,
    "doubles": RNG.random((2, 5)),
    "singles": RNG.random((2, 5), np.float32),
    "a": np.array([[1, 4], [9, 16]], np.float32),
    "image": np.ones((1, 3, 8, 8), np.float32),
    "filters": np.ones((4, 3, 3, 3), np.float32),
    "tokens": RNG.random((2, 5, 8), np.float32),
    "heads": RNG.random((2, 2, 5, 4), np.float32),
    "flags": FLAGS,
    "words": np.array([100, 100, 100], np.int8),
}


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def attend(heads: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = heads @ heads.swapaxes(-1, -2) / np.sqrt(heads.shape[-1])
    return softmax(np.where(mask, scores, -np.inf)) @ heads


def split(tokens: np.ndarray, heads: int) -> np.ndarray:
    return tokens.reshape(*tokens.shape[:2], heads, -1).swapaxes(1, 2)


def names() -> dict[str, Any]:
    """Return the names that lines use; the tensors are new, since other tests remove shared devices."""
    return {
        **NAMES,
        "x": Tensor([1.0, -2.0, 3.0, 4.0], device="numpy"),
        "s": Tensor([[1.0, 4.0], [9.0, 16.0]], device="numpy"),
    }


EXPECTED = {**NAMES, "softmax": softmax, "attend": attend, "split": split}

VALUES = {
    # line typed: NumPy's expression
    "ops.softmax(doubles)": "softmax(doubles)",
    "ops.softmax([[1.0, 2.0]])": "softmax(np.array([[1.0, 2.0]]))",
    "ops.matmul(doubles, doubles.T)": "doubles @ doubles.T",
    "ops.sum(doubles)": "doubles.sum()",
    "Tensor(doubles) + 1": "doubles + 1",
    "x + [1, 2, 3, 4]": "np.array([2, 0, 6, 8])",
    "x + np.ones(4)": "np.array([2, -1, 4, 5])",
    "dmlgpu.compile(lambda v: ops.relu(v) * 2)(doubles)": "doubles * 2",
    'Tensor([1, 2], dtype="float32") / 4': "np.array([0.25, 0.5])",
    "ops.softmax(singles, dim=0)": "softmax(singles, 0)",
    "ops.mean(singles, dim=1, keepdim=True)": "singles.mean(1, keepdims=True)",
    "ops.topk(singles, 2, dim=1).values": "-np.sort(-singles)[:, :2]",
    "ops.cat([singles, singles], dim=1)": "np.concatenate([singles, singles], 1)",
    "ops.permute(tokens, (2, 0, 1))": "tokens.transpose(2, 0, 1)",
    "Tensor(tokens).permute(2, 0, 1).shape": "(8, 2, 5)",
    "Tensor(tokens).view(2, -1)": "tokens.reshape(2, 40)",
    "Tensor(tokens).flatten(1)": "tokens.reshape(2, 40)",
    'ops.conv2d(image, filters, padding="same")[0, 0, 1, 1]': "27",
    'ops.interpolate(image, scale_factor=2, mode="bilinear").shape': "(1, 3, 16, 16)",
    'ops.resize(image, (16, 16), mode="bilinear").shape': "(1, 3, 16, 16)",
    'ops.gelu([1.0], approximate="tanh")': "np.array([0.841192])",
    "ops.embedding(np.array([0, 2]), singles.T)": "singles.T[[0, 2]]",
    "ops.cross_entropy(singles, np.array([0, 4]))": "-np.log(softmax(singles)[[0, 1], [0, 4]]).mean()",
    "ops.dropout(singles, p=0.5, training=False)": "singles",
    "s.sum(), s.mean(), s.max(), s.min()": "np.array([30, 7.5, 16, 1])",
    "s.sum(dim=1)": "np.array([5, 25])",
    "s.sqrt()": "np.array([[1, 2], [3, 4]])",
    "s.cpu().float()": "a",
    "np.exp(s)": "np.exp(a)",
    "np.sum(s)": "30",
    "np.concatenate([s, s])": "np.concatenate([a, a])",
    'f"{ops.mean(s):.3f}"': '"7.500"',
    "ops.eye(2), ops.ones((2, 2)), ops.tril(ops.ones((2, 2)))": "np.array([np.eye(2), np.ones((2, 2)), np.tri(2)])",
    "ops.arange(3)": "np.arange(3)",
    "ops.sum(s > 3)": "3",
    "ops.mean(np.array([1, 2]))": "1.5",
    "(s > 3).mean()": "0.75",
    "Tensor(np.array([1, 2], np.uint8)) / 255": "np.array([1, 2]) / 255",
    "2 * (s > 3) - 1": "np.array([[-1, 1], [1, 1]])",
    "s * (s > 3)": "a * (a > 3)",
    "ops.where(s > 3, 1, -1), ops.where(s > 3, 0.0, -np.inf)": "np.array([[[-1, 1], [1, 1]], [[-np.inf, 0], [0, 0]]])",
    "ops.any(s > 15), ops.all(s > 15)": "np.array([True, False])",
    "ops.sum(words)": "300",
    "xp.sum(Tensor(words))": "300",
    "ops.nonzero(s > 4)[0]": "np.array([1, 1])",
    'ops.einsum("ij,kj->ik", singles, singles)': "singles @ singles.T",
    "ops.attention(heads, heads, heads)": "attend(heads, True)",
    "ops.attention(heads, heads, heads, causal=True)": "attend(heads, flags)",
    "ops.attention(heads, heads, heads, mask=flags)": "attend(heads, flags)",
    "ops.attention(tokens, tokens, tokens, num_heads=2, causal=True)": (
        "attend(split(tokens, 2), flags).swapaxes(1, 2).reshape(2, 5, 8)"
    ),
    "dmlgpu.random.default_rng(0).normal(size=(2, 3)).shape": "(2, 3)",
    "dmlgpu.grad(lambda v: ops.sum(v**3))(Tensor([1.0, 2.0]))": "np.array([3, 12])",
}

REFUSALS = {
    # line typed: how the message ends
    "ops.softmax([[1, 2]])": "convert it with ops.astype(x, 'float32')",
    "ops.softmax(singles.astype(int))": "convert it with x.astype('float32')",
    "Tensor([2, 3]) ** -1": "convert the base with astype('float32')",
    "(x > 0) - (x > 1)": "a ^ b (logical_xor) is where they differ, a.astype('int64') makes integers",
    "if x > 0: pass": "the truth value of a tensor of 4 elements is ambiguous; use dmlgpu.ops.any(x) or all(x)",
    "ops.sofmax": "did you mean ops.softmax?",
    "ops.randn": "use dmlgpu.random.default_rng(seed).normal",
    "x.relu()": "use dmlgpu.ops.relu",
    "ops.attention(heads, heads, heads, is_causal=True)": "it is called 'causal'",
    "ops.softmax(singles, axis=5)": "softmax: axis must be an integer between -2 and 1, for 2 dimensions, got 5",
    "x + Tensor([1.0], device=Device('numpy'))": (
        "got one on another Device object of that adapter, which has memory of its own; x.to(device) copies it"
    ),
    # of a model
    "session.run(None, {'image': image})": "run(inputs, outputs=None): the arguments are swapped",
    "session.run(['probs'], {'image': image})": "run(inputs, outputs=None): the arguments are swapped",
    "session.run({'img': image})": "unknown input 'img'; the model has: image",
    "session.run({})": "missing input 'image'",
    "session.run({'image': image}, ['prob'])": "unknown output 'prob'; the model has: probs",
    "session.run({'image': image.astype(float)})": (
        "input 'image' must be of float32, got float64; pass array.astype(np.float32)"
    ),
}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")
    yield
    array_like._Policy.has_warned = False


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of probabilities: ``image: float32[N, 3, 8, 8] -> probs: float32[N, 2]``."""
    weights = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probs"]),
        ],
        "classifier",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["N", 2])],
        [numpy_helper.from_array(weights, "weights")],
    )
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )
    return path


@pytest.mark.parametrize("line", VALUES)
def test_a_line_computes(line: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dmlgpu.Float64Warning)
        result = eval(line, names())
    expected = eval(VALUES[line], dict(EXPECTED))
    if isinstance(expected, str | tuple):
        assert result == expected
    else:
        results = [part.numpy() for part in result] if type(result) is tuple else np.asarray(result)
        np.testing.assert_allclose(results, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("line", REFUSALS)
def test_a_line_names_the_replacement(line: str, model: Path) -> None:
    own = {**names(), "Device": Device}
    if "session" in line:
        own["session"] = dmlgpu.load(model)
    with pytest.raises((AttributeError, TypeError, ValueError)) as error:
        exec(line, own)
    assert str(error.value).endswith(REFUSALS[line])
    assert "\n" not in str(error.value)


def test_one_import_is_changed_for_onnxruntime(model: Path) -> None:
    from dmlgpu.onnxruntime import InferenceSession, get_available_providers

    session = InferenceSession(str(model), providers=get_available_providers())
    (image,), (probs,) = session.get_inputs(), session.get_outputs()
    assert (image.name, image.shape, image.type) == ("image", ["N", 3, 8, 8], "tensor(float)")
    assert (probs.name, probs.shape, probs.type) == ("probs", ["N", 2], "tensor(float)")
    (result,) = session.run(None, {"image": NAMES["image"]})
    np.testing.assert_allclose(result, softmax(np.array([[-0.6, 0.6]])), rtol=1e-5)


def test_reprs_name_their_objects(model: Path) -> None:
    adapter = "NumPy: numpy (NumPy "
    assert repr(Tensor([1.5])) == "Tensor(FLOAT32 [1] on 'numpy': [1.5])"
    assert repr(dmlgpu.adapters()[-1]).startswith(f"<AdapterInfo '{adapter}")
    assert repr(Device("numpy")).startswith(f"<Device on '{adapter}")
    assert repr(dmlgpu.load(model)).startswith(
        f"<Session 'model.onnx': image: float32[N, 3, 8, 8] -> probs: float32[N, 2]; on '{adapter}"
    )
    layer = dmlgpu.compile(lambda v: ops.relu(v) + 1)
    layer(names()["x"])
    assert re.fullmatch(r"<compiled function <lambda>: 1 graph>", repr(layer))


@pytest.mark.parametrize("module", ["dmlgpu", "dmlgpu.ops", "dmlgpu.array", "dmlgpu.random", "dmlgpu.onnx"])
def test_dir_lists_public_names(module: str) -> None:
    listed = eval(f"dir({module})", {"dmlgpu": dmlgpu})
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib", "np"} & set(listed)
    assert [name for name in listed if name[0] == "_" and name[:2] != "__"] == []


# ---- a terminal of 80 columns, in a folder of modules that are named like Python's own

SHADOWING = ("abc", "copy", "json", "queue", "random", "select", "string", "types")
COMMANDS = {
    # command typed: lines that must come
    "dmlgpu test -k argmin-example -a numpy": [r"adapter +pass", r"NumPy: numpy \(.*\) +1"],
    "dmlgpu test ARGMIN --list": ["argmin-example1"],
    "dmlgpu test GEM": ["dmlgpu: DirectML has no operator 'GEM'; similar names: GEMM, .*"],
    "dmlgpu ops layernorm": [" +6_3 +ops.layer_norm and 5 more +PyTorch layer_norm, PyTorch nn.LayerNorm"],
    "dmlgpu ops einsum": [" *GEMM +1_0 +ops.einsum and 8 more +Batched general matrix multiply with"],
    "dmlgpu ops random": ["dmlgpu.random.default_rng and 1 more"],
    "dmlgpu devices -a numpy": [r".*NumPy: numpy.*"],
    "dmlgpu show MODEL -a numpy": [r"inputs +image \[1, 3, 8, 8\] *", r"outputs +probs \[N, 2\] *"],
    "dmlgpu show my.wgsl -a numpy": ["dmlgpu: there is no file 'my.wgsl'"],
    "dmlgpu run pd.py": ["dmlgpu: .* imports pydirectml: python -m dmlgpu.frontends.pydirectml pd.py"],
    "dmlgpu bench ELEMENT_WISE_ADD -s elements=1K -a numpy --budget 0.1": [
        "ELEMENT_WISE_ADD elements=1024 float32 on numpy"
    ],
}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals on Windows")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints(command: str, model: Path, tmp_path: Path) -> None:
    for module in SHADOWING:
        (tmp_path / f"{module}.py").write_text("raise SystemExit('imported from the current folder')")
    words = shlex.split(command.replace("MODEL", str(model)))[1:]
    _, text = in_terminal(*words, directory=tmp_path)
    lines = re.split(r"[\r\n]+", text)
    assert "imported from the current folder" not in text
    for expected in COMMANDS[command]:
        assert any(re.fullmatch(expected, line) for line in lines), text
