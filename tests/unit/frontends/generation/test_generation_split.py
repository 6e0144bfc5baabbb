"""Language models in several files: split decoders, against onnxruntime, and encoders with decoders, against
transformers."""

import json
import shutil
import sys

import numpy as np
import onnx
import onnx.utils
import pytest

from dmlgpu.cli.generate import generate, show_language_model
from dmlgpu.common.errors import InvalidArgument, ModelError, NotSupported
from dmlgpu.demo.language_model import tokenizer
from dmlgpu.frontends.generation import decoding
from dmlgpu.frontends.generation.encoder_decoder import EncodedDecoding, step_network
from dmlgpu.frontends.generation.folders import read
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx.session import runner_of
from dmlgpu.runtime.device import Device
from tests.bfloat16_networks import cut, narrow
from tests.language_models import ADAPTER, SIZES, Expected, folder_of, prompt_of
from tests.merged_decoders import merge
from tests.recorded_logits import recorded_logits

# ---- decoders split over files


@pytest.fixture
def split(tmp_path):
    """A folder whose decoder is in three files, the last of which repeats the weights of the first."""
    folder = folder_of(tmp_path)
    model = onnx.load(folder / "model.onnx")
    (first,) = [node for node in model.graph.node if "input_ids" in node.input]
    head = model.graph.node[-1]
    embedded, hidden = first.output[0], head.input[0]
    del model.graph.value_info[:]
    for name in (embedded, hidden):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, ["batch", "new", 64]))
    extractor = onnx.utils.Extractor(model)
    ids, *others = [info.name for info in model.graph.input]
    caches = [info.name for info in model.graph.output if info.name != "logits"]
    for name, inputs, outputs in (
        ("embeddings", [ids], [embedded]),
        ("transformer", [embedded, *others], [hidden, *caches]),
        ("head", [hidden], ["logits"]),
    ):
        onnx.save(extractor.extract_model(inputs, outputs), folder / f"{name}.onnx")
    transformer = onnx.load(folder / "transformer.onnx")
    for info in transformer.graph.output[:1]:  # forwarded under the name that the head reads
        for node in transformer.graph.node:
            node.output[:] = ["hidden.out" if output == info.name else output for output in node.output]
            node.input[:] = ["hidden.out" if source == info.name else source for source in node.input]
        info.name = "hidden.out"
    onnx.save(
        transformer,
        folder / "transformer.onnx",
        save_as_external_data=True,
        location="transformer.data",
        size_threshold=1024,
    )
    stages = {
        "embeddings": {"filename": "embeddings.onnx", "inputs": ["input_ids"], "outputs": [embedded]},
        "prompt-processor": {"filename": "absent.onnx", "run_on_token_gen": False},
        "token-generator": {
            "filename": "transformer.onnx",
            "run_on_prompt": False,
            "output_names_forwarder": {"hidden.out": hidden},
        },
        "transformer-head": {"filename": "head.onnx", "is_lm_head": True},
    }
    rewrite(folder, lambda decoder: decoder.update(pipeline=[stages]))
    return folder


def rewrite(folder, change):
    path = folder / "genai_config.json"
    content = json.loads(path.read_text())
    change(content["model"]["decoder"])
    path.write_text(json.dumps(content))


@pytest.mark.slow
def test_tokens_of_a_split_decoder_equal_those_of_the_joined_one(split):
    expected = Expected(split)  # of model.onnx
    (split / "model.onnx").unlink()
    generator = Generator.load(split, ADAPTER, context=96)
    prompt = prompt_of(20)
    assert list(generator.generate_tokens(prompt, max_tokens=30)) == expected.tokens(prompt, 30)
    assert "".join(generator.generate("the river", max_tokens=4))


@pytest.mark.slow
def test_split_decoders_of_bfloat16(split):
    weights = Generator.load(split, ADAPTER, context=96).memory.weights
    narrowed = 0
    for name in ("model", "embeddings", "transformer", "head"):
        network = onnx.load(split / f"{name}.onnx")
        cut(network)
        narrowed += narrow(network) if name != "model" else 0
        onnx.save(network, split / f"{name}.onnx")
    expected = Expected(split)  # of model.onnx
    (split / "model.onnx").unlink()
    generator = Generator.load(split, ADAPTER, context=96)
    prompt = prompt_of(20)
    assert list(generator.generate_tokens(prompt, max_tokens=30)) == expected.tokens(prompt, 30)
    width = 4 * SIZES.heads * SIZES.head_size
    saved = SIZES.vocabulary * width // 2 + 4 * width  # of five normalizations by ones, four are the first one
    assert narrowed and generator.memory.weights == weights - saved


