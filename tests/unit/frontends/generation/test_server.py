"""The HTTP server with OpenAI's protocol: payloads, errors, concurrent clients, and the package ``openai``."""

import base64
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.frontends.generation.decoding import CachedDecoding
from dmlgpu.frontends.generation.generator import Generator
from dmlgpu.frontends.generation.protocol import ServedModel
from tests.language_models import ADAPTER, SIZES, Expected, folder_of, prompt_of
from tests.unit.cli.cli_process import run_here

server = pytest.importorskip(
    "dmlgpu.frontends.generation.server", reason="starlette or uvicorn is not installed", exc_type=ImportError
)

KEY = "secret"
MESSAGES = [{"role": "user", "content": "hello"}]
GREEDY = {"temperature": 0}
ENDLESS = {**GREEDY, "logit_bias": {"0": -1e30}}
"""Options of answers that end at max_tokens only."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return folder_of(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def expected(folder):
    return Expected(folder)


@pytest.fixture(scope="module")
def generator(folder):
    return Generator.load(folder, ADAPTER)


@contextlib.contextmanager
def served(folder, *, rows=4, max_queued=64, api_key=None):
    """A server of a model in a thread: its address, and its scheduler."""
    generator = Generator.load(folder, ADAPTER)
    scheduler = generator.scheduler(rows=rows, max_queued=max_queued)
    app = server.application(ServedModel(generator, rows=rows), scheduler, api_key=api_key)
    config = server.uvicorn.Config(app, log_level="error", lifespan="off")
    running = server.uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening, scheduler:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1], scheduler
        finally:
            scheduler.stop()
            running.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def port(folder):
    with served(folder) as (port, _):
        yield port


def call(port, path, body=None, *, method=None, headers=None):
    """Status and bytes of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    types = {} if data is None else {"Content-Type": "application/json"}
    try:
        connection.request(method or ("GET" if data is None else "POST"), path, data, {**types, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ask(port, path, body):
    """JSON of an answer of status 200."""
    status, data = call(port, path, body)
    assert status == 200, data
    return json.loads(data)


def events(data):
    """JSON of server-sent events, of which the last one is [DONE]."""
    lines = [line for line in data.decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def greedy_text(generator, tokens, count):
    (text,) = generator.generate_batch([tokens], max_tokens=count)
    return text.text


def test_a_chat_message_is_answered(port, generator):
    tokens = generator.chat_tokens(MESSAGES)
    text = greedy_text(generator, tokens, 8)
    answer = ask(port, "/v1/chat/completions", {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, **GREEDY})
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert (choice["finish_reason"], choice["logprobs"]) == ("length", None)
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(tokens), 8)
    assert usage["total_tokens"] == len(tokens) + 8


def test_pieces_are_streamed(port, generator):
    text = greedy_text(generator, generator.chat_tokens(MESSAGES), 8)
    body = {"messages": MESSAGES, "max_completion_tokens": 8, "stream": True, **GREEDY}
    _, data = call(port, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
    first, *pieces, last = events(data)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {piece["object"] for piece in pieces} == {"chat.completion.chunk"}
    assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces) == text
    assert [piece["choices"][0]["finish_reason"] for piece in pieces][-2:] == [None, "length"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 8
    assert first["usage"] is None
    _, data = call(port, "/v1/completions", {"prompt": "hello", "max_tokens": 3, "stream": True, **GREEDY})
    assert [event["object"] for event in events(data)] == ["text_completion"] * len(events(data))
    assert "".join(event["choices"][0]["text"] for event in events(data)) == greedy_text(generator, "hello", 3)


def test_several_prompts_have_several_answers_each(port, generator):
    prompts = [prompt_of(5), prompt_of(9, 1)]
    options = {"max_tokens": 4, "seed": 5, "temperature": 1.0, "top_p": 0.8, "repetition_penalty": 1.0}
    answer = ask(port, "/v1/completions", {"prompt": prompts, "n": 2, **options})
    texts = [text.text for prompt in prompts for text in generator.generate_batch([prompt], n=2, **options)]
    assert [choice["text"] for choice in answer["choices"]] == texts
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 14
    assert answer["usage"]["completion_tokens"] <= 16


def test_probabilities_have_the_form_of_each_path(port, generator):
    body = {"messages": MESSAGES, "max_tokens": 3, "logprobs": True, "top_logprobs": 2, **GREEDY}
    entries = ask(port, "/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
    (text,) = generator.generate_batch([generator.chat_tokens(MESSAGES)], max_tokens=3, logprobs=2)
    for entry, logprob in zip(entries, text.logprobs, strict=True):
        assert entry["logprob"] == pytest.approx(logprob.logprob, rel=1e-4, abs=1e-5)
        assert entry["top_logprobs"][0]["token"] == entry["token"]
        assert len(entry["top_logprobs"]) == 2
    lists = ask(port, "/v1/completions", {"prompt": "ab", "max_tokens": 3, "logprobs": 1, **GREEDY})["choices"][0]
    assert len(lists["logprobs"]["token_logprobs"]) == 3
    assert lists["logprobs"]["text_offset"][0] == 0
    assert len(lists["logprobs"]["top_logprobs"][0]) == 1


def test_options_change_answers(port, generator):
    def text_of(**options):
        return ask(port, "/v1/completions", {"prompt": "hello", "max_tokens": 8, **GREEDY, **options})["choices"][0]

    plain = text_of()["text"]
    stopped = text_of(stop=plain[2:4])
    assert (stopped["text"], stopped["finish_reason"]) == (plain[: plain.find(plain[2:4])], "stop")
    assert text_of(logit_bias={"9": 1e6})["text"] == generator.model.tokenizer.decode([9] * 8)
    assert text_of(presence_penalty=2, frequency_penalty=2, min_p=0.1, user="me", store=False)["finish_reason"]
    assert len(text_of(max_tokens=None)["text"]) > 8  # 16 tokens, as at OpenAI


def test_templates_get_tools_and_switches(folder, generator):
    served_model = ServedModel(generator)
    generator.model.__dict__["chat_template"], before = (
        "{{ messages[0].content }} {{ tools | length if tools else 'none' }} {{ mode }} {{ reasoning_effort }}",
        generator.model.chat_template,
    )
    try:
        tools = [{"type": "function", "function": {"name": "now", "parameters": {}}}]
        body = {"messages": MESSAGES, "tools": tools, "chat_template_kwargs": {"mode": "x"}, "reasoning_effort": "low"}
        for more, text in (({}, "hello 1 x low"), ({"tool_choice": "none"}, "hello none x low")):
            (request,) = served_model.chat(json.dumps({**body, **more}).encode()).requests
            assert request.prompt == generator.model.tokenizer.encode(text, add_special_tokens=False).ids
    finally:
        generator.model.__dict__["chat_template"] = before


def function_of(name, **properties):
    """A tool whose arguments have few values, so that a model with random weights ends them."""
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [function_of("now", zone={"enum": ["UTC", "CET"]}), function_of("stop")]
STOP = {"type": "function", "function": {"name": "stop"}}


@pytest.fixture(scope="module")
def tool_port(tmp_path_factory):
    """A server of a model that calls tools."""
    pytest.importorskip("llguidance", reason="required calls need llguidance")
    folder = folder_of(tmp_path_factory.mktemp("tools"), replace(SIZES, layers=1, feed_forward=16))
    template = "{{ messages[-1].content }}{% if tools %}{{ tools | length }}<tool_call>{% endif %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with served(folder) as (port, _):
        yield port


def test_required_tools_are_called(tool_port):
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 120, "temperature": 0}
    answer = ask(tool_port, CHAT, {**body, "tool_choice": "required", "logprobs": True})["choices"][0]
    (call,) = answer["message"]["tool_calls"]
    assert (call["type"], answer["finish_reason"], answer["message"]["content"]) == ("function", "tool_calls", None)
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    assert (name, arguments) in (("stop", {}), ("now", {"zone": "UTC"}), ("now", {"zone": "CET"}))
    assert answer["logprobs"]["content"]
    body["messages"] = [*MESSAGES, answer["message"], {"role": "tool", "tool_call_id": call["id"], "content": "noon"}]
    assert ask(tool_port, CHAT, {**body, "max_tokens": 2})["choices"][0]["message"]["content"]


def test_calls_of_a_named_tool_are_streamed(tool_port):
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 120, "temperature": 0, "tool_choice": STOP}
    pieces = events(call_stream(tool_port, body))
    deltas = [piece["choices"][0]["delta"] for piece in pieces]
    ((call,),) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert (call["index"], call["function"]) == (0, {"name": "stop", "arguments": "{}"})
    assert pieces[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert not any(delta.get("content") for delta in deltas)


def call_stream(port, body):
    """Bytes of a streamed chat."""
    status, data = call(port, CHAT, {**body, "stream": True})
    assert status == 200, data
    return data


def test_embeddings_are_floats_or_base64(port, generator):
    vectors = generator.embed(["hello", "sea"])
    answer = ask(port, "/v1/embeddings", {"model": "tiny", "input": ["hello", "sea"]})
    rows = [entry["embedding"] for entry in answer["data"]]
    np.testing.assert_allclose(rows, vectors, rtol=1e-4, atol=1e-5)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    answer = ask(port, "/v1/embeddings", {"input": "hello", "encoding_format": "base64"})
    row = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), np.float32)
    np.testing.assert_allclose(row, vectors[0], rtol=1e-4, atol=1e-5)


def test_models_are_listed(port):
    (model,) = ask(port, "/v1/models", None)["data"]
    assert (model["id"], model["object"]) == ("tiny", "model")
    assert ask(port, "/v1/models/tiny", None) == model
    assert ask(port, "/health", None) == {"status": "ok"}


CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        (CHAT, b"{", (400, None, None)),
        (CHAT, b"[1]", (400, None, None)),
        (CHAT, b"[" * 100_000, (400, None, None)),
        (CHAT, {}, (400, "messages", "missing_required_parameter")),
        (CHAT, {"messages": "hello"}, (400, "messages", "invalid_value")),
        (CHAT, {"messages": [{"role": 1}]}, (400, None, None)),
        (CHAT, {"messages": MESSAGES, "model": "gpt"}, (404, "model", "model_not_found")),
        (CHAT, {"messages": MESSAGES, "temperature": "hot"}, (400, "temperature", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "temperature": -1}, (400, "temperature", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "top_p": 2}, (400, "top_p", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "max_tokens": 0}, (400, "max_tokens", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "max_tokens": True}, (400, "max_tokens", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "n": 5}, (400, "n", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "stop": [""]}, (400, "stop", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "top_logprobs": 2}, (400, "top_logprobs", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "logit_bias": {"x": 1}}, (400, "logit_bias", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "logit_bias": {"320": 1}}, (400, "logit_bias", "invalid_value")),
        (
            CHAT,
            {"messages": MESSAGES, "stream_options": {"include_usage": True}},
            (400, "stream_options", "invalid_value"),
        ),
        (CHAT, {"messages": MESSAGES, "tool_choice": "required"}, (400, "tool_choice", "invalid_value")),
        (CHAT, {"messages": MESSAGES, "tools": [{"type": "function"}]}, (400, "tools", "invalid_value")),
        (
            CHAT,
            {
                "messages": MESSAGES,
                "tools": [{"type": "function", "function": {"name": "now"}}],
                "tool_choice": {"type": "function", "function": {"name": "later"}},
            },
            (400, "tool_choice", "invalid_value"),
        ),
        (CHAT, {"messages": MESSAGES, "colour": "red"}, (400, "colour", "unknown_parameter")),
        (CHAT, {"messages": [{"role": "user", "content": "a" * 500}]}, (400, "messages", "context_length_exceeded")),
        (COMPLETIONS, {"prompt": "a" * 500}, (400, "prompt", "context_length_exceeded")),
        (COMPLETIONS, {"prompt": []}, (400, "prompt", "invalid_value")),
        (COMPLETIONS, {"prompt": [[1], "a"]}, (400, "prompt", "invalid_value")),
        (COMPLETIONS, {"prompt": [999]}, (400, None, None)),
        (COMPLETIONS, {"prompt": "a", "echo": True}, (400, "echo", "unsupported_value")),
        (COMPLETIONS, {"prompt": "a", "best_of": 3}, (400, "best_of", "unsupported_value")),
        (EMBEDDINGS, {"input": ""}, (400, None, None)),
        (EMBEDDINGS, {"input": "a", "dimensions": 5}, (400, "dimensions", "unsupported_value")),
        ("/v1/images", {}, (404, None, None)),
    ],
)
def test_wrong_requests_have_errors_of_openai(port, path, body, error):
    status, data = call(port, path, body)
    actual = json.loads(data)["error"]
    assert (status, actual["param"], actual["code"]) == error
    assert actual["type"] == "invalid_request_error"
    assert actual["message"]


