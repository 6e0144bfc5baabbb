"""Generation with language models: tokens and caches, against onnxruntime and transformers."""

import sys

import numpy as np
import onnx
import pytest

from dmlgpu.common.errors import InvalidArgument, InvalidState, ModelError, NotSupported, OutOfMemory
from dmlgpu.demo.language_model import DecoderSizes, decoder
from dmlgpu.frontends.generation import network
from dmlgpu.frontends.generation.editing import index_type
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.language_model import LanguageConfig, LanguageModel
from dmlgpu.frontends.generation.sampling import SamplingOptions
from dmlgpu.frontends.onnx import Session, load
from dmlgpu.runtime.device import Device
from tests.decoders import exporter, generated, stepping
from tests.language_models import ADAPTER, SIZES, Expected, folder_of, prompt_of
from tests.recorded_logits import recorded_logits

PROMPT = prompt_of(11)
CONFIG = LanguageConfig("llama", 160, 320, 2, 2, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder):
    return Expected(folder)


@pytest.fixture
def generator(folder):
    return Generator.load(folder, ADAPTER)


@pytest.mark.parametrize(
    ("op_type", "inputs", "axis", "expected"),
    [
        ("SkipSimplifiedLayerNormalization", ["a", "b", "scale"], None, ["sum.selected", "scale"]),
        ("SkipLayerNormalization", ["a", "b", "scale", "shift", "bias"], None, ["sum.selected", "scale", "shift"]),
        ("LayerNormalization", ["a", "scale", "shift"], -1, ["a.selected", "scale", "shift"]),
        ("LayerNormalization", ["a", "scale"], 1, None),
    ],
)
def test_rows_are_selected_before_they_are_normalized(op_type, inputs, axis, expected):
    proto = decoder(SIZES)
    (norm,) = [node for node in proto.graph.node if node.output[0] == "layers.1.next.normed"]
    norm.op_type, norm.input[:], norm.output[:] = (
        op_type,
        inputs,
        ["normed", "", "", "sum"][: 4 if "Skip" in op_type else 1],
    )
    del norm.attribute[:]
    if axis is not None:
        norm.attribute.append(onnx.helper.make_attribute("axis", axis))
    (product,) = [node for node in proto.graph.node if node.output[0] == "logits"]
    product.input[0] = "normed"
    step = network.as_step(proto, CONFIG)
    nodes = {node.output[0]: node for node in step.proto.graph.node}
    if expected is None:
        assert nodes["normed.selected.rows"].input[0] == "normed"
        return
    selected = nodes["normed.selected"]
    assert (selected.op_type, list(selected.input)) == (op_type.removeprefix("Skip"), expected)
    assert nodes[f"{expected[0]}.rows"].input[0] == expected[0].removesuffix(".selected")
    epsilons = [attribute.f for attribute in selected.attribute if attribute.name == "epsilon"]
    assert epsilons == ([np.float32(1e-12)] if "Skip" in op_type else [])


def test_tokens_are_cast_only_for_readers_that_need_it():
    for reader, expected in (("Gather", onnx.TensorProto.INT32), ("Equal", onnx.TensorProto.INT64)):
        nodes = [onnx.helper.make_node(name, ["ids", "ids"], [name]) for name in ("Shape", reader)]
        graph = onnx.GraphProto(node=nodes)
        assert index_type(graph, "ids", onnx.TensorProto.INT64) == expected


@pytest.mark.slow
def test_greedy_tokens_and_logits_equal_onnxruntimes(folder, expected):
    generator = Generator(LanguageModel("tiny", folder / "model.onnx", CONFIG), ADAPTER)  # no token ends the text
    expected_logits = expected.logits(PROMPT, 100)
    with recorded_logits() as logits:
        tokens = list(generator.generate_tokens(PROMPT, max_tokens=100))
    assert tokens == [int(row.argmax()) for row in expected_logits]
    np.testing.assert_allclose(np.concatenate(logits), expected_logits, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_prompts_of_different_lengths_are_answered_together(generator, expected):
    prompts = [prompt_of(length, length) for length in (30, 1, 8)]
    completions = generator.generate_batch(prompts, max_tokens=40)
    assert [list(completion.tokens) for completion in completions] == [
        expected.tokens(prompt, 40) for prompt in prompts
    ]
    assert generator.statistics.prompt_tokens == 39
    assert generator.statistics.tokens == sum(len(completion.tokens) for completion in completions)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 4, 16, 100])
