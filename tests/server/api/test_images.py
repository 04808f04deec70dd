"""Images in requests of every surface, with a fake runtime."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.images import media_reader, rendering
from tests.baker.small_smolvlm import ROWS, SIDE
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.images.image_service import (
    TALL,
    WIDE,
    anthropic,
    chat,
    gemini,
    image_service,
    openai,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from hearthd.server.images.read_media import ReadMedia
    from hearthd.text.conversation import Media
    from tests.fake_runtime import FakeRuntime

TEXT = "the dog"
CHAT = "/v1/chat/completions"
GEMINI = "/v1beta/models/any"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(image_service()) as client:
        yield client


def tokens(client: httpx.Client, path: str, body: dict[str, Any]) -> int:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    usage = response.json().get("usage", response.json())
    usage = usage.get("usageMetadata", usage)
    names = (
        "input_tokens", "prompt_tokens", "prompt_eval_count", "promptTokenCount", "totalTokens",
    )  # fmt: skip
    counted: int = next(usage[name] for name in names if name in usage)
    read: int = counted + usage.get("cache_read_input_tokens", 0)
    return read


def test_every_surface_reads_the_same_images(client: httpx.Client) -> None:
    text = {"type": "text", "text": TEXT}
    count = tokens(client, "/v1/chat/completions", chat(openai(WIDE), text, openai(TALL)))
    empty = tokens(client, "/v1/chat/completions", chat(text))
    # Two squares and the whole image, of each.
    assert count - empty > 6 * ROWS
    messages = chat(anthropic(WIDE), text, anthropic(TALL))
    items = [
        {"type": "input_image", "image_url": f"data:;base64,{WIDE}", "detail": "auto"},
        {"type": "input_text", "text": TEXT},
        {"type": "input_image", "image_url": f"data:;base64,{TALL}"},
    ]
    responses = {"input": [{"role": "user", "content": items}]}
    raw = chat({"type": "image_url", "image_url": {"url": WIDE}}, text, openai(TALL))
    assert tokens(client, "/v1/chat/completions", raw) == count
    assert tokens(client, "/v1/chat/completions/input_tokens", raw) == count
    assert tokens(client, "/v1/messages", messages) == count
    assert tokens(client, "/v1/messages/count_tokens", messages) == count
    assert tokens(client, "/v1/responses", {**responses, "max_output_tokens": 3}) == count
    assert tokens(client, "/v1/responses/input_tokens", responses) == count
    contents = {"contents": [{"parts": [gemini(WIDE), {"text": TEXT}, gemini(TALL)]}]}
    short = {"generationConfig": {"maxOutputTokens": 3}}
    assert tokens(client, f"{GEMINI}:generateContent", {**contents, **short}) == count
    assert tokens(client, f"{GEMINI}:countTokens", contents) == count


def test_a_client_can_ask_whether_the_model_reads_images(client: httpx.Client) -> None:
    assert client.get("/props").json()["modalities"] == {"vision": True, "audio": False}
    models = client.get("/v1/models").json()
    (listed,) = models["data"]
    (named,) = models["models"]
    assert (named["name"], named["capabilities"]) == (listed["id"], ["completion", "multimodal"])
    assert "vision" in listed["capabilities"]
    assert listed["architecture"] == {
        "input_modalities": ["text", "image"],
        "output_modalities": ["text"],
    }


def test_the_template_places_images_and_no_text_does(client: httpx.Client) -> None:
    body = chat(openai(TALL), {"type": "text", "text": "<image>"})
    prompt = client.post("/apply-template", json=body).json()["prompt"]
    assert prompt == (
        "<|im_start|>User:<fake_token_around_image><row_1_col_1><image>\n<fake_token_around_image>"
        "<row_2_col_1><image>\n\n<fake_token_around_image><global-img><image>"
        "<fake_token_around_image><image><end_of_utterance>\nAssistant:"
    )
    assert client.post("/v1/chat/completions", json=body).status_code == 200


CALL = {"name": "f", "arguments": "{}"}
CALLED = {"id": "c", "type": "function", "function": CALL}
QUESTION = {"role": "user", "content": TEXT}
# A question, a call of a tool, and its result with an image.
RESULTS: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        QUESTION,
        {"role": "assistant", "content": TEXT, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "c", "content": [openai(TALL)]},
    ],
    "/v1/responses": [
        QUESTION,
        {"role": "assistant", "content": TEXT},
        {"type": "function_call", "call_id": "c", **CALL},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_image", "image_url": f"data:;base64,{TALL}"}],
        },
    ],
    "/v1/messages": [
        QUESTION,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": TEXT},
                {"type": "tool_use", "id": "c", "name": "f", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": [anthropic(TALL)]}],
        },
    ],
    f"{GEMINI}:generateContent": [
        {"parts": [{"text": TEXT}]},
        {"role": "model", "parts": [{"text": TEXT}, {"functionCall": {"name": "f"}}]},
        {"parts": [{"functionResponse": {"name": "f", "parts": [gemini(TALL)]}}]},
    ],
    "/api/chat": [
        QUESTION,
        {"role": "assistant", "content": TEXT, "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "tool", "tool_name": "f", "images": [TALL]},
    ],
}


def test_results_of_tools_have_the_same_images_on_every_surface(client: httpx.Client) -> None:
    limits: dict[str, dict[str, Any]] = {
        "/v1/responses": {"max_output_tokens": 3},
        "/api/chat": {"stream": False},
        f"{GEMINI}:generateContent": {"generationConfig": {"maxOutputTokens": 3}},
    }
    keys = {"/v1/responses": "input", f"{GEMINI}:generateContent": "contents"}
    counts = set()
    for path, messages in RESULTS.items():
        key = keys.get(path, "messages")
        counts.add(tokens(client, path, {key: messages, **limits.get(path, {"max_tokens": 3})}))
    assert len(counts) == 1
    assert counts.pop() > 3 * ROWS


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            {"type": "image_url", "image_url": {"url": "http://example.com/a.png"}},
            "the server downloads images only with --fetch-images",
        ),
        ({"type": "image_url"}, "expected the image itself"),
        (openai("@"), "expected base64"),
        (openai("\u00e9"), "expected base64"),
        (openai("AAAA"), "expected an image in the format JPEG, PNG, WebP or GIF"),
        ({"type": "input_audio"}, "expected text or an image"),
    ],
)
def test_what_is_not_an_image_is_refused_at_its_field(
    client: httpx.Client, part: dict[str, Any], message: str
) -> None:
    response = client.post("/v1/chat/completions", json=chat(openai(TALL), part))
    assert response.status_code == 400
    said = response.json()["error"]["message"]
    assert said.startswith("messages[0].content[1]: got ")
    assert message in said


def test_an_image_that_does_not_fit_is_too_long(client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json=chat(*[openai(TALL)] * 40))
    assert response.status_code == 400
    assert "prompt is too long" in response.json()["error"]["message"]


def test_the_memory_for_pixels_is_limited_and_given_back(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_reader, "PIXEL_MEMORY", 5 * SIDE * SIDE * 3)
    with fakes.running(image_service()) as client:
        many = client.post("/v1/chat/completions", json=chat(openai(TALL), openai(WIDE)))
        assert many.status_code == 503
        assert "memory for images is full" in many.json()["error"]["message"]
        for _ in range(3):
            assert tokens(client, "/v1/chat/completions", chat(openai(TALL))) > 3 * ROWS


def test_a_question_about_the_same_image_reads_it_once() -> None:
    service = image_service()
    runtime: FakeRuntime = service._runtime  # type: ignore[assignment]
    with fakes.running(service) as client:
        for question in ("the fox", "the quick brown fox"):
            body = chat(openai(WIDE), {"type": "text", "text": question})
            assert client.post("/v1/chat/completions", json=body).status_code == 200
            assert runtime.images_read == 3


def test_texts_are_answered_while_images_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more requests than the event loop has threads; their images take turns."""
    decode, may_decode, fields = media_reader.MediaReader.read, threading.Event(), list[str]()

    def slow(self: media_reader.MediaReader, item: Media) -> ReadMedia:
        fields.append(item.field)
        assert may_decode.wait(PATIENCE)
        return decode(self, item)

    monkeypatch.setattr(media_reader.MediaReader, "read", slow)
    requests = 2 * ((os.cpu_count() or 1) + 4)
    with (
        fakes.running(image_service()) as client,
        ThreadPoolExecutor(requests) as clients,
    ):
        body = chat(openai(TALL), openai(TALL))
        answers = [clients.submit(client.post, CHAT, json=body) for _ in range(requests)]
        try:
            text = client.post(CHAT, json=chat({"type": "text", "text": TEXT}))
            assert text.status_code == 200
            assert len(fields) <= 1
            while rendering._DECODER._work_queue.empty():
                time.sleep(0.01)
        finally:
            may_decode.set()
        assert all(answer.result().status_code == 200 for answer in answers)
    assert fields[:2] == ["messages[0].content[0]"] * 2


@pytest.mark.parametrize("id_", [-1, 10**6, 2**31, 2**63, -(2**63) - 1, 2**64])
def test_ids_beside_an_image_must_be_in_the_vocabulary(client: httpx.Client, id_: int) -> None:
    """-1 is the id of a row of an image, which the server writes itself."""
    body = {"prompt": TEXT, "images": [WIDE], "context": [5, id_], "stream": False}
    refused = client.post("/api/generate", json=body)
    assert refused.status_code == 400, refused.text
    assert f"[1]: got {id_}, expected " in refused.json()["error"]
    body["context"] = [5, 6]
    assert client.post("/api/generate", json=body).status_code == 200