def test_neutral_fields_of_the_protocol_are_accepted(port):
    neutral = {"best_of": 1, "echo": False, "suffix": None, "tool_choice": None, "metadata": {}, "logprobs": None}
    assert ask(port, "/v1/completions", {"prompt": "a", "max_tokens": 1, **neutral})["choices"]


def test_other_methods_types_sizes_and_hosts_are_rejected(port):
    body = {"messages": MESSAGES}
    assert call(port, "/v1/models", method="PUT")[0] == 405
    assert call(port, CHAT, body, headers={"Content-Type": "text/plain"})[0] == 415
    assert call(port, CHAT, b" " * ((8 << 20) + 1))[0] == 413
    for host, status in (("evil.example", 403), ("localhost:1", 200), ("[::1]", 200)):
        assert call(port, "/v1/models", headers={"Host": host})[0] == status


def test_a_key_is_required(folder):
    with served(folder, api_key=KEY) as (port, _):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer other"}, 401),
            ({"Authorization": f"Bearer {KEY}", "Host": "elsewhere.example"}, 200),
        ):
            actual, data = call(port, "/v1/models", headers=headers)
            assert actual == status
            assert status == 200 or json.loads(data)["error"]["code"] == "invalid_api_key"


def test_clients_that_break_off_give_their_rows_back(folder, generator, monkeypatch):
    """Half of 12 clients break off in the middle of an answer, or before it begins."""
    tokens = prompt_of(6)
    text = greedy_text(generator, tokens, 12)
    texts, steps = [], []
    step = CachedDecoding.step
    monkeypatch.setattr(CachedDecoding, "step", lambda *arguments: (steps.append(1), step(*arguments))[1])

    def ask_whole():
        texts.append(ask(port, COMPLETIONS, {"prompt": tokens, "max_tokens": 12, **GREEDY})["choices"][0]["text"])

    def break_off(stream):
        body = json.dumps({"prompt": tokens, "max_tokens": 150, "stream": stream, **ENDLESS}).encode()
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            if stream:
                connection.recv(300)

    with served(folder, rows=2) as (port, scheduler):
        threads = [threading.Thread(target=break_off, args=(bool(index % 2),)) for index in range(6)]
        threads += [threading.Thread(target=ask_whole) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        deadline = time.monotonic() + 60
        while scheduler.is_busy and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not scheduler.is_busy
    assert texts == [text] * 6
    assert len(steps) < 6 * 150 / 2 / 2  # half of what whole answers would take with two rows


def test_a_full_queue_says_so(folder):
    with served(folder, rows=1, max_queued=1) as (port, _):
        body = {"prompt": ["a", "b", "c", "d"], "max_tokens": 4}
        status, data = call(port, COMPLETIONS, body)
        assert (status, json.loads(data)["error"]["code"]) == (429, "rate_limit_exceeded")
        assert ask(port, COMPLETIONS, {"prompt": "a", "max_tokens": 2})["choices"]


def test_an_exception_of_the_device_is_an_error_of_the_server(folder, monkeypatch):
    with served(folder) as (port, scheduler):
        monkeypatch.setattr(scheduler, "_run_step", lambda: 1 / 0)
        status, data = call(port, COMPLETIONS, {"prompt": "a", "max_tokens": 4})
        assert (status, json.loads(data)["error"]["type"]) == (500, "server_error")
        monkeypatch.undo()
        assert ask(port, COMPLETIONS, {"prompt": "a", "max_tokens": 2})["choices"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9000", ("127.0.0.1", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("9000", ("127.0.0.1", 9000)),
        ("0.0.0.0", ("0.0.0.0", 8080)),
        ("[::1]:9000", ("::1", 9000)),
        ("::1", ("::1", 8080)),
        ("[::1]", ("::1", 8080)),
    ],
)
def test_addresses(text, address):
    parsed = server.Address.of(text)
    assert (parsed.host, parsed.port) == address


