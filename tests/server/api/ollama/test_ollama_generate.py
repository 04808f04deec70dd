"""/api/generate and /api/embed: prompts, contexts and vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.server import encoders, fakes, templates
from tests.server.api.ollama.ask import HELLO, lines, refusal, whole
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

GENERATE = "/api/generate"
SHORT = {"num_predict": 6, "temperature": 0}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty(template=templates.CHATML)) as client:
        yield client


def test_a_prompt_is_a_conversation_of_one_message(client: httpx.Client) -> None:
    system = {"role": "system", "content": "be brief"}
    chat = whole(client, "/api/chat", messages=[system, *HELLO], options=SHORT)
    fields: dict[str, Any] = {"prompt": "the dog", "system": "be brief", "options": SHORT}
    answer = whole(client, GENERATE, **fields)
    assert answer["response"] == chat["message"]["content"]
    assert answer["prompt_eval_count"] == chat["prompt_eval_count"]
    *more, last = lines(client, GENERATE, **fields)
    assert "".join(line["response"] for line in more) == answer["response"]
    assert (last["response"], last["done_reason"]) == ("", "length")
    assert last["context"] == answer["context"]


def test_thinking_comes_apart() -> None:
    answer = "<think>\nthe fox\n</think>\n\nthe dog"
    with fakes.running(scripted(answer, template=templates.THINKING)) as client:
        shown = whole(client, GENERATE, prompt="the dog", think=True)
        assert (shown["thinking"], shown["response"]) == ("the fox", "the dog")


def test_a_context_continues_the_conversation(client: httpx.Client) -> None:
    first = whole(client, GENERATE, prompt="the dog", options=SHORT)
    rendered = client.post("/apply-template", json={"messages": HELLO}).json()["prompt"]
    prompt = list(TOKENIZER.encode(rendered))
    assert first["context"][: len(prompt)] == prompt
    assert len(first["context"]) == len(prompt) + 6
    second = whole(client, GENERATE, prompt="the dog", context=first["context"], options=SHORT)
    # The token that begins a text is not repeated.
    assert second["context"][:-6] == [*first["context"], *prompt[1:]]
    assert refusal(client, GENERATE, prompt="x", context=[10**6])[0] == 400


def test_raw_continues_the_text(client: httpx.Client) -> None:
    answer = whole(client, GENERATE, prompt="the dog", raw=True, options=SHORT)
    sent = {"prompt": "the dog", "max_tokens": 6, "temperature": 0}
    assert answer["response"] == client.post("/generate", json=sent).json()["text"]
    assert "context" not in answer
    for name, value in (("system", "x"), ("context", [5]), ("images", ["aa"])):
        status, reason = refusal(client, GENERATE, prompt="x", raw=True, **{name: value})
        assert (status, reason.startswith(f"{name}: got")) == (400, True)


def test_images_are_refused(client: httpx.Client) -> None:
    status, reason = refusal(client, GENERATE, prompt="x", images=["aa"])
    assert (status, reason) == (
        400,
        'images[0]: got "image", expected text: the model cannot read images, sound and files',
    )


def test_a_model_without_a_template_continues_the_text() -> None:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        plain = whole(client, GENERATE, prompt="the dog", options=SHORT)
        raw = whole(client, GENERATE, prompt="the dog", options=SHORT, raw=True)
        assert plain["response"] == raw["response"]
        more = whole(client, GENERATE, prompt=" jumps", context=plain["context"], options=SHORT)
        assert more["prompt_eval_count"] > plain["prompt_eval_count"] + 6
        assert refusal(client, GENERATE, prompt="x", system="y")[0] == 400
        assert refusal(client, "/api/chat", messages=HELLO)[0] == 400


def test_a_suffix_fills_the_gap(client: httpx.Client) -> None:
    assert refusal(client, GENERATE, prompt="the", suffix="dog")[0] == 501
    library = fakes.gemma_like(special=("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"))
    with fakes.running(fakes.fake_service(library)) as filler:
        answer = whole(filler, GENERATE, prompt="the", suffix="dog", options=SHORT)
        sent = {"input_prefix": "the", "input_suffix": "dog", "n_predict": 6, "temperature": 0}
        assert answer["response"] == filler.post("/infill", json=sent).json()["content"]


def test_texts_are_embedded(client: httpx.Client) -> None:
    texts = ["the dog", "the fox"]
    answer = whole(client, "/api/embed", input=texts)
    same = client.post("/v1/embeddings", json={"input": texts}).json()
    assert answer["embeddings"] == [item["embedding"] for item in same["data"]]
    assert answer["prompt_eval_count"] == same["usage"]["prompt_tokens"]
    (single,) = whole(client, "/api/embed", input="the dog")["embeddings"]
    older = client.post("/api/embeddings", json={"prompt": "the dog"}).json()
    assert older == {"embedding": single}
    (short,) = whole(client, "/api/embed", input="the dog", dimensions=2)["embeddings"]
    assert len(short) == 2
    assert sum(value**2 for value in short) == pytest.approx(1)
    assert whole(client, "/api/embed")["embeddings"] == []
    assert refusal(client, "/api/embed", input="x", dimensions=10**6)[0] == 400


@pytest.mark.parametrize("kind", ["language", "last", "encoder"])
def test_a_long_text_is_cut(kind: str) -> None:
    service = (
        encoders.service(scores=False)
        if kind == "encoder"
        else fakes.fake_service(LIBRARY, pooling="mean" if kind == "language" else "last")
    )
    long = "the dog " * 5000
    with fakes.running(service) as client:
        answer = whole(client, "/api/embed", input=long)
        context = client.post("/api/show", json={"model": service.name}).json()["model_info"]
        (size,) = (value for name, value in context.items() if name.endswith("context_length"))
        assert answer["prompt_eval_count"] in (size, size - 1)
        status, reason = refusal(client, "/api/embed", input=long, truncate=False)
        assert (status, "too long" in reason) == (400, True)