def test_long_prompts_run_in_chunks(folder, expected, chunk):
    generator = Generator.load(folder, ADAPTER, chunk=chunk)
    prompt = prompt_of(60, 3)
    assert list(generator.generate_tokens(prompt, max_tokens=8)) == expected.tokens(prompt, 8)
    prompts = [prompt, prompt_of(25, 4)]
    completions = generator.generate_batch(prompts, max_tokens=8)
    assert [list(completion.tokens) for completion in completions] == [expected.tokens(prompt, 8) for prompt in prompts]


def test_the_last_rows_of_a_context_are_used(folder, expected):
    generator = Generator.load(folder, ADAPTER, context=39)
    prompt = prompt_of(35, 5)
    assert list(generator.generate_tokens(prompt)) == expected.tokens(prompt, 4)


@pytest.mark.slow
def test_a_prompt_that_continues_another_one_reuses_its_cache(generator, expected):
    answer = list(generator.generate_tokens(PROMPT, max_tokens=20))
    assert generator.statistics.reused_tokens == 0
    longer = [*PROMPT, *answer, 17, 18]
    assert list(generator.generate_tokens(longer, max_tokens=20)) == expected.tokens(longer, 20)
    assert generator.statistics.reused_tokens >= len(longer) - 3
    shorter = [*PROMPT, *answer[:5], 99]
    assert list(generator.generate_tokens(shorter, max_tokens=20)) == expected.tokens(shorter, 20)
    assert generator.statistics.reused_tokens == len(shorter) - 1


@pytest.mark.slow
def test_a_closed_iterator_leaves_the_cache_known(generator, expected):
    tokens = generator.generate_tokens(PROMPT, max_tokens=20)
    first = [next(tokens) for _ in range(3)]
    tokens.close()
    assert first == expected.tokens(PROMPT, 3)
    longer = [*PROMPT, *first, 17]
    assert list(generator.generate_tokens(longer, max_tokens=20)) == expected.tokens(longer, 20)
    assert generator.statistics.reused_tokens == len(longer) - 1


