"""Folders of language models: accepted and rejected ones."""

import json
import tracemalloc

import numpy as np
import pytest

from dmlgpu.common.errors import DmlError, InvalidArgument, ModelError
from dmlgpu.frontends.generation.folders import read
from dmlgpu.frontends.generation.generator import Generator
from tests.damaged_files import damaged
from tests.language_models import ADAPTER, folder_of

TRANSFORMERS = {
    "model_type": "qwen2",
    "max_position_embeddings": 160,
    "vocab_size": 320,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "bos_token_id": None,
    "eos_token_id": 0,
}


@pytest.fixture
def folder(tmp_path):
    return folder_of(tmp_path)


def rewritten(folder, name, change):
    path = folder / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_a_folder_of_onnxruntime_genai(folder):
    model = read(folder)
    config = model.config
    sizes = config.context_length, config.vocabulary, config.layers, config.kv_heads, config.head_size
    assert sizes == (160, 320, 2, 2, 16)
    assert (model.name, config.architecture, config.eos, config.bos) == ("tiny", "llama", (0,), None)
    assert model.tokenizer.encode("hello").ids
    assert model.chat_template.startswith("{% for message")


@pytest.mark.parametrize(
    ("generation", "search", "expected"),
    [
        (None, None, {}),
        ({"eos_token_id": 0}, {"do_sample": False, "temperature": 0.5}, {}),
        (None, {"do_sample": True, "temperature": 0.5, "top_k": 20}, {"temperature": 0.5, "top_k": 20}),
        ({"top_p": 0.8, "temperature": None}, {"top_k": 20}, {"temperature": 1.0, "top_p": 0.8}),
        ({"top_k": -1, "top_p": "x", "min_p": 0.05, "temperature": 0.6}, None, {"temperature": 0.6, "min_p": 0.05}),
        (
            {"do_sample": False, "temperature": 0.6},
            {"repetition_penalty": 1.1},
            {"repetition_penalty": 1.1, "temperature": 1.0},
        ),
    ],
)
def test_sampling_options_are_those_that_the_files_recommend(folder, generation, search, expected):
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    if search is not None:
        rewritten(folder, "genai_config.json", lambda content: content.update(search=search))
    assert read(folder).sampling == expected


def test_special_tokens_of_templates_are_those_of_the_tokenizer(folder):
    """Configurations may name other tokens: all that end an answer, and one that begins a text but is not written."""
    transformers = pytest.importorskip("transformers")
    template = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}|{{ messages[0].content }}"
    names = {"bos_token": None, "eos_token": {"__type": "AddedToken", "content": "<|user|>"}, "pad_token": "<|system|>"}
    settings = {"chat_template": template, "tokenizer_class": "PreTrainedTokenizerFast", **names}
    rewritten(folder, "tokenizer_config.json", lambda content: content.update(settings))
    rewritten(folder, "genai_config.json", lambda content: content["model"].update(bos_token_id=1))
    messages = [{"role": "user", "content": "hi"}]
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    text = theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "|<|user|>|<|system|>||hi"
    generator = Generator(read(folder), ADAPTER)
    assert generator.chat_tokens(messages) == generator.model.tokenizer.encode(text).ids


def test_a_folder_of_transformers(folder):
    (folder / "genai_config.json").unlink()
    (folder / "config.json").write_text(json.dumps(TRANSFORMERS))
    (folder / "generation_config.json").write_text('{"eos_token_id": [0, 3]}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "onnx").mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        (folder / name).rename(folder / "onnx" / name)
    model = read(folder)
    assert (model.config.head_size, model.config.eos, model.chat_template) == (16, (0, 3), "{{ messages }}")
    assert "".join(Generator(model, ADAPTER).generate("hello", max_tokens=3))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda folder: (folder / "genai_config.json").unlink(), ModelError, "has neither genai_config.json nor"),
        (lambda folder: (folder / "genai_config.json").write_text("{"), ModelError, "genai_config.json cannot be read"),
        (lambda folder: (folder / "genai_config.json").write_text("[]"), ModelError, "must be an object, got"),
        (lambda folder: (folder / "genai_config.json").write_text("[" * 10**6), ModelError, "cannot be read"),
        (lambda folder: (folder / "genai_config.json").write_text("{}"), ModelError, "'model' must be an object"),
        (lambda folder: (folder / "model.onnx").unlink(), ModelError, "must have the network 'model.onnx'"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), ModelError, "tokenizer.json cannot be read"),
        (
            lambda folder: (folder / "tokenizer_config.json").write_text("no"),
            ModelError,
            "tokenizer_config.json cannot",
        ),
    ],
)
def test_damaged_folders_are_rejected(folder, change, kind, message):
    change(folder)
    with pytest.raises(kind, match=f"^tiny: .*{message}"):
        read(folder)


