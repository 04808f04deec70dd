"""Every surface for conversations converts them alike, and names its own fields in errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.server import fakes, templates
from tests.server.openai_servers import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

SENTENCE = "expected text: the model cannot read images, sound and files"
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {}}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY, template=templates.CHATML)) as client:
        yield client


def refused(client: httpx.Client, path: str, body: dict[str, Any]) -> str:
    """The message of a rejected request."""
    response = client.post(path, json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    message: str = error["message"]
    return message


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
TEXT = {"type": "text", "text": "a"}
MEDIA: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"messages": [user(TEXT, IMAGE)]}, "messages[0].content[1]"),
    ("/apply-template", {"messages": [user(IMAGE)]}, "messages[0].content[0]"),
    (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "assistant", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": [IMAGE]},
            ]
        },
        "messages[1].content[0]",
    ),
    ("/v1/messages", {"messages": [user(TEXT, {"type": "image"})]}, "messages[0].content[1]"),
    ("/v1/messages", {"messages": [user(TEXT)], "system": [TEXT, IMAGE]}, "system[1]"),
    (
        "/v1/messages",
        {
            "messages": [
                {"role": "assistant", "content": [USE]},
                user({"type": "tool_result", "tool_use_id": "c", "content": [IMAGE]}),
            ]
        },
        "messages[1].content[0].content[0]",
    ),
    ("/v1/responses", {"input": [user({"type": "input_image"})]}, "input[0].content[0]"),
    (
        "/v1/responses",
        {
            "input": [
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": [IMAGE]},
            ]
        },
        "input[1].output[0]",
    ),
]


@pytest.mark.parametrize(("path", "body", "field"), MEDIA)
@pytest.mark.parametrize("kind", ["image", "audio", "file"])
def test_other_parts_than_text_are_refused_in_one_sentence(
    client: httpx.Client, path: str, body: dict[str, Any], field: str, kind: str
) -> None:
    types = {"image": "input_image", "audio": "input_audio", "file": "input_file"}
    sent = renamed(body, types[kind])
    assert refused(client, path, sent) == f'{field}: got "{kind}", {SENTENCE}'


def renamed(value: Any, media: str) -> Any:
    """The body with parts of another type in place of images."""
    if isinstance(value, list):
        return [renamed(item, media) for item in value]
    if isinstance(value, dict):
        if "image" in str(value.get("type")):
            return {**value, "type": media}
        return {name: renamed(item, media) for name, item in value.items()}
    return value


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/v1/chat/completions",
            {"messages": [user({"type": "video"})]},
            "messages[0].content[0].type: got \"video\", expected 'text'",
        ),
        (
            "/v1/responses",
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "["}]},
            'input[0].arguments: got "[", expected a JSON object as text',
        ),
        (
            "/v1/responses",
            {"input": [{"role": "assistant", "content": "a"}], "continue_final_message": True}
            | {"add_generation_prompt": True},
            "add_generation_prompt: got true, expected false with continue_final_message",
        ),
    ],
)
def test_an_error_names_the_field_of_the_surface(
    client: httpx.Client, path: str, body: dict[str, Any], message: str
) -> None:
    assert refused(client, path, body) == message


def test_the_surfaces_make_the_same_prompt(client: httpx.Client) -> None:
    talk = [{"role": "user", "content": "the dog"}, {"role": "assistant", "tool_calls": [CALL]}]
    chat = [*talk, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    items = [
        talk[0],
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]
    blocks = [
        talk[0],
        {"role": "assistant", "content": [USE]},
        user({"type": "tool_result", "tool_use_id": "c", "content": "1"}),
    ]
    system = {"role": "system", "content": "fox"}
    counted = [
        client.post(path, json=body).json()["input_tokens"]
        for path, body in (
            ("/v1/chat/completions/input_tokens", {"messages": [system, *chat]}),
            ("/v1/responses/input_tokens", {"input": items, "instructions": "fox"}),
            ("/v1/messages/count_tokens", {"messages": blocks, "system": "fox"}),
        )
    ]
    assert counted[0] > 10
    assert counted == counted[:1] * 3


def test_an_earlier_refusal_is_text(client: httpx.Client) -> None:
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "the fox"}]}
    talk = [user(TEXT), refusal, user(TEXT)]
    said = [user(TEXT), {"role": "assistant", "content": "the fox"}, user(TEXT)]
    prompts = [
        client.post("/apply-template", json={"messages": messages}).json()["prompt"]
        for messages in (talk, said)
    ]
    assert prompts[0] == prompts[1]
    items = [{"role": "user", "content": "a"}, refusal, {"role": "user", "content": "a"}]
    answer = client.post("/v1/responses", json={"input": items, "max_output_tokens": 1})
    assert answer.status_code == 200, answer.text
    message = refused(client, "/v1/chat/completions", {"messages": [user(refusal["content"][0])]})
    assert message == "messages[0].content[0].type: got \"refusal\", expected 'text'"