@pytest.mark.parametrize("interrupted", [1, 2, 5])
def test_an_interrupted_run_leaves_the_generator_usable(generator, expected, monkeypatch, interrupted):
    run, runs = Session.run_tensors, 0

    def interrupt(*arguments):
        nonlocal runs
        runs += 1
        if runs == interrupted:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(Session, "run_tensors", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(generator.generate_tokens(PROMPT, max_tokens=20))
    assert list(generator.generate_tokens(PROMPT, max_tokens=20)) == expected.tokens(PROMPT, 20)


def test_a_second_generation_ends_the_first(generator):
    first = generator.generate_tokens(PROMPT, max_tokens=20)
    next(first)
    second = generator.generate_tokens(PROMPT, max_tokens=20)
    next(second)
    with pytest.raises(InvalidState, match="another generation has begun"):
        next(first)
    next(second)


@pytest.mark.slow
def test_caches_of_4096_rows_agree_with_onnxruntime(tmp_path):
    sizes = DecoderSizes(1, 2, 1, 16, feed_forward=32, vocabulary=320, context=4096, deviation=0.5)
    folder = folder_of(tmp_path, sizes)
    prompt = prompt_of(4085, 6)
    generator = Generator.load(folder, ADAPTER, chunk=512)
    assert list(generator.generate_tokens(prompt, max_tokens=6)) == Expected(folder, sizes).tokens(prompt, 6)


def test_tables_of_rotary_embeddings_have_rows_for_the_context(folder, expected, monkeypatch):
    """Full tables may be larger than the weights: here 160 rows of 16 float32 cosines and sines.

    The rows are a power of two, so that plans on disk do not depend on the context.
    """
    monkeypatch.setattr(network, "SMALLEST_TABLE", 16)
    whole, middle, short = (Generator.load(folder, ADAPTER, context=context) for context in (160, 129, 48))
    assert whole.memory.weights == middle.memory.weights
    assert whole.memory.weights - short.memory.weights == (160 - 64) * SIZES.head_size * 4
    prompt = prompt_of(20)
    assert list(short.generate_tokens(prompt, max_tokens=28)) == expected.tokens(prompt, 28)


# ---- other kinds of networks


@pytest.mark.slow
def test_decoders_that_return_the_last_logits_only():
    module = exporter()
    size = module.Size(layers=2, heads=2, hidden=32, vocabulary=50, places=48, deviation=0.3)
    network = module.decoder(size)
    config = LanguageConfig("gpt2", 48, 50, 2, 2, 16)
    generator = Generator(LanguageModel("decoder", network, config), ADAPTER, context=16)
    answer = generated(stepping(load(network, ADAPTER), size), [3, 4, 5], 10)
    assert list(generator.generate_tokens([3, 4, 5], max_tokens=10)) == answer
    completions = generator.generate_batch([[3, 4, 5], [6]], max_tokens=10)
    assert completions[0].tokens == tuple(answer)


@pytest.fixture(scope="module", params=["whole", "merged", "merged, bfloat16"])
def exported(request, tmp_path_factory):
    """A folder with a random Llama with growing caches, and the tokens that transformers generates with it."""
    torch = pytest.importorskip("torch", reason="torch exports the model")
    folder = tmp_path_factory.mktemp("llama")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)  # not needed; it fails to import beside another torch
        pytest.importorskip("transformers", reason="transformers has the model")
        from tests.transformers_export import export

        prompts = [prompt_of(length, length)[:length] for length in (20, 3, 7)]
        merged, narrowed = (word in request.param for word in ("merged", "bfloat16"))
        return folder, export(torch, folder, prompts, merged=merged, narrowed=narrowed)


@pytest.mark.slow
def test_growing_caches_agree_with_transformers(exported):
    folder, answers = exported
    generator = Generator.load(folder, ADAPTER, chunk=16)
    for prompt, answer in answers:
        assert list(generator.generate_tokens(prompt, max_tokens=100)) == answer
    completions = generator.generate_batch([prompt for prompt, _ in answers], max_tokens=100)
    assert [list(completion.tokens) for completion in completions] == [answer for _, answer in answers]


@pytest.mark.slow
def test_growing_caches_are_reused(exported):
    folder, answers = exported
    prompt, answer = answers[0]
    generator = Generator.load(folder, ADAPTER)
    assert list(generator.generate_tokens(prompt, max_tokens=30)) == answer[:30]
    assert list(generator.generate_tokens([*prompt, *answer[:7]], max_tokens=20)) == answer[7:27]
    assert generator.statistics.reused_tokens == len(prompt) + 6
    other = [*prompt[:1], *answer[:30]]
    expected = list(Generator.load(folder, ADAPTER, chunk=1).generate_tokens(other, max_tokens=20))
    assert list(generator.generate_tokens(other, max_tokens=20)) == expected
    assert generator.statistics.reused_tokens == (1 if (folder / "model.onnx").exists() else 0)


