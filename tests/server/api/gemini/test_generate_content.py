"""generateContent and streamGenerateContent: answers, their streams, options and errors."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from sse_starlette import EventSourceResponse

from hearthd.server.api.conversations.call_arguments import CallReader
from tests.server import fakes, templates
from tests.server.api.gemini.ask import (
    CALL,
    HELLO,
    MODEL,
    TOOLS,
    answer,
    body_of,
    events,
    free,
    parts,
    refusal,
    text,
)
from tests.server.openai_servers import TOKENIZER, chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

KINDS = ("prompt", "candidates", "thoughts", "total")  # of tokens
THOUGHT = "<think>\nthe fox\n</think>\n\nthe dog"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        yield client


def test_an_answer_has_every_field(client: httpx.Client) -> None:
    read = answer(client)
    rendered = client.post(
        "/apply-template", json={"messages": [{"role": "user", "content": "the dog"}]}
    ).json()["prompt"]
    prompt = len(TOKENIZER.encode(rendered))
    (candidate,) = read["candidates"]
    assert set(candidate) == {"index", "content", "finishReason"}
    assert (candidate["index"], candidate["finishReason"]) == (0, "MAX_TOKENS")
    assert [set(part) for part in parts(read)] == [{"text"}]
    usage = read["usageMetadata"]
    assert usage.pop("cachedContentTokenCount") in range(prompt)
    assert usage == {
        "promptTokenCount": prompt,
        "candidatesTokenCount": 8,
        "thoughtsTokenCount": 0,
        "totalTokenCount": prompt + 8,
    }
    assert read["modelVersion"] == "fake-model"
    assert read["responseId"]


def test_a_stream_joins_to_the_whole_answer() -> None:
    with fakes.running(
        scripted(f"{THOUGHT}\n{CALL}\n{CALL}", template=templates.THINKING)
    ) as client:
        fields = {"tools": TOOLS}
        config: dict[str, Any] = {
            "maxOutputTokens": 500,
            "thinkingConfig": {"includeThoughts": True},
        }
        streamed = events(client, fields, **config)
        listed = client.post(f"{MODEL}:streamGenerateContent", json=body_of(config, fields))
        whole = answer(client, fields, **config)
    assert listed.headers["content-type"] == "application/json"
    for stream in (streamed, listed.json()):
        pieces = [part for event in stream for part in parts(event)]
        # Google's packages drop a turn from a chat if an event is empty.
        assert all(parts(event) and all(parts(event)) for event in stream)
        thoughts = "".join(piece["text"] for piece in pieces if piece.get("thought"))
        said = "".join(piece.get("text", "") for piece in pieces if not piece.get("thought"))
        calls = [piece["functionCall"] for piece in pieces if "functionCall" in piece]
        assert [(part.get("text"), part.get("thought")) for part in parts(whole)[:2]] == [
            (thoughts, True),
            (said, None),
        ]
        assert (thoughts, said.strip()) == ("the fox", "the dog")
        assert len({call.pop("id") for call in calls}) == 2
        assert calls == [{"name": "f", "args": {"a": 1}}] * 2
        reasons = [event["candidates"][0].get("finishReason") for event in stream]
        assert reasons == [None] * (len(stream) - 1) + ["STOP"]
        usage = [event.get("usageMetadata") for event in stream]
        assert usage[:-1] == [None] * (len(stream) - 1)
        for name in ("candidatesTokenCount", "thoughtsTokenCount", "promptTokenCount"):
            assert stream[-1]["usageMetadata"][name] == whole["usageMetadata"][name] > 0
    counts = {name: whole["usageMetadata"][f"{name}TokenCount"] for name in KINDS}
    assert counts["total"] == counts["prompt"] + counts["candidates"] + counts["thoughts"]
    assert len(parts(whole)) == 4
    assert len(streamed) > 6


def test_thoughts_are_sent_only_on_request() -> None:
    with fakes.running(scripted(THOUGHT, template=templates.THINKING)) as client:
        whole = answer(client, maxOutputTokens=500)
        assert parts(whole) == [{"text": "the dog"}]
        assert whole["usageMetadata"]["thoughtsTokenCount"] > 0
        shown = {"includeThoughts": True}
        short = answer(client, maxOutputTokens=500, thinkingConfig={**shown, "thinkingBudget": 4.0})
        assert "the fox".startswith(parts(short)[0]["text"])
        free = answer(client, maxOutputTokens=500, thinkingConfig={**shown, "thinkingBudget": -1})
        assert parts(free) == [{"text": "the fox", "thought": True}, {"text": "the dog"}]
        off = answer(client, maxOutputTokens=500, thinkingConfig={**shown, "thinkingBudget": 0})
        assert not any("thought" in part for part in parts(off))


def test_thinking_reaches_the_template() -> None:
    template = "{{ enable_thinking }} {{ reasoning_effort }}"
    with fakes.running(chatty(template=template)) as client:
        for config, rendered in (
            ({}, " "),
            ({"thinkingBudget": 0}, "False "),
            ({"thinkingBudget": -1}, "True "),
            ({"thinkingLevel": "HIGH"}, "True high"),
            ({"thinkingLevel": "low"}, "True low"),
        ):
            sent = {"contents": HELLO, "generationConfig": {"thinkingConfig": config}}
            counted = client.post(
                f"{MODEL}:countTokens", json={"generateContentRequest": sent}
            ).json()
            assert counted == {"totalTokens": len(TOKENIZER.encode(rendered))}, config


def test_a_call_that_is_cut_off_has_its_complete_members() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1, "b": "the dog jumps over"}}'
    with fakes.running(scripted(call)) as client:
        for length in range(40, 60):
            whole = answer(client, {"tools": TOOLS}, maxOutputTokens=length)
            last = parts(whole)[-1]
            if "functionCall" in last and last["functionCall"]["args"] == {"a": 1}:
                break
        assert last["functionCall"]["args"] == {"a": 1}
        assert whole["candidates"][0]["finishReason"] == "MAX_TOKENS"
    assert CallReader().end() == []


def test_candidates_have_seeds_of_their_own(client: httpx.Client) -> None:
    several = answer(client, candidateCount=3, seed=7)
    assert [candidate["index"] for candidate in several["candidates"]] == [0, 1, 2]
    texts = ["".join(part["text"] for part in parts(several, index)) for index in range(3)]
    assert texts == [text(answer(client, seed=7 + index)) for index in range(3)]
    assert several["usageMetadata"]["candidatesTokenCount"] == 24
    streamed = events(client, candidateCount=3, seed=7)
    joined = ["", "", ""]
    for event in streamed:
        (candidate,) = event["candidates"]
        joined[candidate["index"]] += text(event)
    assert joined == texts
    assert [("usageMetadata" in event) for event in streamed].count(True) == 1


def test_logprobs(client: httpx.Client) -> None:
    config: dict[str, Any] = {"responseLogprobs": True, "logprobs": 2.0, "seed": 3}
    (candidate,) = answer(client, **config)["candidates"]
    chosen = candidate["logprobsResult"]["chosenCandidates"]
    tops = candidate["logprobsResult"]["topCandidates"]
    assert [len(top["candidates"]) for top in tops] == [2] * len(chosen) == [2] * 8
    mean = sum(token["logProbability"] for token in chosen) / 8
    assert math.isclose(candidate["avgLogprobs"], mean)
    sent = {"messages": [{"role": "user", "content": "the dog"}], "max_tokens": 8, "seed": 3}
    same = client.post(
        "/v1/chat/completions", json={**sent, "logprobs": True, "top_logprobs": 2}
    ).json()["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in chosen] == [token["token"] for token in same]
    assert [token["tokenId"] for token in chosen]
    assert [token["logProbability"] for top in tops for token in top["candidates"]] == [
        token["logprob"] for entry in same for token in entry["top_logprobs"]
    ]
    streamed = [
        event["candidates"][0].get("logprobsResult", {}) for event in events(client, **config)
    ]
    assert [t for result in streamed for t in result.get("chosenCandidates", ())] == chosen
    assert "logprobsResult" not in answer(client)["candidates"][0]


def test_options_reach_the_sampler(client: httpx.Client) -> None:
    sent = {"messages": [{"role": "user", "content": "the dog"}], "max_tokens": 8, "seed": 7}
    same = client.post("/v1/chat/completions", json=sent).json()
    assert text(answer(client, seed=7)) == same["choices"][0]["message"]["content"]
    greedy = text(answer(client, temperature=0))
    assert text(answer(client, topK=1.0)) == text(answer(client, top_k=1)) == greedy
    assert text(answer(client, topP=0)) == text(answer(client, topNSigma=0.0001)) == greedy
    stopped = answer(client, temperature=0, stopSequences=[greedy[2]])
    assert text(stopped) == greedy[: greedy.index(greedy[2])]
    assert stopped["candidates"][0]["finishReason"] == "STOP"
    frequent = text(answer(client, temperature=0, frequencyPenalty=90, maxOutputTokens=60))
    assert frequent != text(answer(client, temperature=0, maxOutputTokens=60))


SCHEMA = {
    "type": "OBJECT",
    "properties": {
        "size": {"type": "INTEGER", "enum": [1, 2]},
        "name": {"type": "STRING", "enum": ["a"]},
    },
    "required": ["size", "name"],
    "propertyOrdering": ["name", "size"],
}


def test_an_answer_has_the_form_that_is_asked_for() -> None:
    with fakes.running(free()) as client:
        for name, schema in (
            ("responseSchema", SCHEMA),
            ("response_schema", SCHEMA),
            ("responseJsonSchema", SCHEMA),
            (
                "responseJsonSchema",
                {
                    "type": "object",
                    "properties": {"name": {"const": "a"}, "size": {"const": 2}},
                    "required": ["name", "size"],
                },
            ),
        ):
            config: dict[str, Any] = {"responseMimeType": "application/json", name: schema}
            said = json.loads(text(answer(client, **config, maxOutputTokens=200)))
            assert (list(said), said["name"]) == (["name", "size"], "a")
        values = {"type": "STRING", "enum": ["the fox", "the dog"]}
        config = {"responseMimeType": "text/x.enum", "responseSchema": values}
        assert text(answer(client, **config, maxOutputTokens=200)) in values["enum"]
        config["responseMimeType"] = "application/json"
        assert json.loads(text(answer(client, **config, maxOutputTokens=200))) in values["enum"]
    with fakes.running(scripted('{"a": 1}')) as client:
        said = text(answer(client, responseMimeType="application/json", maxOutputTokens=200))
        assert json.loads(said) == {"a": 1}


IN_PARTS: list[tuple[dict[str, Any], str]] = [
    ({}, ': got "{}"'),
    ({"text": "x", "functionCall": {"name": "f"}}, ": "),
    ({"functionCall": {"name": "f"}}, ': got "functionCall"'),
    ({"functionResponse": {"name": "f"}}, ".functionResponse.name: got "),
    ({"inlineData": {"mimeType": "image/png", "data": "aa"}}, ': got "image"'),
    ({"inlineData": {"mimeType": "application/pdf", "data": "aa"}}, ': got "file"'),
]
IN_CONFIG: list[tuple[dict[str, Any], str]] = [
    ({"topP": 2}, ".topP: got 2"),
    ({"top_p": 2}, ".topP: got 2"),
    ({"topP": 1, "top_p": 1}, ": "),
    ({"topK": 1.5}, ".topK: got 1.5"),
    ({"logprobs": 1}, ": "),
    ({"candidateCount": 0}, ".candidateCount: got 0"),
    ({"responseModalities": ["IMAGE"]}, ".responseModalities: "),
    ({"responseMimeType": "text/html"}, ".responseMimeType: "),
    ({"responseMimeType": "text/plain", "responseSchema": {}}, ".responseMimeType: "),
    ({"responseMimeType": "text/x.enum"}, ".responseMimeType: "),
    (
        {"responseMimeType": "text/x.enum", "responseSchema": {"enum": []}},
        ".responseSchema.enum: ",
    ),
    ({"responseSchema": {}, "responseJsonSchema": {}}, ".responseJsonSchema: "),
    ({"responseSchema": {"type": "NOTHING"}}, ".responseSchema: "),
    ({"thinkingConfig": {"thinkingBudget": -2}}, ".thinkingConfig.thinkingBudget: got -2"),
]
CHOICE = "toolConfig.functionCallingConfig"
TWO_SCHEMAS = {"name": "f", "parameters": {}, "parametersJsonSchema": {}}
IN_REQUEST: list[tuple[dict[str, Any], str]] = [
    ({"contents": []}, "contents: "),
    ({"contents": [{"role": "robot", "parts": [{"text": "x"}]}]}, "contents[0].role: "),
    ({"contents": [{"parts": [{"text": "the dog " * 300}]}]}, "prompt is too long: "),
    (
        {"contents": [{"role": "model", "parts": [{"functionResponse": {"name": "f"}}]}]},
        'contents[0].parts[0]: got "functionResponse"',
    ),
    (
        {"systemInstruction": {"parts": [{"functionCall": {"name": "f"}}]}},
        "systemInstruction.parts[0]: ",
    ),
    ({"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}, f'{CHOICE}: got "ANY"'),
    (
        {"toolConfig": {"functionCallingConfig": {"allowedFunctionNames": ["g"]}}},
        f'{CHOICE}: got "g"',
    ),
    ({"tools": {"functionDeclarations": TWO_SCHEMAS}}, "tools[0].functionDeclarations[0]: "),
    ({"cachedContent": "cachedContents/x"}, "cachedContent: "),
    *[
        ({"contents": [{"parts": [part]}]}, f"contents[0].parts[0]{rest}")
        for part, rest in IN_PARTS
    ],
    *[({"generationConfig": config}, f"generationConfig{rest}") for config, rest in IN_CONFIG],
]


@pytest.mark.parametrize(("fields", "problem"), IN_REQUEST)
def test_errors_name_the_field(client: httpx.Client, fields: dict[str, Any], problem: str) -> None:
    body = {"contents": HELLO, **fields}
    message = refusal(client, "generateContent", **body)
    assert message.startswith(problem), message
    assert refusal(client, "streamGenerateContent?alt=sse", **body) == message


def test_what_only_google_has_is_ignored() -> None:
    """Tools that Google's servers run are named in a warning; filters are not."""
    fields = {
        "safety_settings": [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}],
        "labels": {"a": "b"},
        "tools": [{"google_search": {}}, *TOOLS],
    }
    with fakes.running(free()) as client:
        response = client.post(f"{MODEL}:generateContent", json=body_of({}, fields))
    assert response.status_code == 200, response.text
    assert response.headers["warning"] == '299 hearth "ignored: tools[0].google_search"'


