"""Images in `multimodal_data` of /completion and /tokenize, as llama-server's clients send them."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.text.media_marker import KNOWN_MARKER
from tests.baker.small_smolvlm import IMAGE, ROWS
from tests.server import fakes
from tests.server.images.image_service import TALL, WIDE, chat, image_service, openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(image_service()) as client:
        yield client


@pytest.fixture(scope="module")
def marker(client: httpx.Client) -> str:
    found: str = client.get("/props").json()["media_marker"]
    return found


def complete(client: httpx.Client, prompt: Any, **fields: Any) -> Any:
    body = {"prompt": prompt, "n_predict": 6, "temperature": 0, **fields}
    response = client.post("/completion", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def media(text: str, *images: str) -> dict[str, Any]:
    return {"prompt_string": text, "multimodal_data": list(images)}


def tokens(client: httpx.Client, text: str, *images: str, **fields: Any) -> list[int]:
    response = client.post("/tokenize", json={"content": media(text, *images), **fields})
    assert response.status_code == 200, response.text
    ids: list[int] = response.json()["tokens"]
    return ids


def test_a_completion_reads_what_a_chat_reads(client: httpx.Client, marker: str) -> None:
    """The prompt of the chat template with markers is the same prompt, and has the same answer."""
    body = chat(openai(WIDE), {"type": "text", "text": "the dog"}, openai(TALL))
    talk = client.post(
        "/v1/chat/completions", json={**body, "max_tokens": 6, "temperature": 0}
    ).json()
    text = f"<|im_start|>User:{marker}the dog{marker}<end_of_utterance>\nAssistant:"
    for written in (text, text.replace(marker, KNOWN_MARKER)):
        answer = complete(client, media(written, WIDE, TALL))
        assert answer["content"] == talk["choices"][0]["message"]["content"]
        assert answer["tokens_evaluated"] == talk["usage"]["prompt_tokens"]
        assert "<global-img>" in answer["prompt"]


def test_several_prompts_have_their_images(client: httpx.Client, marker: str) -> None:
    prompts = [media(f"{marker}the dog", WIDE), "the dog", media(f"{marker}the dog", TALL)]
    answers = complete(client, prompts)
    assert [answer["content"] for answer in answers] == [
        complete(client, prompt)["content"] for prompt in prompts
    ]
    assert answers[0]["tokens_evaluated"] - answers[1]["tokens_evaluated"] > 3 * ROWS


def test_tokenize_counts_the_positions_of_images(client: httpx.Client, marker: str) -> None:
    text = f"the {marker} dog"
    ids = tokens(client, text, WIDE, add_special=True)
    assert ids.count(-1) == 3 * ROWS
    assert len(ids) == complete(client, media(text, WIDE))["tokens_evaluated"]
    assert tokens(client, text, WIDE) == ids[1:]
    pieces = client.post(
        "/tokenize", json={"content": media(text, WIDE), "with_pieces": True}
    ).json()["tokens"]
    assert [piece["piece"] for piece in pieces if piece["id"] == -1] == [""] * 3 * ROWS
    plain = client.post("/tokenize", json={"content": "the dog"}).json()
    assert client.post("/tokenize", json={"content": media("the dog")}).json() == plain


def test_a_known_marker_beside_the_random_one_is_text(client: httpx.Client, marker: str) -> None:
    without = tokens(client, f"{marker}the dog", WIDE)
    assert len(tokens(client, f"{marker}{KNOWN_MARKER}the dog", WIDE)) > len(without)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (media("the dog", WIDE), "prompt.multimodal_data: got 1, expected 0 images or sounds"),
        (media(f"{KNOWN_MARKER}", WIDE, TALL), "got 2, expected 1 images or sounds: one for each"),
        (
            media(f"{KNOWN_MARKER} <image>", WIDE),
            "the model's token for images or sound in the text",
        ),
        (media(KNOWN_MARKER, "@"), "prompt.multimodal_data[0]: got"),
        (media(KNOWN_MARKER, base64.b64encode(b"malformed").decode()), "expected an image in the"),
        ([IMAGE, media(KNOWN_MARKER, WIDE)], "prompt[1].multimodal_data: got"),
        (["the", media("x", WIDE)], "prompt[1].multimodal_data: got"),
    ],
)
def test_wrong_images_are_refused(client: httpx.Client, prompt: Any, message: str) -> None:
    response = client.post("/completion", json={"prompt": prompt})
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]