# ---- bad input


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "prompt must have tokens, got none"),
        ("", {}, "prompt must have tokens, got none"),
        ([5, 320], {}, "tokens must be from 0 to 319, got 320"),
        ([5, -1], {}, "tokens must be from 0 to 319, got -1"),
        ([5, 1.5], {}, r"prompt must be text or a list of token ids, got 1.5 in it"),
        (7, {}, "prompt must be text or a list of token ids, got 7"),
        ([5] * 160, {}, "prompt must have at most 159 tokens for a context of 160, got 160"),
        ([5], {"max_tokens": 0}, "max_tokens must be an integer of at least 1, got 0"),
        ([5], {"temperature": -1}, "temperature must be a number from 0 to 3.4e38, got -1"),
        ([5], {"temperature": float("nan")}, "temperature must be a number from 0 to 3.4e38, got nan"),
        ([5], {"top_k": -1}, "top_k must be an integer of at least 0, got -1"),
        ([5], {"top_p": 0}, "top_p must be above 0 and at most 1, got 0"),
        ([5], {"top_p": 1.5}, "top_p must be above 0 and at most 1, got 1.5"),
        ([5], {"min_p": 1.1}, "min_p must be from 0 to 1, got 1.1"),
        ([5], {"presence_penalty": "x"}, "presence_penalty must be a number from -3.4e38 to 3.4e38, got 'x'"),
        ([5], {"frequency_penalty": float("inf")}, "frequency_penalty must be a number from -3.4e38"),
        ([5], {"logit_bias": {"5": 1}}, "logit_bias must be a mapping from token ids to numbers, got "),
        ([5], {"logit_bias": {320: 1}}, "logit_bias must have tokens from 0 to 319, got 320"),
        ([5], {"repetition_penalty": 0}, "repetition_penalty must be above 0, at most 3.4e38, got 0"),
        ([5], {"repetition_penalty": 1e39}, r"repetition_penalty must be above 0, at most 3.4e38, got 1e\+39"),
        ([5], {"temperature": 10**400}, "temperature must be a number from 0 to 3.4e38, got an integer of 1329 bits"),
        (
            [5],
            {"temprature": 1},
            "unknown option 'temprature'; options are max_tokens, stop, temperature, top_k, top_p",
        ),
        ([5], {"logprobs": 101}, "logprobs must be from 0 to 100, got 101"),
        ([5], {"seed": -1}, r"seed must be from 0 to 2\^64 - 1, got -1"),
        ([5], {"stop": [""]}, "stop must be strings that are not empty"),
        ([5], {"stop": None}, "stop must be strings that are not empty, got None"),
        ("a\udc80", {}, "prompt must be text in Unicode: 'utf-8' codec can't encode"),
        (b"text", {}, "prompt must be text or a list of token ids, got b'text'"),
    ],
)
def test_wrong_arguments_are_rejected_at_once(generator, prompt, options, message):
    with pytest.raises(InvalidArgument, match=f"^model 'tiny': {message}"):
        generator.generate(prompt, **options)


@pytest.mark.parametrize("context", [1, 161, 2.5, True])
def test_contexts_must_fit_the_model(folder, context):
    with pytest.raises(InvalidArgument, match="context must be from 2 to 160"):
        Generator.load(folder, ADAPTER, context=context)


@pytest.mark.parametrize("dtype", ["int16", "float64", 3.5, ["float16"]])
def test_caches_are_of_few_types(folder, dtype):
    message = r"^model 'tiny': cache_dtype must be float32, float16 or int8, got "
    with pytest.raises(InvalidArgument, match=message):
        Generator.load(folder, ADAPTER, cache_dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "block", "message"),
    [
        ("int8", 5, "cache_block must divide a head of 16 elements, got 5"),
        ("int8", True, "cache_block must divide a head of 16 elements, got True"),
        ("float16", 8, "cache_block needs cache_dtype='int8', got 'float16'"),
        (None, 8, "cache_block needs cache_dtype='int8', got None"),
    ],
)
def test_blocks_divide_the_heads_of_caches(folder, dtype, block, message):
    with pytest.raises(InvalidArgument, match=f"^model 'tiny': {message}$"):
        Generator.load(folder, ADAPTER, cache_dtype=dtype, cache_block=block)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, "int8"])
def test_caches_that_grow_keep_their_type(exported, dtype):
    with pytest.raises(NotSupported, match="caches that grow keep the network's type, float32"):
        Generator.load(exported[0], ADAPTER, cache_dtype=dtype)