@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data"])
def test_pointers_of_git_lfs(folder, name):
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ModelError, match=r"is a pointer of Git LFS: run 'git lfs pull' in its folder$"):
        Generator.load(folder, ADAPTER)


def test_advice_for_paths_that_are_no_models(folder):
    for path, message in (
        (folder / "absent", "absent', which does not exist; models are not downloaded"),
        (folder / "model.onnx", f"model.onnx'; pass its folder: '{folder}'"),
    ):
        with pytest.raises(InvalidArgument, match=f"^Generator.load: source must be a folder .*{message}$"):
            read(path)
    (folder / "model.onnx").unlink()
    (folder / "genai_config.json").unlink()
    (folder / "model-q4.gguf").touch()
    with pytest.raises(InvalidArgument, match=r"tiny has GGUF files; pass one of them: .*model-q4.gguf'$"):
        read(folder)
    (folder / "config.json").write_text(json.dumps(TRANSFORMERS))
    (folder / "model.safetensors").touch()
    with pytest.raises(ModelError, match="weights are PyTorch's: export it by 'optimum-cli export onnx --model"):
        read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.update(vocab_size=300), "the tokenizer does not match the network: it has tokens up to"),
        (lambda model: model.update(vocab_size=2**40), "'vocab_size' must be an integer from 1 to 2147483647"),
        (lambda model: model.update(context_length=0), "'context_length' must be an integer from 1"),
        (lambda model: model.update(eos_token_id=320), "special tokens must be below the vocabulary of 320, got 320"),
        (lambda model: model["decoder"].update(head_size="x"), "'head_size' must be an integer from 1"),
        (lambda model: model["decoder"].update(filename="../model.onnx"), "filename must be a file in the folder"),
        (lambda model: model.update(decoder=None), "'decoder' must be an object, got None"),
    ],
)
def test_wrong_configurations_are_rejected(folder, change, message):
    rewritten(folder, "genai_config.json", lambda content: change(content["model"]))
    with pytest.raises(ModelError, match=f"^tiny: .*{message}"):
        read(folder)


@pytest.mark.parametrize("source", ["missing", 7, None])
def test_sources_that_are_no_folder_are_rejected(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgument, match="source must be"):
        Generator.load(source)


@pytest.mark.parametrize("share", [0, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "tokenizer.json", "genai_config.json"])
def test_truncated_files_are_rejected(folder, name, share):
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(DmlError) as error:
        Generator.load(folder, ADAPTER)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_damaged_files_are_used_or_rejected(folder):
    """Any content of a file gives tokens or an error message, in little memory."""
    random = np.random.default_rng(0)
    contents = {path: path.read_bytes() for path in sorted(folder.iterdir())}
    outcomes = {"used": 0, "rejected": 0}
    tracemalloc.start()
    for path, content in contents.items():
        for _ in range(12):
            path.write_bytes(damaged(content, random))
            try:
                generator = Generator.load(folder, ADAPTER, context=32)
                outcomes["used"] += len(list(generator.generate_tokens([5, 6, 7], max_tokens=1)))
            except DmlError as error:
                outcomes["rejected"] += 1
                assert "\n" not in str(error) and len(str(error)) < 600
        path.write_bytes(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert min(outcomes.values()) > 10
    assert peak < 64 << 20
