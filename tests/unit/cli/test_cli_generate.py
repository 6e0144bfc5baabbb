"""``dmlgpu generate``, ``dmlgpu show MODEL`` of a language model, and ``dmlgpu demo generate``."""

import contextlib
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.cli import generate as verb
from dmlgpu.cli.main import INTERRUPTED, USAGE
from dmlgpu.cli.run import CompileStatus
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.onnx.segments import Segment
from tests.language_models import ADAPTER, Expected, folder_of
from tests.unit.cli.cli_process import run_here

PROMPT = "panorama"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder):
    """onnxruntime's 8 most likely tokens after a text in which special tokens are written out, and these as text."""
    decoder, tokenizer = Expected(folder), Generator.load(folder, ADAPTER).model.tokenizer

    def of(text):
        tokens = decoder.tokens(tokenizer.encode(text).ids, 8)
        return tokens, tokenizer.decode(tokens)

    return of


def templated(question, system=None):
    """What the chat template makes of a question."""
    before = "" if system is None else f"<|system|>{system}<|end|>"
    return f"{before}<|user|>{question}<|end|><|assistant|>"


@pytest.fixture(scope="module")
def tokens(expected):
    return expected(templated(PROMPT))[0]


@pytest.fixture(scope="module")
def answer(expected):
    return expected(templated(PROMPT))[1]


def generate(folder, *options):
    return run_here("generate", folder, "--adapter", ADAPTER, "--max-tokens", "8", "-t", "0", *options)


def test_the_text_and_the_speed_are_printed(folder, answer):
    process = generate(folder, "--prompt", PROMPT)
    assert (process.returncode, process.stdout) == (0, f"{answer}\n")
    assert re.search(
        r"prompt \d+ tokens in [\d.]+ m?s .*, with compiling\); 8 tokens, [\d,.]+ tokens/s; memory 0.2 MiB",
        process.stderr,
    )


@pytest.mark.slow
def test_the_chat_template_is_applied_unless_the_prompt_is_raw(folder, expected, tmp_path):
    batch = tmp_path / "prompts.txt"
    batch.write_text(f"{PROMPT}\nanother\n")
    for text_of, options in (
        (templated, ()),
        (lambda question: templated(question, "Be brief."), ("--system", "Be brief.")),
        (str, ("--raw",)),
    ):
        first, second = (expected(text_of(question)) for question in (PROMPT, "another"))
        assert generate(folder, "--prompt", PROMPT, *options).stdout == f"{first[1]}\n", options
        completions = json.loads(generate(folder, "--batch", batch, "--json", *options).stdout)["completions"]
        assert [(each["tokens"], each["text"]) for each in completions] == [first, second], options
        assert [each["prompt"] for each in completions] == [PROMPT, "another"]


