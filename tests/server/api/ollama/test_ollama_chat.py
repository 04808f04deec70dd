"""/api/chat: its lines, options, tools and reasoning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.server import fakes, templates
from tests.server.api.ollama.ask import CALL, HELLO, TOOLS, lines, refusal, whole
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

RECORDED = json.loads(Path(__file__).with_name("recorded_requests.json").read_text("utf-8"))
CHAT = "/api/chat"
THOUGHT = "<think>\nthe fox\n</think>\n\nI look."


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        yield client


@pytest.fixture(scope="module")
def thinker() -> Iterator[httpx.Client]:
    """A model that reasons and then calls the tool f."""
    with fakes.running(scripted(f"{THOUGHT}\n{CALL}", template=templates.THINKING)) as client:
        yield client


@pytest.mark.parametrize("sent", RECORDED, ids=lambda sent: f"{sent['client']} {sent['path']}")
def test_recorded_requests_of_clients_are_answered(
    thinker: httpx.Client, sent: dict[str, Any]
) -> None:
    """Bodies that the published clients sent."""
    body = sent.get("body")
    answer = thinker.request(sent["method"], sent["path"], json=body)
    assert answer.status_code == 200, answer.text
    assert "warning" not in answer.headers
    if sent["path"] == CHAT and body and body["messages"] and "format" not in body:
        parts = [json.loads(line) for line in answer.text.splitlines()]
        assert len(parts) == 1 or body["stream"]
        message = {
            name: "".join(part["message"].get(name, "") for part in parts)
            for name in ("thinking", "content")
        }
        assert message == {"thinking": "the fox", "content": "I look."}
        calls = [call for part in parts for call in part["message"].get("tool_calls", [])]
        assert [call["function"] for call in calls] == [
            {"index": 0, "name": "f", "arguments": {"a": 1}}
        ]


def test_the_last_line_has_counts_and_nanoseconds(client: httpx.Client) -> None:
    *more, last = lines(client, CHAT, messages=HELLO, options={"num_predict": 8})
    assert [line["done"] for line in more] == [False] * len(more)
    assert (last["done"], last["done_reason"], last["eval_count"]) == (True, "length", 8)
    rendered = client.post("/apply-template", json={"messages": HELLO}).json()["prompt"]
    assert last["prompt_eval_count"] == len(TOKENIZER.encode(rendered))
    parts = last["load_duration"] + last["prompt_eval_duration"] + last["eval_duration"]
    assert 10**5 < parts <= last["total_duration"] < 10**11
    assert last["model"] == "fake-model:latest"
    assert last["created_at"].endswith("Z")
    assert last["message"] == {"role": "assistant", "content": ""}


def test_a_whole_answer_is_the_joined_stream() -> None:
    with fakes.running(scripted(f"I look.\n{CALL}\n{CALL}")) as client:
        answer = whole(client, CHAT, messages=HELLO, tools=TOOLS)
        streamed = lines(client, CHAT, messages=HELLO, tools=TOOLS)
    message = answer["message"]
    assert message["content"] == "".join(line["message"]["content"] for line in streamed)
    calls = [call for line in streamed for call in line["message"].get("tool_calls", [])]
    assert [call["function"] for call in message["tool_calls"]] == [c["function"] for c in calls]
    assert [call["function"]["index"] for call in calls] == [0, 1]
    assert answer["done_reason"] == streamed[-1]["done_reason"] == "stop"
    assert answer["eval_count"] == streamed[-1]["eval_count"]


@pytest.mark.parametrize(
    ("think", "shown"), [(True, True), ("high", True), (None, True), (False, False)]
)
def test_think_is_passed_to_the_template(thinker: httpx.Client, think: Any, shown: bool) -> None:
    message = whole(thinker, CHAT, messages=HELLO, think=think)["message"]
    assert message.get("thinking", "") == ("the fox" if shown else "")


def test_a_model_that_does_not_reason_refuses_think(client: httpx.Client) -> None:
    whole(client, CHAT, messages=HELLO, think=False, options={"num_predict": 1})
    assert refusal(client, CHAT, messages=HELLO, think=True) == (
        400,
        "think: got true, expected false: the model does not reason",
    )


@pytest.mark.parametrize("form", ["json", {"type": "object", "properties": {}}])
def test_format_constrains_the_answer(form: Any) -> None:
    with fakes.running(scripted('{"a": 1}')) as client:
        text = whole(client, CHAT, messages=HELLO, format=form)["message"]["content"]
    assert text.startswith("{")
    assert (json.loads(text) == {"a": 1}) == (form == "json")


def test_errors_name_the_field_of_the_client(client: httpx.Client) -> None:
    for fields, words in (
        ({"format": {"type": "nothing"}}, "format: got"),
        ({"options": {"top_p": 2}}, "options.top_p: got 2"),
        ({"options": {"top_k": 1.5}}, "options.top_k: got 1.5"),
        ({"keep_alive": "5"}, 'keep_alive: got "5", expected seconds'),
        ({"think": "often"}, "think: got"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role: got"),
        ({"messages": [{**HELLO[0], "images": ["aa"]}]}, "messages[0].images[0]: got"),
        ({"template": "{{ .Prompt }}"}, "template: got"),
    ):
        status, reason = refusal(client, CHAT, **{"messages": HELLO, **fields})
        assert status == 400
        assert words in reason


def test_a_result_without_its_call_is_a_text_of_the_user(client: httpx.Client) -> None:
    turn = [*HELLO, {"role": "assistant", "content": ""}]
    options = {"num_predict": 4, "temperature": 0}
    result, text = (
        whole(client, CHAT, messages=[*turn, {"role": role, "content": "42"}], options=options)
        for role in ("tool", "user")
    )
    assert result["message"] == text["message"]
    assert result["prompt_eval_count"] == text["prompt_eval_count"]
    named = {"role": "tool", "content": "42", "tool_name": "f"}
    status, reason = refusal(client, CHAT, messages=[*turn, named])
    assert (status, reason.split(": ")[0]) == (400, "messages[2].tool_name")


def test_defaults_are_those_of_ollama(client: httpx.Client) -> None:
    options = client.get("/openapi.json").json()["components"]["schemas"]["OllamaOptions"]
    defaults = {name: field["default"] for name, field in options["properties"].items()
                if "default" in field}  # fmt: skip
    ollamas = {
        "temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.0, "typical_p": 1.0,
        "repeat_last_n": 64, "repeat_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "seed": -1, "num_predict": -1,
    }  # fmt: skip
    assert {name: defaults[name] for name in ollamas} == ollamas


def test_options_reach_the_sampler(client: httpx.Client) -> None:
    def text(**options: Any) -> str:
        options = {"num_predict": 12.0, **options}
        answer = whole(client, CHAT, messages=HELLO, options=options)
        content: str = answer["message"]["content"]
        return content

    sent = {"messages": HELLO, "max_tokens": 12, "seed": 7, "top_p": 0.9, "min_p": 0.0}
    same = client.post("/v1/chat/completions", json=sent).json()
    assert text(seed=7) == same["choices"][0]["message"]["content"]
    assert text(seed=7, top_k=1) == text(seed=8, top_k=1.0) == text(temperature=0)
    greedy = text(temperature=0)
    assert text(temperature=0, stop=[greedy[3]]) == greedy[: greedy.index(greedy[3])]


def test_logprobs(client: httpx.Client) -> None:
    options = {"num_predict": 3}
    answer = whole(client, CHAT, messages=HELLO, logprobs=True, top_logprobs=2, options=options)
    assert len(answer["logprobs"]) == 3
    assert [len(token["top_logprobs"]) for token in answer["logprobs"]] == [2, 2, 2]


def test_the_oldest_messages_are_left_out(client: httpx.Client) -> None:
    turn = [
        {"role": "user", "content": "the dog jumps over the fox " * 4},
        {"role": "assistant", "content": "the fox"},
    ]
    long = [{"role": "system", "content": "be brief"}, *turn * 9, *HELLO]
    options = {"num_predict": 1}
    answer = client.post(CHAT, json={"messages": long, "options": options, "stream": False})
    assert answer.status_code == 200, answer.text
    dropped = int(answer.headers["warning"].split("oldest ")[1].split()[0])
    assert 0 < dropped < 18
    kept = [long[0], *long[1 + dropped :]]
    count = client.post("/v1/chat/completions/input_tokens", json={"messages": kept}).json()
    assert answer.json()["prompt_eval_count"] == count["input_tokens"] < 256
    more = [long[0], *long[dropped - 1 :]]
    count = client.post("/v1/chat/completions/input_tokens", json={"messages": more}).json()
    assert count["input_tokens"] >= 256
    smaller = whole(client, CHAT, messages=long, options={**options, "num_ctx": 100})
    assert smaller["prompt_eval_count"] < 100
    status, reason = refusal(client, CHAT, messages=long, truncate=False)
    assert (status, "exceeds the available context" in reason) == (400, True)


def test_results_of_tools_find_their_calls() -> None:
    calls: list[dict[str, Any]] = [
        {"function": {"name": name, "arguments": {}}} for name in ("f", "g", "f")
    ]
    history = [*HELLO, {"role": "assistant", "tool_calls": calls}]
    named = [{"role": "tool", "tool_name": "g", "content": "1"}]
    plain = [{"role": "tool", "content": "2"}]
    with fakes.running(scripted("the dog")) as client:
        whole(client, CHAT, messages=[*history, *named, *plain, *plain])
        status, reason = refusal(client, CHAT, messages=[*history, *named, *named])
        assert (status, reason.partition(":")[0]) == (400, "messages[3].tool_name")
        assert refusal(client, CHAT, messages=[*history, *plain * 4])[0] == 400


def test_a_stream_that_fails_ends_with_its_error() -> None:
    (poison,) = TOKENIZER.read("fox")[:1]
    service = fakes.fake_service(LIBRARY, template=templates.CHATML, context=256, poison=poison)
    question = [{"role": "user", "content": "fox"}]
    with fakes.running(service) as client:
        (line,) = lines(client, CHAT, messages=question)
        assert set(line) == {"error"}
        assert refusal(client, CHAT, messages=question, stream=False)[0] == 500
