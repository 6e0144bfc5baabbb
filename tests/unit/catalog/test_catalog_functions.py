"""Classes and functions compiled from the catalog at first use are like hand-written ones, and stubs agree with
them."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import inspect
import pickle
import subprocess
import sys
import threading
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Graph, InvalidArgument, InvalidDescription, descs, directmlx, ops
from dmlgpu.catalog import catalog, stubs
from dmlgpu.catalog.functions import DIRECTMLX_NAMES, FunctionModule, FunctionSource
from dmlgpu.ops import directml

ROOT = Path(__file__).parents[3]
MODULES = pytest.mark.parametrize("module", [directml], ids=["directml"])


def fresh(program: str) -> str:
    """Return the output of a program in a new process."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@MODULES
def test_exactly_the_listed_names_exist(module: types.ModuleType) -> None:
    stems = {schema.stem for schema in catalog().values()}
    assert stems <= set(dir(module))
    assert {"TopKOutputs", "LstmOutputs"} <= set(dir(module))
    assert all(getattr(module, name) is getattr(module, name) for name in dir(module))
    for name in ("no_such_operator", "GemmOutputs", "__path__"):
        with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute '{name}'$"):
            getattr(module, name)


def test_ops_and_directml_are_apart() -> None:
    assert ops.argmax is not directml.argmax
    assert {"directml", "softmax", "argmax"} <= set(dir(ops)) and not {"gemm", "TopKOutputs"} & set(dir(ops))
    for module, name in ((ops, "no_such_operator"), (descs, "NoSuchOperator")):
        with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute '{name}'$"):
            getattr(module, name)


def test_star_imports_bring_everything() -> None:
    names: dict[str, Any] = {}
    exec("from dmlgpu.ops import *", names)
    assert names["directml"] is directml and names["argmax"] is ops.argmax and "gemm" not in names
    names = {}
    exec("from dmlgpu.catalog.descs import *", names)
    assert names["Gemm"] is descs.Gemm and "TensorDesc" in names
    names = {}
    exec("from dmlgpu.ops.directml import *", names)
    assert names["gemm"] is directml.gemm


def test_functions_are_compiled_at_first_use() -> None:
    printed = fresh(
        "from dmlgpu import descs, directmlx, ops\nfrom dmlgpu.ops import directml\n"
        "print('gemm' in vars(directml), 'gemm' in vars(directmlx))\n"
        "directml.gemm, directmlx.gemm\n"
        "print('gemm' in vars(directml), 'gemm' in vars(directmlx), 'top_k' in vars(directml))\n"
    )
    assert printed == "False False\nTrue True False\n"
    printed = fresh("from dmlgpu import descs\nprint('Gemm' in vars(descs), descs.Gemm is descs.by_name('GEMM'))")
    assert printed == "False True\n"


@pytest.mark.parametrize("name", catalog())
def test_functions_are_like_written_ones(name: str) -> None:
    stem = name.lower()
    function = getattr(directml, stem)
    assert (function.__name__, function.__qualname__, function.__module__) == (stem, stem, directml.__name__)
    assert pickle.loads(pickle.dumps(function)) is function
    hints = typing.get_type_hints(function)
    assert hints.keys() == {*inspect.signature(function).parameters, "return"}
    assert f"def {stem}(" in inspect.getsource(function)
    result = hints["return"]
    if issubclass(result, tuple):
        values = result(*range(len(inspect.signature(result).parameters)))
        assert pickle.loads(pickle.dumps(values)) == values
        assert type(values) is getattr(directml, f"{descs.by_name(name).__name__}Outputs")


def test_wrong_calls_name_the_function() -> None:
    x = np.ones((2, 2), np.float32)
    with pytest.raises(TypeError, match=r"^gemm\(\) missing 1 required positional argument: 'b'$"):
        directml.gemm(x, device="numpy")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^gemm\(\) got an unexpected keyword argument 'gamma'$"):
        directml.gemm(x, x, gamma=1, device="numpy")  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match=r"^gemm: alpha must be a number, got '2' of type str"):
        directml.gemm(x, x, alpha="2", device="numpy")  # type: ignore[arg-type]
    graph = Graph()
    a, b = graph.input((2, 2)), graph.input((3, 2))
    with pytest.raises(InvalidDescription, match=r"^GEMM: .* \(.*test_catalog_functions\.py:\d+\)$"):
        directml.gemm(a, b)


def test_tracebacks_show_the_line_of_the_function() -> None:
    printed = fresh(
        "import traceback, numpy\nfrom dmlgpu import ops\n"
        "try: ops.directml.element_wise_add(numpy.ones(2, 'f4'), numpy.ones(3, 'f4'), device='numpy')\n"
        "except Exception: print(traceback.format_exc())"
    )
    assert "call_op(descs.ElementWiseAdd, {'a_tensor': a, 'b_tensor': b}, device=device, name=name)" in printed