def test_models_that_do_not_fit_are_rejected_before_they_are_loaded(folder, monkeypatch):
    monkeypatch.setattr("dmlgpu.frontends.generation.decoding.Session", None)
    with pytest.raises(
        InvalidArgument, match=r"does not fit 'NumPy.*needs memory 0.2 MiB: weights 0.1 MiB, .* budget is 0.1 MiB"
    ):
        Generator.load(folder, Device(ADAPTER, memory_budget=100_000))


def test_a_batch_that_does_not_fit_is_rejected(folder):
    generator = Generator.load(folder, Device(ADAPTER, memory_budget=600_000))
    with pytest.raises((InvalidArgument, OutOfMemory), match="does not fit"):
        generator.generate_batch([[5]] * 20, max_tokens=2)


def changed(folder, change):
    """The network of a folder with a change in its graph."""
    import onnx

    proto = onnx.load(folder / "model.onnx")
    change(proto.graph)
    return proto


def rename(infos, name, new):
    next(info for info in infos if info.name == name).name = new


@pytest.mark.parametrize(
    ("change", "config", "kind", "message"),
    [
        (lambda graph: rename(graph.input, "input_ids", "tokens"), CONFIG, ModelError, "must have 'input_ids'"),
        (lambda graph: rename(graph.output, "logits", "scores"), CONFIG, ModelError, "must have 'logits'"),
        (
            lambda graph: rename(graph.output, "present.1.key", "present"),
            CONFIG,
            ModelError,
            "cache 'past_key_values.1.key' has no output that updates it",
        ),
        (lambda graph: None, LanguageConfig("llama", 160, 320, 3, 2, 16), ModelError, "for 3 layers.*, got 4 inputs"),
        (
            lambda graph: None,
            LanguageConfig("llama", 160, 320, 2, 4, 16),
            ModelError,
            "must have 4 heads of 16, as the configuration says, got 2 of 16",
        ),
        (
            lambda graph: None,
            LanguageConfig("llama", 160, 999, 2, 2, 16),
            ModelError,
            "'logits' must have 999 elements, as the configuration says, got 320",
        ),
        (
            lambda graph: (
                graph.node[-1].input.__setitem__(0, "encoder_hidden_states")
                or graph.input.add(name="encoder_hidden_states").type.tensor_type.__setattr__("elem_type", 1)
            ),
            CONFIG,
            NotSupported,
            "inputs of a decoder are input_ids, .*, got encoder_hidden_states",
        ),
        (
            lambda graph: setattr(max(graph.initializer, key=lambda tensor: tensor.ByteSize()), "data_type", 0),
            CONFIG,
            NotSupported,
            "initializer '.*': elements of type undefined are not supported",
        ),
        (
            lambda graph: setattr(graph.input[-1].type.tensor_type, "elem_type", 8),
            CONFIG,
            NotSupported,
            "cache 'past_key_values.1.value': elements of type string are not supported",
        ),
    ],
)
def test_networks_that_are_no_decoders_are_rejected(folder, change, config, kind, message):
    model = LanguageModel("tiny", changed(folder, change), config)
    with pytest.raises(kind, match=message):
        Generator(model, ADAPTER)


def test_growing_caches_need_positions(exported):
    import onnx

    folder, _ = exported
    proto = onnx.load(next(folder.glob("*.onnx")))
    inputs = [info for info in proto.graph.input if info.name != "position_ids"]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 1), np.int64), "position_ids"))
    config = Generator.load(folder, ADAPTER).model.config
    with pytest.raises(NotSupported, match="need the inputs attention_mask and position_ids"):
        Generator(LanguageModel("llama", proto, config), ADAPTER)


@pytest.mark.parametrize(
    "messages",
    [None, [], [{"role": "user"}], [{"role": "user", "content": None}], [{"role": "user", "content": 5}]],
)
def test_malformed_conversations_are_rejected(generator, messages):
    with pytest.raises(InvalidArgument, match=r"^model 'tiny': messages must be a list of \{"):
        generator.chat(messages)