def test_other_machines_need_a_key(folder):
    server.check_access(server.Address("localhost"), None)
    server.check_access(server.Address("0.0.0.0"), KEY)
    with pytest.raises(InvalidArgument, match="can be reached by other machines, which needs a key"):
        server.check_access(server.Address("0.0.0.0"), None)
    for options, message in (
        (("--serve", "0.0.0.0"), "0.0.0.0:8080 can be reached by other machines"),
        (("--serve", "localhost:x"), "address must be HOST:PORT"),
        (("--serve", "--raw"), "--serve and --raw cannot be combined"),
        (("--prompt", "x", "--serve"), "--serve and --prompt cannot be combined"),
        (("--serve", "--api-key", "a b "), "the key must be printable ASCII"),
    ):
        process = run_here("generate", folder, *options)
        assert process.returncode == 2
        assert message in process.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for a child")
def test_ctrl_c_ends_the_command_and_its_answers(folder):
    command = [sys.executable, "-m", "dmlgpu", "generate", str(folder), "--serve", "127.0.0.1:0", "-a", ADAPTER]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "DMLGPU_API_KEY": ""})
    lines = iter(process.stderr)
    line = next(line for line in lines if line.startswith("serving tiny at http://127.0.0.1:"))
    port = int(line.partition("127.0.0.1:")[2].partition("/")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"prompt": "a", "max_tokens": 155, "stream": True, **ENDLESS})
    connection.request("POST", COMPLETIONS, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    response.read(20)
    process.send_signal(signal.SIGINT)
    rest = response.read().decode()
    assert process.wait(60) == 0
    assert '"code": "service_unavailable"' in rest
    assert list(lines) == []


@pytest.mark.slow
def test_the_package_openai_understands_answers_and_errors(port, generator):
    openai = pytest.importorskip("openai", reason="the client of OpenAI is not installed")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
    text = greedy_text(generator, generator.chat_tokens(MESSAGES), 8)
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
    assert client.chat.completions.create(**options).choices[0].message.content == text
    stream = client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True})
    pieces = list(stream)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == text
    assert pieces[-1].usage.completion_tokens == 8
    assert client.completions.create(model="tiny", prompt="hello", max_tokens=2, temperature=0).choices[0].text
    np.testing.assert_allclose(
        client.embeddings.create(model="tiny", input="sea").data[0].embedding,
        generator.embed("sea"),
        rtol=1e-4,
        atol=1e-5,
    )
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(**{**options, "model": "gpt"})
    with pytest.raises(openai.BadRequestError) as raised:
        client.chat.completions.create(**options, extra_body={"colour": "red"})
    assert (raised.value.code, raised.value.param) == ("unknown_parameter", "colour")