def test_threads_get_one_class_and_one_function() -> None:
    members: dict[str, Any] = {"__name__": "made"}
    module = FunctionModule("made", members, {"NamedTuple": typing.NamedTuple, "descs": descs})
    start, results = threading.Barrier(8), []

    def get() -> None:
        start.wait()
        results.append((module.get("top_k"), module.get("TopKOutputs")))

    threads = [threading.Thread(target=get) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and set(results) == {(members["top_k"], members["TopKOutputs"])}
    assert members["top_k"].__globals__["TopKOutputs"] is members["TopKOutputs"]


# ---- stubs -----------------------------------------------------------------------------------------------------------


def definitions(name: str) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    nodes = ast.parse(stubs.stubs()[name]).body
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


@MODULES
def test_stubs_agree_with_functions(module: types.ModuleType) -> None:
    defined = definitions("ops/directml.pyi")
    assert {schema.stem for schema in catalog().values()} <= defined.keys()
    for name, node in defined.items():
        member = getattr(module, name)
        assert ast.get_docstring(node) == inspect.getdoc(member), name
        if isinstance(node, ast.FunctionDef):
            parameters = inspect.signature(member).parameters
            arguments = [*node.args.args, *node.args.kwonlyargs]
            assert [argument.arg for argument in arguments] == list(parameters), name
            for argument in arguments:
                assert argument.annotation is not None
                assert ast.unparse(argument.annotation) == parameters[argument.arg].annotation, (name, argument.arg)
        else:
            assert [field.target.id for field in node.body[1:]] == list(inspect.signature(member).parameters)  # type: ignore[attr-defined]


def test_stubs_agree_with_descriptions() -> None:
    defined = definitions("catalog/descs.pyi")
    assert defined.keys() == {"all_descs", "by_name", *(schema.class_name for schema in catalog().values())}
    for schema in catalog().values():
        cls, node = descs.by_name(schema.name), defined[schema.class_name]
        assert ast.get_docstring(node) == inspect.getdoc(cls)
        fields = [field for field in node.body if isinstance(field, ast.AnnAssign)]
        annotations = {ast.unparse(field.target): ast.unparse(field.annotation) for field in fields}
        assert annotations == cls.__annotations__
        with_default = {ast.unparse(field.target) for field in fields if field.value is not None}
        assert with_default == set(cls.defaults)


def test_the_stub_of_directmlx_agrees_with_its_functions() -> None:
    defined = definitions("tensors/directmlx.pyi")
    public = {name for name in dir(directmlx) if inspect.isfunction(getattr(directmlx, name)) and name[0] != "_"}
    assert defined.keys() | DIRECTMLX_NAMES.keys() == public - {"listed_parameters"}
    for name, node in defined.items():
        assert isinstance(node, ast.FunctionDef)
        member = getattr(directmlx, name)
        assert ast.get_docstring(node) == inspect.getdoc(member), name
        parameters = inspect.signature(member).parameters.values()
        arguments, keywords = node.args.args, node.args.kwonlyargs
        defaults = [None] * (len(arguments) - len(node.args.defaults)) + [*node.args.defaults, *node.args.kw_defaults]
        assert [
            (argument.arg, default is None) for argument, default in zip([*arguments, *keywords], defaults, strict=True)
        ] == [(parameter.name, parameter.default is parameter.empty) for parameter in parameters], name
        assert [argument.arg for argument in keywords] == [
            parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
        ], name


def test_the_stub_of_the_package_imports_all_public_names() -> None:
    nodes = [node for node in ast.parse(stubs.stubs()["__init__.pyi"]).body if isinstance(node, ast.ImportFrom)]
    assert sorted(str(alias.asname) for node in nodes for alias in node.names) == dmlgpu.__all__
    members: dict[str, Any] = {}
    exec("\n".join(map(ast.unparse, nodes)), members)
    assert all(members[name] is getattr(dmlgpu, name) for name in dmlgpu.__all__)


def test_all_of_a_stub_is_all_of_the_module() -> None:
    (listed,) = (
        node.value
        for node in ast.parse(stubs.stubs()["ops/directml.pyi"]).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert ast.literal_eval(listed) == directml.__all__ == FunctionSource.listed()


# ---- scripts/generate ------------------------------------------------------------------------------------------------


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script on a separate checkout; calls with arguments return its exit status."""
    loader = importlib.machinery.SourceFileLoader("generate", str(ROOT / "scripts" / "generate"))
    spec = importlib.util.spec_from_loader("generate", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    for folder in ("catalog", "ops", "tensors/graphs"):
        (tmp_path / "dmlgpu" / folder).mkdir(parents=True)

    def call(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["generate", *arguments])
        return script.main()

    return call


def test_generate_checks_and_writes(generate: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("--check", "stubs") == 1
    assert capsys.readouterr().err.splitlines() == [
        f"dmlgpu/{name} is out of date: run scripts/generate stubs" for name in stubs.stubs()
    ]
    assert generate("stubs") == 0 and generate("stubs", "--check") == 0
    (tmp_path / "dmlgpu" / "catalog/descs.pyi").write_text("", encoding="utf-8")
    assert generate("--check", "stubs") == 1
    assert "catalog/descs.pyi" in capsys.readouterr().err
    stubs.write(tmp_path / "dmlgpu")
    assert generate("--check", "stubs") == 0


def test_generate_knows_its_kinds(generate: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        generate("pages")
    assert ended.value.code == 2
    assert "unknown kind 'pages'; there are stubs, counts" in capsys.readouterr().err