def test_probabilities_of_tokens(generator, expected):
    logits = [row.astype(np.float64) for row in expected.logits(PROMPT, 5)]
    logs = [row - row.max() - np.log(np.exp(row - row.max()).sum()) for row in logits]
    list(generator.generate(PROMPT, max_tokens=5, logprobs=3))
    (steps,) = generator.logprobs
    assert [step.token for step in steps] == generator.answers[0] == [int(row.argmax()) for row in logits]
    for step, row in zip(steps, logs, strict=True):
        order = np.argsort(-row)[:3]
        assert [token for token, _ in step.top] == order.tolist()
        np.testing.assert_allclose([value for _, value in step.top], row[order], atol=1e-3)
        assert step.logprob == step.top[0][1]
    (text,) = generator.generate_batch([PROMPT], max_tokens=2, logprobs=0, logit_bias={7: 1e6})
    assert [(step.token, step.top) for step in text.logprobs] == [(7, ()), (7, ())]
    assert text.logprobs[0].logprob == pytest.approx(logs[0][7], abs=1e-3)  # before the bias
    list(generator.generate(PROMPT, max_tokens=2))
    assert generator.logprobs == [[]]


def test_several_answers_share_the_rows_of_their_prompt(generator, expected, monkeypatch):
    prompts = [PROMPT, prompt_of(4, 2)]
    prefill, computed = generator._decoding.prefill, []
    monkeypatch.setattr(
        generator._decoding, "prefill", lambda prompts, reused: computed.append(prompts) or prefill(prompts, reused)
    )
    answers = generator.generate_batch(prompts, n=3, max_tokens=6)
    greedy = [tuple(expected.tokens(prompt, 6)) for prompt in prompts for _ in range(3)]
    assert [answer.tokens for answer in answers] == greedy
    assert computed == [prompts]
    assert generator.statistics.prompt_tokens == len(PROMPT) + 4
    assert generator.memory.caches == 6 * generator.context * 512
    sampled = generator.generate_batch([PROMPT], n=4, max_tokens=6, temperature=1.5, seed=1)
    assert len({answer.tokens for answer in sampled}) > 1
    assert list(generator.generate_tokens(PROMPT, max_tokens=6)) == list(greedy[0])
    with pytest.raises(InvalidArgument, match=r"^model 'tiny': n must be an integer of at least 1, got 0$"):
        generator.generate_batch([PROMPT], n=0)