def test_weights_that_files_share_are_one(split):
    whole = sum(value.array.nbytes for value in read(split).weights.values())
    head = onnx.load(split / "head.onnx")
    largest = max(head.graph.initializer, key=lambda tensor: tensor.ByteSize())
    embeddings = onnx.load(split / "embeddings.onnx")
    copied = embeddings.graph.initializer.add()
    copied.CopyFrom(largest)
    copied.name = "copy"
    embeddings.graph.node.add(op_type="Identity", input=["copy"], output=["copy.out"])
    embeddings.graph.output.add().CopyFrom(onnx.helper.make_tensor_value_info("copy.out", largest.data_type, None))
    onnx.save(embeddings, split / "embeddings.onnx")
    assert sum(value.array.nbytes for value in read(split).weights.values()) == whole
    changed = onnx.numpy_helper.to_array(copied).copy()
    changed.reshape(-1)[-1] += 1
    copied.CopyFrom(onnx.numpy_helper.from_array(changed, "copy"))
    onnx.save(embeddings, split / "embeddings.onnx")
    assert sum(value.array.nbytes for value in read(split).weights.values()) == whole + changed.nbytes


def of_stage(name, **values):
    return lambda folder: rewrite(folder, lambda decoder: decoder["pipeline"][0][name].update(values))


def of_version(folder):
    model = onnx.load(folder / "head.onnx")
    model.opset_import[0].version -= 1
    onnx.save(model, folder / "head.onnx")


def of_type(folder):
    model = onnx.load(folder / "head.onnx")
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(model, folder / "head.onnx")


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            lambda folder: (folder / "head.onnx").unlink(),
            ModelError,
            "must have the network 'head.onnx', which is miss",
        ),
        (of_stage("embeddings", filename="../x"), ModelError, r"pipeline.embeddings.filename must be a file in the"),
        (
            of_stage("embeddings", output_names_forwarder=1),
            ModelError,
            "'embeddings' of model.decoder.pipeline must be",
        ),
        (of_version, NotSupported, "all files must have one operator set of ai.onnx, got 21 and, in head.onnx, 20"),
        (of_type, ModelError, "head.onnx: input '.*' must be float, got float16"),
        (
            lambda folder: rewrite(folder, lambda decoder: decoder.update(pipeline={})),
            ModelError,
            "model.decoder.pipeline must be a list of objects with a file each, got {}",
        ),
    ],
)
def test_damaged_pipelines_are_rejected(split, change, kind, message):
    change(split)
    with pytest.raises(kind, match=f"^tiny: .*{message}"):
        read(split)


# ---- encoders with decoders


@pytest.fixture(scope="module", params=["t5", "bart", "whisper"])
def exported(request, tmp_path_factory):
    """A folder with a random model, and the model."""
    yield from exported_model(request.param, tmp_path_factory)


@pytest.fixture(scope="module", params=["t5", "whisper"])
def exported_narrow(request, tmp_path_factory):
    """The same with weights of BFLOAT16."""
    for folder, model in exported_model(request.param, tmp_path_factory, narrowed=True):
        for path in folder.glob("*.onnx"):
            network = onnx.load(path)
            assert narrow(network)
            onnx.save(network, path)
        yield folder, model