@pytest.mark.slow
def test_conversations_of_the_command_line(folder, expected, monkeypatch):
    system = "Be brief."
    first = expected(templated("one", system))[1]
    second = expected(f"{templated('one', system)}{first}<|end|>{templated('two')}")[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    assert generate(folder, "--system", system).stdout == f"{first}\n{second}\n"
    monkeypatch.setattr("sys.stdin", io.StringIO("one\ntwo\n"))
    process = generate(folder, "--raw")
    assert process.stdout == f"{expected('one')[1]}\n{expected('two')[1]}\n"
    assert "--raw: each line is a prompt by itself" in process.stderr


@pytest.mark.slow
def test_models_without_a_template_continue_prompts(folder, expected, tmp_path):
    plain = shutil.copytree(folder, tmp_path / "plain")
    (plain / "tokenizer_config.json").unlink()
    for options in ((), ("--raw",)):
        assert generate(plain, "--prompt", PROMPT, *options).stdout == f"{expected(PROMPT)[1]}\n"
    batch = tmp_path / "prompts.jsonl"
    batch.write_text('{"messages": [{"role": "user", "content": "x"}]}')
    for options, message in (
        (("--prompt", "x", "--system", "y"), "generate: --system needs a chat template, which model 'plain' lacks"),
        (("--batch", batch), "model 'plain': chat needs a chat template, which the model lacks"),
    ):
        process = generate(plain, *options)
        assert (process.returncode, process.stdout) == (USAGE, "")
        assert message in process.stderr


@pytest.mark.slow
def test_empty_answers_are_noted(folder, tmp_path, monkeypatch):
    """The model ends an answer at once, or a stop string does."""
    batch = tmp_path / "prompts.txt"
    batch.write_text(f"{PROMPT}\nanother\n")
    steps = Generator._run_steps

    def ended(generator, prompts, limit, options, done, **others):
        for step in steps(generator, prompts, 1, options, done, **others):
            generator.answers[-1][:] = [0]
            yield step | {len(prompts) - 1: 0}

    with monkeypatch.context() as patch:
        patch.setattr(Generator, "_run_steps", ended)
        process = generate(folder, "--prompt", PROMPT)
        assert (process.returncode, process.stdout) == (0, "\n")
        assert process.stderr.endswith("note: the answer is empty: the model ended it by <|end|>\n")
        raw = "note: the answer is empty: the model ended it by <|end|>; without --raw, the chat template is applied\n"
        for options in ((), ("--json",)):
            assert generate(folder, "--raw", "--prompt", PROMPT, *options).stderr.endswith(raw)
            process = generate(folder, "--batch", batch, *options)
            assert process.stderr.endswith("note: answer 2 is empty: the model ended it by <|end|>\n")
            assert "answer 1" not in process.stderr
    first = generate(folder, "--prompt", PROMPT).stdout[0]
    process = generate(folder, "--prompt", PROMPT, "--stop", first)
    assert process.stderr.endswith("note: the answer is empty: a stop string ended it\n")


@pytest.mark.slow
def test_json(folder, answer, tokens):
    result = json.loads(generate(folder, "--prompt", PROMPT, "--json", "--context", "64").stdout)
    assert result["completions"] == [{"prompt": PROMPT, "text": answer, "tokens": tokens}]
    assert (result["context"], result["statistics"]["tokens"]) == (64, 8)
    assert result["memory"]["total_bytes"] > result["memory"]["cache_bytes"] == 64 * 512


@pytest.mark.slow
def test_a_file_of_prompts(folder, answer, tokens, tmp_path):
    batch = tmp_path / "prompts.txt"
    batch.write_text(f"{PROMPT}\n\nanother\n")
    lines = generate(folder, "--batch", batch).stdout.split("[2] ")
    assert lines[0] == f"[1] {PROMPT}\n{answer}\n\n"
    assert lines[1].startswith("another\n")
    completions = json.loads(generate(folder, "--batch", batch, "--json").stdout)["completions"]
    assert completions[0] == {"line": 1, "prompt": PROMPT, "text": answer, "tokens": tokens}
    assert completions[1]["line"] == 3
    assert [len(completion["tokens"]) for completion in completions] == [8, 8]


@pytest.mark.slow
def test_sampling_options_reach_the_generator(folder, answer):
    options = "--prompt", PROMPT, "--temperature", "2", "--top-k", "50", "--top-p", "0.95", "--seed", "3"
    first = generate(folder, *options)
    assert first.stdout == generate(folder, *options).stdout != f"{answer}\n"
    stopped = generate(folder, "--prompt", PROMPT, "--stop", answer[1:3])
    assert stopped.stdout == f"{answer[: answer.index(answer[1:3])]}\n"


def test_ctrl_c_keeps_the_text_so_far(folder, tokens, monkeypatch):
    run = Generator.generate
    first = Generator.load(folder, ADAPTER).model.tokenizer.decode(tokens[:1])

    def interrupted(generator, prompt, **options):
        yield next(run(generator, prompt, **options))
        raise KeyboardInterrupt

    monkeypatch.setattr(Generator, "generate", interrupted)
    process = generate(folder, "--prompt", PROMPT)
    assert (process.returncode, process.stdout) == (INTERRUPTED, f"{first}\n")
    assert "tokens/s" in process.stderr


@pytest.mark.slow
def test_a_conversation_continues_after_an_interrupt(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nagain\n\nlast\n"))
    generator = Generator.load(folder, ADAPTER)
    monkeypatch.setattr(verb, "load", lambda *arguments: generator)
    chat_tokens, run, messages = generator.chat_tokens, generator.generate, []

    def noted(conversation, **switches):
        messages.append([message["role"] for message in conversation])
        return chat_tokens(conversation, **switches)

    def interrupted(prompt, **options):
        for index, piece in enumerate(run(prompt, **options)):
            if len(messages) == 1 and index == 1:
                raise KeyboardInterrupt
            yield piece

    monkeypatch.setattr(generator, "chat_tokens", noted)
    monkeypatch.setattr(generator, "generate", interrupted)
    verb.generate(folder, ADAPTER, options={"max_tokens": 8, "temperature": 0})
    assert messages == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user", "assistant", "user"]]
    assert " ...\n" in capsys.readouterr().out


def test_messages_without_an_answer_are_forgotten(folder, monkeypatch, capsys):
    """Interrupted before the first token, while kernels are compiled for example."""
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\nagain\n"))
    generator = Generator.load(folder, ADAPTER)
    monkeypatch.setattr(verb, "load", lambda *arguments: generator)
    prefill, lengths = generator._decoding.prefill, []

    def interrupted(prompts, reused):
        lengths.append(len(prompts[0]))
        if len(lengths) == 1:
            raise KeyboardInterrupt
        return prefill(prompts, reused)

    monkeypatch.setattr(generator._decoding, "prefill", interrupted)
    verb.generate(folder, ADAPTER, options={"max_tokens": 4, "temperature": 0})
    errors = capsys.readouterr().err.splitlines()
    assert lengths[1] == len(generator.chat_tokens([{"role": "user", "content": "again"}]))
    assert re.fullmatch(r"prompt \d+ tokens; memory .*", errors[0])
    assert "4 tokens" in errors[1]


@pytest.fixture
def conversing(folder, monkeypatch):
    """Holds a conversation of some lines; returns the prompts as text."""
    generator = Generator.load(folder, ADAPTER)
    monkeypatch.setattr(verb, "load", lambda *arguments: generator)
    run, prompts = generator.generate, []

    def noted(prompt, **options):
        prompts.append(generator.model.tokenizer.decode(prompt, skip_special_tokens=False))
        return run(prompt, **options)

    monkeypatch.setattr(generator, "generate", noted)

    def converse(*lines, **options):
        prompts.clear()
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
        verb.generate(folder, ADAPTER, options={"max_tokens": 2, "temperature": 0}, **options)
        return prompts

    return converse


def test_commands_of_a_conversation(conversing, tmp_path, capsys):
    file = tmp_path / "conversation.jsonl"
    prompts = conversing("one", "/system Be brief.", "two", f"/save {file}", "/clear", "three", "/system", "/clearly")
    assert [prompt.count("<|user|>") for prompt in prompts] == [1, 2, 1, 2]
    assert [prompt.startswith("<|system|>Be brief.<|end|><|user|>") for prompt in prompts] == [False, True, True, False]
    assert prompts[2] == templated("three", "Be brief.")
    assert prompts[3].endswith("<|user|>/clearly<|end|><|assistant|>")
    (messages,) = json.loads(file.read_text()).values()
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert [message["content"] for message in messages[::2][:1] + messages[1::2]] == ["Be brief.", "one", "two"]
    assert "4 messages are in " in capsys.readouterr().err
    for line, message in (("/save", "/save needs the name of a file"), (f"/save {tmp_path}/no/x", "No such file")):
        with pytest.raises((InvalidArgument, OSError), match=message):
            conversing(line)


def test_a_long_conversation_forgets_its_oldest_messages_and_says_so_once(conversing, capsys):
    lines = [f"{index} {'x' * 20}" for index in range(8)]
    prompts = conversing(*lines, "/save /dev/null", system="S")
    starts = [[index for index in range(8) if f"|>{index} xx" in prompt] for prompt in prompts]
    assert all(start == list(range(start[0], last + 1)) for last, start in enumerate(starts))
    assert starts[1][0] == 0 < starts[-1][0] < 7
    assert all(prompt.startswith("<|system|>S<|end|><|user|>") for prompt in prompts)
    errors = capsys.readouterr().err
    assert errors.count("note: the conversation exceeds the context of 160 tokens") == 1
    assert "16 messages are in /dev/null" in errors


def test_an_interrupt_ends_the_spinner(folder, monkeypatch):
    ended = []

    def interrupted(segment):
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def compiling(self, segment):
        try:
            yield
        finally:
            ended.append(segment)

    monkeypatch.setattr(CompileStatus, "compiling", compiling)
    monkeypatch.setattr(Segment, "prepared", property(interrupted))
    with pytest.raises(KeyboardInterrupt), CompileStatus.shown():
        Generator.load(folder, ADAPTER).generate_tokens([5, 6]).__next__()
    assert len(ended) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt", "x", "--batch", "FILE"), "--prompt and --batch cannot be combined"),
        (("--prompt", "x", "--raw", "--system", "y"), "--raw and --system cannot be combined"),
        (("--json",), "--json needs --prompt or --batch"),
        (("--batch", "EMPTY"), "must have a prompt per line, got none"),
        (("--prompt", "x", "--context", "1000"), "context must be from 2 to 160, got 1000"),
        (("--prompt", "x" * 300), "prompt must have at most 159 tokens for a context of 160, got"),
        (("--prompt", "x", "--top-p", "0"), "top_p must be above 0 and at most 1, got 0.0"),
    ],
)
def test_wrong_options_are_one_sentence(folder, options, message, tmp_path):
    (tmp_path / "FILE").write_text("x")
    (tmp_path / "EMPTY").write_text("\n")
    paths = [str(tmp_path / option) if option in ("FILE", "EMPTY") else option for option in options]
    process = generate(folder, *paths)
    assert process.returncode == USAGE
    assert message in process.stderr.splitlines()[-1]