def test_a_failed_stream_ends_with_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's packages cannot read the name of an event."""

    def broken(*_: object) -> str:
        raise ZeroDivisionError("a secret")

    with fakes.running(chatty(template=templates.CHATML)) as client:
        monkeypatch.setattr("hearthd.text.detokenize.Detokenizer.push", broken)
        path = f"{MODEL}:streamGenerateContent"
        stream = client.post(f"{path}?alt=sse", json=body_of({}, {}))
        listed = client.post(path, json=body_of({}, {})).json()
    (data,) = stream.text.strip().split("\n")
    for error in (json.loads(data.removeprefix("data: ")), listed[-1]):
        assert (error["error"]["code"], error["error"]["status"]) == (500, "INTERNAL")
        assert "secret" not in str(error)


def test_an_idle_stream_has_only_empty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's packages end a stream at a comment."""
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", 1e-4)
    with fakes.running(chatty(template=templates.CHATML)) as client:
        path = f"{MODEL}:streamGenerateContent?alt=sse"
        lines = client.post(path, json=body_of({"maxOutputTokens": 40}, {})).text.split("\n")
        other = client.post("/generate", json={"prompt": "a", "max_tokens": 40, "stream": True})
    assert ": ping" in other.text
    assert {line[:6] for line in lines} == {"data: ", ""}
    assert lines.count("") > 2 * sum(bool(line) for line in lines)