def exported_model(architecture, tmp_path_factory, *, narrowed=False):
    pytest.importorskip("torch", reason="torch exports the model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)  # not needed; it fails to import beside another torch
        pytest.importorskip("transformers", reason="transformers has the model")
        from tests.encoder_decoder_export import export, model_of

        model = model_of(architecture)
        if narrowed:
            model.bfloat16().float()
        folder = tmp_path_factory.mktemp("models") / architecture
        export(model, folder)
        yield folder, model


def prompts_of(model):
    """Two prompts, of different lengths if they are tokens."""
    rng = np.random.default_rng(3)
    if model.main_input_name == "input_features":
        return [rng.standard_normal((8, 40)).astype(np.float32) for _ in range(2)]
    return [[int(token) for token in rng.integers(4, 320, length)] for length in (19, 5)]


@pytest.mark.slow
def test_tokens_and_logits_equal_those_of_transformers(exported):
    agrees(*exported)


@pytest.mark.slow
def test_tokens_of_bfloat16_equal_those_of_transformers(exported_narrow):
    agrees(*exported_narrow)


def agrees(folder, model):
    from tests.encoder_decoder_export import expected_logits

    generator = Generator.load(folder, ADAPTER)
    prompts = prompts_of(model)
    for prompt in prompts:
        with recorded_logits() as logits:
            tokens = list(generator.generate_tokens(prompt, max_tokens=20))
        expected = expected_logits(model, prompt, [2, *tokens[:-1]])
        assert tokens == expected.argmax(axis=1).tolist()
        largest = np.abs(expected[expected > -1e29]).max()
        np.testing.assert_allclose(np.concatenate(logits), expected, rtol=1e-5, atol=2e-5 * largest)
    completions = generator.generate_batch(prompts, max_tokens=8)
    for prompt, completion in zip(prompts, completions, strict=True):
        expected = expected_logits(model, prompt, [2, *completion.tokens[:-1]])
        assert list(completion.tokens) == expected.argmax(axis=1).tolist()
    with pytest.raises(NotSupported, match="embeddings are those of models without an encoder"):
        generator.embed([[5]])
    repeated = generator.generate_batch(prompts, n=2, max_tokens=8)
    assert repeated == [completion for completion in completions for _ in range(2)]


@pytest.mark.slow
def test_caches_of_decoders_with_an_encoder_grow_by_blocks(exported, monkeypatch):
    monkeypatch.setattr(decoding, "SMALLEST_CACHE", 8)
    agrees(*exported)


def rewrite_decoder(folder, tmp_path, change):
    """Return a copy of a folder in which a function changed the graph of the decoder with caches."""
    copy = tmp_path / "changed"
    shutil.copytree(folder, copy)
    path = copy / "decoder_with_past_model.onnx"
    network = onnx.load(path)
    change(network.graph)
    onnx.save(network, path)
    return copy


def with_number_of_rows(graph):
    """Add a number that depends on the number of past tokens, and that rounding removes, to the logits."""
    (head,) = [node for node in graph.node if "logits" in node.output]
    head.output[0] = "logits.before"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(1e-30, np.float32), "none"))
    for op_type, inputs, output, attributes in (
        ("Shape", ["past_key_values.0.decoder.key"], "past.shape", {}),
        ("Cast", ["past.shape"], "past.sizes", {"to": onnx.TensorProto.FLOAT}),
        ("ReduceSum", ["past.sizes"], "past.sum", {"keepdims": 0}),
        ("Mul", ["past.sum", "none"], "past.nothing", {}),
        ("Add", ["logits.before", "past.nothing"], "logits", {}),
    ):
        graph.node.append(onnx.helper.make_node(op_type, inputs, [output], output, **attributes))


@pytest.mark.slow
def test_caches_of_other_networks_grow(exported, tmp_path):
    folder = rewrite_decoder(exported[0], tmp_path, with_number_of_rows)
    generator = Generator.load(folder, ADAPTER)
    assert step_network(generator.model).cache_kind == "grow by concatenation"
    agrees(folder, exported[1])


def positions_of(graph):
    """Return the lookup of positions, and the number of the position."""
    (lookup,) = [node for node in graph.node if node.op_type == "Gather" and "embed_positions" in node.input[0]]
    name = lookup.input[1]
    producers = {output: node for node in graph.node for output in node.output}
    while producers[name].op_type != "Add":
        name = producers[name].input[0]
    return lookup, name


def with_positions_given(graph):
    """Read positions from an input, as Optimum's exports do."""
    _lookup, name = positions_of(graph)
    for node in graph.node:
        node.input[:] = ["cache_position" if source == name else source for source in node.input]
    graph.input.append(onnx.helper.make_tensor_value_info("cache_position", onnx.TensorProto.INT64, [1]))


def with_positions_sliced(graph):
    """Take positions by a slice of the table, as older versions of Transformers do."""
    lookup, name = positions_of(graph)
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "slice.axis"))
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "slice.one"))
    index = list(graph.node).index(lookup)
    table, output = lookup.input[0], lookup.output[0]
    del graph.node[index]
    for node in (
        onnx.helper.make_node("Slice", [table, name, "slice.end", "slice.axis"], [output], output),
        onnx.helper.make_node("Add", [name, "slice.one"], ["slice.end"], "slice.end"),
    ):
        graph.node.insert(index, node)


@pytest.mark.slow
@pytest.mark.parametrize("change", [with_positions_given, with_positions_sliced])
def test_positions_of_other_exports(exported, tmp_path, change):
    if exported[1].config.model_type != "whisper":
        pytest.skip("positions of this form are Whisper's")
    folder = rewrite_decoder(exported[0], tmp_path, change)
    generator = Generator.load(folder, ADAPTER)
    assert step_network(generator.model).is_fixed
    agrees(folder, exported[1])