@pytest.fixture(scope="module")
def hidden_states(folder, tmp_path_factory):
    """onnxruntime's input of the product that computes the logits, by prompt."""
    import onnx
    import onnxruntime

    proto = onnx.load(folder / "model.onnx")
    (node,) = [node for node in proto.graph.node if "logits" in node.output]
    proto.graph.output.append(onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None))
    path = str(tmp_path_factory.mktemp("hidden") / "model.onnx")
    onnx.save(proto, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    empty = np.zeros((1, SIZES.kv_heads, 0, SIZES.head_size), np.float32)
    caches = {info.name: empty for info in session.get_inputs() if info.name.startswith("past")}

    def of(prompt):
        inputs = {"input_ids": np.array([prompt]), "attention_mask": np.ones((1, len(prompt)), np.int64), **caches}
        return session.run([node.input[0]], inputs)[0][0]

    return of


@pytest.mark.parametrize("chunk", [16, 256])
def test_embeddings_are_means_or_last_rows_of_hidden_states(folder, hidden_states, chunk):
    generator = Generator.load(folder, ADAPTER, chunk=chunk)
    prompts = [prompt_of(length, length) for length in (37, 1, 9)]
    states = [hidden_states(prompt) for prompt in prompts]
    for pooling, pooled in (("mean", [rows.mean(0) for rows in states]), ("last", [rows[-1] for rows in states])):
        plain = generator.embed(prompts, pooling=pooling, normalize=False)
        np.testing.assert_allclose(plain, pooled, rtol=1e-3, atol=1e-4)
        unit = generator.embed(prompts[0], pooling=pooling)
        np.testing.assert_allclose(unit, pooled[0] / np.linalg.norm(pooled[0]), rtol=1e-3, atol=1e-4)
    text = "the river"
    np.testing.assert_array_equal(generator.embed([text])[0], generator.embed(generator.tokens_of(text)))


def test_embeddings_end_a_generation(generator, expected):
    tokens = generator.generate_tokens(PROMPT, max_tokens=20)
    next(tokens)
    generator.embed("a")
    with pytest.raises(InvalidState, match="another generation has begun"):
        next(tokens)
    assert list(generator.generate_tokens(PROMPT, max_tokens=6)) == expected.tokens(PROMPT, 6)
    for prompts, options, message in (
        ([], {}, r"prompts must be a list of prompts, got \[\]"),
        ("a", {"pooling": "cls"}, "pooling must be 'mean' or 'last', got 'cls'"),
        ([[5] * 160], {}, "prompt must have at most 159 tokens"),
    ):
        with pytest.raises(InvalidArgument, match=f"^model 'tiny': {message}"):
            generator.embed(prompts, **options)


def test_chats_are_sampled_by_default_and_generations_are_not(generator):
    defaults = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.05}
    assert generator.sampling_defaults == defaults
    assert generator.with_defaults({"temperature": 0, "top_k": 5}) == {"temperature": 0, "top_k": 5}
    assert generator.with_defaults({"top_p": 0.5}) == defaults | {"top_p": 0.5}
    prompt = generator.chat_tokens("hi")
    (first, same), explicit = (
        ["".join(generator.chat("hi", max_tokens=8, **options)) for options in each]
        for each in (({"seed": 1}, {"seed": 1}), ({"seed": 1, **defaults}, {"temperature": 0}))
    )
    assert [first, first] == [same, explicit[0]]
    assert explicit[1] == "".join(generator.generate(prompt, max_tokens=8)) != first


def test_a_question_is_a_conversation_of_one_message(generator, expected):
    prompt = generator.chat_tokens([{"role": "user", "content": "hi"}])
    answer = generator.model.tokenizer.decode(expected.tokens(prompt, 6))
    assert "".join(generator.chat("hi", max_tokens=6, temperature=0)) == answer
    assert generator.chat_tokens("hi") == prompt
    with pytest.raises(InvalidArgument, match=r"^model 'tiny': a question must have text, got ' '$"):
        generator.chat(" ")


@pytest.mark.parametrize("options", [{"top_p": 1e-300}, {"temperature": 1e-300}, {"temperature": 1e-38, "top_k": 5}])
def test_tiny_options_take_the_most_likely_token(generator, options):
    prompt = prompt_of(12)
    greedy = list(generator.generate_tokens(prompt, max_tokens=6))
    sampled = SamplingOptions(**{"temperature": 1.0, "seed": 1} | options)
    assert list(generator.generate_tokens(prompt, max_tokens=6, options=sampled)) == greedy


def test_models_without_a_tokenizer_take_tokens_only(folder):
    model = LanguageModel("tiny", folder / "model.onnx", CONFIG)
    generator = Generator(model, ADAPTER)
    assert (
        len(list(generator.generate_tokens([5], max_tokens=3, options=SamplingOptions(seed=1, temperature=1.0)))) <= 3
    )
    with pytest.raises(InvalidArgument, match="has no tokenizer; pass a list of token ids"):
        generator.generate_tokens("text")
    with pytest.raises(InvalidArgument, match="has no tokenizer; call generate_tokens"):
        generator.generate([5])


def test_generations_may_be_made_before_they_begin(generator, expected):
    prompts = [PROMPT, prompt_of(5, 1)]
    first, second = (generator.generate_tokens(prompt, max_tokens=6) for prompt in prompts)
    assert [list(first), list(second)] == [expected.tokens(prompt, 6) for prompt in prompts]