def test_wrong_prompts_print_no_text(folder):
    for options in ((), ("--json",), ("--raw",)):
        process = generate(folder, "--prompt", "", *options)
        assert (process.returncode, process.stdout) == (USAGE, "")
        assert "tokens/s" not in process.stderr


def test_wrong_options_are_reported_before_the_model_is_loaded(tmp_path):
    process = generate(tmp_path / "absent", "--prompt", "x", "--top-p", "0")
    assert process.stderr == "dmlgpu: generate: top_p must be above 0 and at most 1, got 0.0\n"
    process = generate(tmp_path / "absent", "--prompt", "x", "--stop", "")
    assert process.stderr == "dmlgpu: generate: stop must be strings that are not empty, got ['']\n"


@pytest.mark.slow
def test_prompts_from_standard_input(folder, answer, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{PROMPT}\n".encode())))
    assert generate(folder, "--prompt", "-").stdout == f"{answer}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    assert "--prompt: standard input must be text in UTF-8" in generate(folder, "--prompt", "-").stderr


def test_piped_conversations_fail_with_their_messages(folder, monkeypatch):
    for text, message in (("", "standard input must have a message per line, got none"), ("x" * 300, "at most 159")):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        process = generate(folder)
        assert process.returncode == USAGE
        assert message in process.stderr
        assert "Ctrl-C" not in process.stderr


@pytest.mark.slow
def test_a_file_of_json_lines(folder, expected, answer, tmp_path):
    batch = tmp_path / "prompts.jsonl"
    system = [{"role": "system", "content": "Be brief."}]
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    messages += [{"role": "user", "content": PROMPT}]
    lines = [{"prompt": PROMPT}, "two\nlines", {"messages": messages}, {"messages": [*system, *messages]}]
    batch.write_text("\n\n".join(map(json.dumps, lines)))
    text = f"<|user|>hi<|end|><|assistant|>ho<|end|>{templated(PROMPT)}"
    completions = json.loads(generate(folder, "--batch", batch, "--json").stdout)["completions"]
    assert [completion.get("prompt") for completion in completions] == [PROMPT, "two\nlines", None, None]
    assert [completion.get("messages") for completion in completions[2:]] == [messages, [*system, *messages]]
    texts = [completion["text"] for completion in completions]
    own = expected(f"<|system|>Be brief.<|end|>{text}")[1]
    assert texts == [answer, expected(templated("two\nlines"))[1], expected(text)[1], own]
    printed = generate(folder, "--batch", batch, "--system", "Sing.").stdout
    assert f"[3] {PROMPT}\n{expected(f'<|system|>Sing.<|end|>{text}')[1]}\n" in printed
    assert f"[4] {PROMPT}\n{own}\n" in printed
    for line, options, message in (
        ("{", (), "line 1: must be JSON"),
        ("7", (), 'must be a string, {"prompt": "..."} or {"messages": [...]}, got 7'),
        ('{"prompt": "x", "messages": []}', (), 'must be a string, {"prompt"'),
        ('{"messages": "x"}', (), 'line 1: messages must be a list of {"role": "user", "content": "..."}, got \'x\''),
        (json.dumps(lines[2]), ("--raw",), "line 1: messages need the chat template, which --raw omits"),
        ('" "', (), "prompts must have text, got ' '"),
    ):
        batch.write_text(line)
        process = generate(folder, "--batch", batch, *options)
        assert (process.returncode, process.stdout) == (USAGE, "")
        assert message in process.stderr


def test_models_are_sampled_by_default(folder, monkeypatch, tmp_path):
    """By recommendations of their files, else by those of chats."""
    options = []
    monkeypatch.setattr(verb, "_generate_one", lambda questions, prompt, as_json, chosen: options.append(chosen))
    command = "generate", "--adapter", ADAPTER, "--prompt", "x"
    own = shutil.copytree(folder, tmp_path / "own")
    (own / "generation_config.json").write_text('{"do_sample": true, "top_p": 0.8, "top_k": -1, "min_p": null}')
    for path, extra in ((folder, ()), (own, ()), (own, ("--top-p", "0.5")), (own, ("-t", "0")), (folder, ("--raw",))):
        run_here(*command, path, *extra)
    names = "temperature", "top_p", "repetition_penalty"
    usual = (0.7, 0.9, 1.05)
    expected = [usual, (1.0, 0.8, None), (1.0, 0.5, None), (0.0, None, None), usual]
    assert [tuple(chosen.get(name) for name in names) for chosen in options] == expected
    assert not any("top_k" in chosen or "min_p" in chosen for chosen in options)


def test_thinking_is_a_switch_of_the_template(folder, tmp_path, expected):
    thoughtful = shutil.copytree(folder, tmp_path / "thoughtful")
    template = "{{ messages[0].content }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
    (thoughtful / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    for options, text in (((), "a"), (("--thinking",), "aTrue"), (("--no-thinking",), "aFalse")):
        assert generate(thoughtful, "--prompt", "a", *options).stdout == f"{expected(text)[1]}\n"


def test_penalties_and_biases_reach_the_generator(folder, tokens):
    biased = json.loads(generate(folder, "--prompt", PROMPT, "--logit-bias", "9=1e6", "--json").stdout)["completions"]
    assert biased[0]["tokens"] == [9] * 8
    for bias, message in (
        ("x=1", "--logit-bias must be a token id and a number, ID=X, got 'x=1'"),
        ("320=1", "logit_bias must have tokens from 0 to 319, got 320"),
    ):
        process = generate(folder, "--prompt", PROMPT, "--logit-bias", bias)
        assert process.returncode == USAGE
        assert message in process.stderr
    options = "--presence-penalty", "1e6", "--min-p", "0.1"
    result = json.loads(generate(folder, "--prompt", PROMPT, "--json", *options).stdout)["completions"][0]
    assert len(set(result["tokens"])) == len(result["tokens"])
    assert result["tokens"][0] == tokens[0]


def test_escapes_of_stop_strings(monkeypatch):
    called = []
    monkeypatch.setattr(verb, "generate", lambda *arguments, options, **others: called.append(options["stop"]))
    generate("absent", "--prompt", "x", "--stop", r"\n\n", "--stop", r"\\n", "--stop", r"\d")
    assert called == [["\n\n", r"\n", r"\d"]]


def test_run_names_the_verb_for_language_models(folder, tmp_path):
    for path in (folder, tmp_path / "model.gguf"):
        assert run_here("run", path).stderr.endswith(f"for a language model: dmlgpu generate {path}\n")


def test_show_prints_the_memory_of_contexts(folder):
    text = run_here("show", folder, "--adapter", ADAPTER).stdout
    assert "float32, a row per token of the context" in text
    assert re.search(r"160 \(default\) +0\.1 MiB +0\.2 MiB +yes", text)
    shown = json.loads(run_here("show", folder, "--adapter", ADAPTER, "--json").stdout)
    assert [row["context"] for row in shown["contexts"]] == [20, 40, 80, 160]
    assert shown["contexts"][-1]["cache_bytes"] == 160 * 512
    assert "only --adapter and --json" in run_here("show", folder, "--full").stderr


def test_show_prints_contexts_that_do_not_fit(folder, monkeypatch):
    monkeypatch.setenv("DMLGPU_MEMORY_BUDGET", "235000")
    text = run_here("show", folder, "--adapter", ADAPTER).stdout
    assert re.search(r"80 .* yes\n", text)
    assert re.search(r"160 \(default\).* no\n", text)
    assert "does not fit 'NumPy" in text


def test_the_demo_makes_a_model(monkeypatch):
    process = run_here("demo", "generate", "--layers", "1", "--width", "64", "--tokens", "4", "--adapter", ADAPTER)
    assert process.returncode == 0
    assert "no model is given: 1 layer of width 64, random 4-bit weights" in process.stdout
    assert re.search(r"again: prompt \d+ tokens \(\d+ reused\)", process.stdout)


def test_the_demo_takes_a_model(folder):
    process = run_here("demo", "generate", folder, "--tokens", "4", "--adapter", ADAPTER)
    assert "no model" not in process.stdout
    assert "first: prompt" in process.stdout


def test_the_demo_needs_whole_heads():
    process = run_here("demo", "generate", "--width", "100", "--adapter", ADAPTER)
    assert process.stderr == "dmlgpu: demo generate: --width must be a multiple of 64, got 100\n"


@pytest.mark.slow
def test_several_answers_with_probabilities(folder, tokens):
    options = "--prompt", PROMPT, "--answers", "2", "--json", "--logprobs", "2"
    completions = json.loads(generate(folder, *options).stdout)["completions"]
    assert [completion["tokens"] for completion in completions] == [tokens] * 2
    for entry, token in zip(completions[1]["logprobs"], tokens, strict=True):
        assert entry["token"] == entry["top"][0][0] == token
        assert entry["logprob"] == entry["top"][0][1] <= 0
    assert generate(folder, "--prompt", PROMPT, "--answers", "2").stdout.startswith(f"[1] {PROMPT}\n")


def test_tools_reach_the_chat_template(folder, tmp_path, monkeypatch):
    received = []
    monkeypatch.setattr(Generator, "chat_tokens", lambda self, messages, **options: received.append(options) or [5])
    tools = tmp_path / "tools.json"
    functions = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
    tools.write_text(json.dumps(functions))
    assert generate(folder, "--prompt", PROMPT, "--tools", tools).returncode == 0
    assert received == [{"enable_thinking": None, "tools": functions}]
    tools.write_text("{}")
    process = generate(folder, "--prompt", PROMPT, "--tools", tools)
    assert process.returncode == USAGE
    assert "must have a list of functions, got {}" in process.stderr


def test_embeddings_are_lines_of_json(folder, tmp_path):
    batch = tmp_path / "prompts.txt"
    batch.write_text("sea\nriver\n")
    rows = [json.loads(line) for line in generate(folder, "--batch", batch, "--embed").stdout.splitlines()]
    np.testing.assert_allclose(rows, Generator.load(folder, ADAPTER).embed(["sea", "river"]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)


def test_conversations_with_tools_count_their_tokens(conversing, monkeypatch, tmp_path, capsys):
    """Tools take room in the context, as part of the template or, if it has no place for them, of a system message."""
    generator = verb.load()
    functions = [{"type": "function", "function": {"name": "now"}}]
    assert generator.chat_length("a", tools=functions) - generator.chat_length("a") > 100
    template = "{% if tools %}" + "y" * 40 + "{% endif %}" + generator.model.chat_template
    monkeypatch.setattr(generator, "model", replace(generator.model, chat_template=template))
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(functions))
    prompts = conversing(*(f"{index} {'x' * 20}" for index in range(8)), tools=tools)
    assert len(prompts) == 8 and all("y" * 40 in prompt for prompt in prompts)
    assert "|>0 xx" in prompts[0] and "|>0 xx" not in prompts[-1]
    assert capsys.readouterr().err.count("note: the conversation exceeds the context") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--embed",), "--embed needs --prompt or --batch"),
        (("--answers", "2"), "--answers needs --prompt or --batch"),
        (("--prompt", "x", "--logprobs", "1"), "--logprobs needs --json"),
        (("--prompt", "x", "--tools", "absent.json"), "absent.json"),
    ],
)
def test_options_that_need_others(folder, options, message):
    process = generate(folder, *options)
    assert process.returncode == USAGE
    assert message in process.stderr
