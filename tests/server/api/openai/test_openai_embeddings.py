"""/v1/embeddings by the real `openai` client, on a fake model."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import openai
import pytest
import tokenizers
from tokenizers import processors

from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.openai_servers import LIBRARY, TOKENIZER, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = "the quick brown fox jumps over the lazy dog, x y z q w e r t y"


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of(fakes.fake_service(LIBRARY, slots=2, batch=2, hidden=6)) as client:
        yield client


def embed(client: openai.OpenAI, texts: Any, **fields: Any) -> list[list[float]]:
    data = client.embeddings.create(model="any", input=texts, **fields).data
    assert [item.index for item in data] == list(range(len(data)))
    return [item.embedding for item in data]


@pytest.mark.parametrize("text", ["x", "the dog", LONG])
def test_an_embedding_is_the_mean_hidden_state_with_length_1(
    client: openai.OpenAI, text: str
) -> None:
    ids = TOKENIZER.encode(text)
    whole = FakeRuntime(vocab_size=LIBRARY.get_vocab_size(), context=64, chunk=64, hidden=6)
    mean = whole.embed(0, ids, 0) / len(ids)
    (embedding,) = embed(client, text)
    assert np.allclose(embedding, mean / np.linalg.norm(mean), atol=1e-6)
    assert np.linalg.norm(embedding) == pytest.approx(1)


def test_an_input_has_the_same_vector_alone_and_in_a_list(client: openai.OpenAI) -> None:
    texts = ["the dog", LONG, "x"]
    alone = [embed(client, text)[0] for text in texts]
    assert embed(client, texts) == alone
    ids = [list(TOKENIZER.encode(text)) for text in texts]
    assert embed(client, ids) == alone
    assert embed(client, ids[0]) == alone[:1]
    # The client asks for base64 unless told otherwise, and decodes it.
    floats = embed(client, texts, encoding_format="float")
    assert np.array_equal(np.asarray(floats, np.float32), np.asarray(alone, np.float32))
    whole: Any = client.embeddings.create(model="any", input=texts)
    assert whole.id.startswith("embd-")  # which Mistral's client needs
    used = whole.usage
    assert used.prompt_tokens == used.total_tokens == sum(map(len, ids))


def test_ids_and_texts_are_mixed_in_one_input(client: openai.OpenAI) -> None:
    """With an id in it, a list is one input."""
    the, dog = TOKENIZER.encode("the"), TOKENIZER.read(" dog")
    alone = embed(client, [[*the, *dog], "the dog"])
    assert embed(client, [*the, " dog"]) == alone[:1]
    assert embed(client, ["the", *dog]) == alone[:1]
    assert embed(client, [["the", *dog], "the dog", [*the, " dog"]]) == [*alone, alone[0]]


def test_an_object_with_a_text_is_that_text(client: openai.OpenAI) -> None:
    parts = {"content": [{"type": "text", "text": "the "}, {"type": "text", "text": "dog"}]}
    expected = embed(client, "the dog")
    assert embed(client, parts) == expected
    assert embed(client, [{"prompt_string": "the dog"}, parts, "the dog"]) == expected * 3


def test_embeddings_do_not_change_answers(client: openai.OpenAI) -> None:
    def text() -> str:
        answer = client.completions.create(model="any", prompt=LONG, seed=1, max_tokens=8)
        return str(answer.choices[0].text)

    before = text()
    embed(client, [LONG, LONG[:20], LONG])
    assert text() == before


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["x", ""]}, "input[1]"),
        ({"input": [1, 10**6]}, "input[1]"),
        ({"input": [[1], [5] * 64]}, "input[1]"),
        ({"input": [[1], [1, 10**6]]}, "input[1][1]"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": [1, [2]]}, "input[1]"),
        ({"input": [1, {"prompt_string": "x"}]}, "input[1]"),
        ({"input": {"content": "x"}}, "input.content"),
        ({"input": {"content": []}}, "input.content"),
        ({"input": ["x", {}]}, "input[1]"),
        ({"input": {"content": [{"type": "input_audio"}]}}, "input.content[0].type"),
        ({"input": {"content": [{"type": "image_url"}]}}, "input.content[0].type"),
        ({"input": "x", "dimensions": 7}, "dimensions"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "x", "dimensions": 0}, "dimensions"),
    ],
)
def test_an_invalid_request_is_rejected_by_field(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="any", **fields)
    assert caught.value.param == param


def test_the_context_and_the_width_are_the_limits(client: openai.OpenAI) -> None:
    (embedding,) = embed(client, [[5] * 63], dimensions=6)
    assert len(embedding) == 6


@pytest.mark.parametrize("encoding_format", ["float", "base64"])
def test_fewer_dimensions_are_the_first_ones_with_length_1(
    client: openai.OpenAI, encoding_format: Any
) -> None:
    whole = np.array(embed(client, ["the dog", LONG]))
    response = client.embeddings.with_raw_response.create(
        model="any", input=["the dog", LONG], dimensions=4, encoding_format=encoding_format
    )
    items = [item["embedding"] for item in response.http_response.json()["data"]]
    if encoding_format == "base64":
        items = [np.frombuffer(base64.b64decode(item), "<f4") for item in items]
    expected = whole[:, :4] / np.linalg.norm(whole[:, :4], axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(items), expected, atol=1e-6)


def test_a_model_that_pools_the_last_token_gets_the_tokens_around_a_text() -> None:
    library = tokenizers.Tokenizer.from_str(LIBRARY.to_str())
    library.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", fakes.EOS)]
    )
    service = fakes.fake_service(library, slots=2, batch=2, hidden=6, pooling="last")
    ids = (*TOKENIZER.encode("the dog"), fakes.EOS)
    twin = FakeRuntime(vocab_size=library.get_vocab_size(), context=64, chunk=64, hidden=6)
    state = twin.embed(0, ids, 0)
    with client_of(service) as client:
        texts = [[*ids], "the dog"]
        by_ids, by_text = (embed(client, text)[0] for text in texts)
    np.testing.assert_allclose(by_text, by_ids)
    np.testing.assert_allclose(by_text, state / np.linalg.norm(state), atol=1e-6)


def test_a_failed_step_is_a_500() -> None:
    with client_of(fakes.fake_service(LIBRARY, poison=300)) as client:
        with pytest.raises(openai.InternalServerError, match="token 300 is poison"):
            embed(client, [[300]])
        assert len(embed(client, "x")) == 1