@pytest.mark.slow
def test_a_merged_decoder_stands_for_both(exported, tmp_path):
    folder, model = exported
    copy = tmp_path / "onnx" / "copy"
    shutil.copytree(folder, copy)
    names = [copy / f"{name}.onnx" for name in ("decoder_model", "decoder_with_past_model")]
    onnx.save(merge(*map(onnx.load, names)), copy / "decoder_model_merged.onnx")
    for name in names:
        name.unlink()
    generator, merged = Generator.load(folder, ADAPTER), Generator.load(copy, ADAPTER)
    assert merged.memory.weights == generator.memory.weights
    for prompt in prompts_of(model):
        tokens = list(generator.generate_tokens(prompt, max_tokens=20))
        assert list(merged.generate_tokens(prompt, max_tokens=20)) == tokens


@pytest.mark.slow
def test_weights_that_networks_share_count_once(exported):
    folder, _ = exported
    arrays = {
        onnx.numpy_helper.to_array(tensor).tobytes(): tensor.ByteSize()
        for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
        for tensor in onnx.load(folder / f"{name}.onnx").graph.initializer
    }
    generator = Generator.load(folder, ADAPTER)
    assert 0.9 * sum(arrays.values()) < generator.memory.weights <= sum(arrays.values())
    network = step_network(generator.model)
    sessions = EncodedDecoding(network, Device(ADAPTER), context=32, label="model").sessions
    assert len(sessions) == 3
    assert len({id(runner_of(session).weights) for session in sessions}) == 1


@pytest.mark.slow
def test_prompts_that_do_not_fit_the_encoder_are_rejected(exported):
    folder, model = exported
    generator = Generator.load(folder, ADAPTER)
    if generator.takes_features:
        for prompt, got in (([5, 6], r"\[5, 6\]"), (np.zeros((8, 41), np.float32), r"an array of shape \[8, 41\]")):
            with pytest.raises(
                InvalidArgument, match=rf"prompt must be a floating-point array \[8, 40\], the .*, got {got}"
            ):
                generator.generate_tokens(prompt)
    elif model.config.model_type == "bart":
        with pytest.raises(InvalidArgument, match="prompt must have at most 96 tokens, got 97"):
            generator.generate_tokens([5] * 97)


@pytest.mark.slow
def test_the_command_line_reads_features(exported, tmp_path, capsys):
    folder, model = exported
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tokenizer(320).save(str(copy / "tokenizer.json"))
    prompt, name = prompts_of(model)[0], str(tmp_path / "audio.npy")
    is_audio = model.main_input_name == "input_features"
    if is_audio:
        np.save(name, prompt)
        with pytest.raises(InvalidArgument, match="the model takes features; pass a file"):
            generate(copy, ADAPTER, prompt="hello", options={"max_tokens": 5})
    generate(copy, ADAPTER, prompt=name if is_audio else "hello", as_json=True, options={"max_tokens": 5})
    result = json.loads(capsys.readouterr().out)
    assert result["statistics"]["tokens"] == 5 and result["completions"][0]["text"]
    show_language_model(copy, ADAPTER, as_text=True)
    assert "a row per token of the context" in capsys.readouterr().out


def without(name, field):
    """Remove an entry of a network."""

    def change(folder):
        model = onnx.load(folder / f"{name}.onnx")
        entries = getattr(model.graph, field)
        del entries[0]
        onnx.save(model, folder / f"{name}.onnx")

    return change


def with_input(folder):
    model = onnx.load(folder / "encoder_model.onnx")
    model.graph.input.append(onnx.helper.make_tensor_value_info("pixel_values", 1, [1]))
    onnx.save(model, folder / "encoder_model.onnx")


def of_layers(folder):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    content["decoder_layers"] = content["num_decoder_layers"] = 3
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            lambda folder: (folder / "decoder_model.onnx").unlink(),
            ModelError,
            "must have a network: decoder_model.onnx",
        ),
        (
            without("encoder_model", "output"),
            ModelError,
            "encoder_model.onnx: must have the output 'last_hidden_state'",
        ),
        (without("decoder_model", "output"), ModelError, "decoder_model.onnx: must have the output 'logits', got pres"),
        (with_input, NotSupported, "encoder_model.onnx: inputs may be attention_mask, .*, got pixel_values"),
        (of_layers, ModelError, "decoder_with_past_model.onnx: must have caches .* for 3 layers, .*, got 8 inputs"),
    ],
)
def test_damaged_folders_are_rejected(exported, tmp_path, change, kind, message):
    folder = tmp_path / "copy"
    shutil.copytree(exported[0], folder)
    change(folder)
    with pytest.raises(kind, match=message):
        Generator.load(folder, ADAPTER)


def test_caches_of_an_encoder_keep_their_type(exported):
    with pytest.raises(NotSupported, match="caches that grow keep the network's type; omit cache_dtype"):
        Generator.load(exported[0], ADAPTER, cache_dtype="float16")
