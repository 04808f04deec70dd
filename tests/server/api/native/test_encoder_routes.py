"""/v1/embeddings and /v1/rerank on encoders that need no compiler."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.bundle import PairPrompt
from tests.server import encoders, fakes
from tests.server.encoders import CLS, SEP, UNKNOWN, WORDS, FakeEncoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

QUERY = "the fast dog"
DOCUMENTS = ["the fox sleeps", "the fast dog", "dog", "the dog runs the dog runs the dog"]


@pytest.fixture
def embedder() -> FakeEncoder:
    return FakeEncoder(scores=False)


@pytest.fixture
def client(embedder: FakeEncoder) -> Iterator[httpx.Client]:
    with fakes.running(encoders.service(scores=False, runtime=embedder)) as client:
        yield client


@pytest.fixture
def reranker() -> Iterator[httpx.Client]:
    with fakes.running(encoders.service(scores=True)) as client:
        yield client


def expected_vector(*words: str) -> np.ndarray[Any, Any]:
    ids = [CLS, *(WORDS.index(word) for word in words), SEP]
    counts = np.bincount(ids, minlength=len(WORDS))
    return counts / np.linalg.norm(counts)


def test_texts_of_similar_length_are_embedded_together(
    client: httpx.Client, embedder: FakeEncoder
) -> None:
    texts = ["the dog", "the fox runs fast", "fox", "dog dog", "the fox sleeps"]
    embedder.calls.clear()
    answer = client.post("/v1/embeddings", json={"input": texts}).json()
    assert [item["index"] for item in answer["data"]] == [0, 1, 2, 3, 4]
    for item, text in zip(answer["data"], texts, strict=True):
        np.testing.assert_allclose(item["embedding"], expected_vector(*text.split()), atol=1e-6)
    assert answer["usage"] == {"prompt_tokens": 22, "total_tokens": 22}
    assert embedder.calls == [("encode_3x4", [4, 3, 4]), ("encode_2x8", [6, 5])]


def test_metrics_count_the_tokens_that_were_read(
    client: httpx.Client, reranker: httpx.Client
) -> None:
    embeddings = client.post("/v1/embeddings", json={"input": ["the dog", "fox"]})
    scores = reranker.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS})
    for server, answer in ((client, embeddings), (reranker, scores)):
        lines = (line.rpartition(" ") for line in server.get("/metrics").text.splitlines())
        read = {name: float(value) for name, _, value in lines if name.startswith("llamacpp:")}
        assert read["llamacpp:prompt_tokens_total"] == answer.json()["usage"]["prompt_tokens"]
        assert read["llamacpp:prompt_seconds_total"] > 0


def test_token_ids_are_embedded_as_they_are(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": [5, 5, 6]}).json()
    counts = np.bincount([5, 5, 6], minlength=len(WORDS))
    expected = counts / np.linalg.norm(counts)
    np.testing.assert_allclose(answer["data"][0]["embedding"], expected, atol=1e-6)


def test_dimensions_cut_the_vector_and_scale_it_again(client: httpx.Client) -> None:
    answer = client.post("/v1/embeddings", json={"input": "the dog", "dimensions": 5}).json()
    expected = expected_vector("the", "dog")[:5]
    vector = answer["data"][0]["embedding"]
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-6)
    refused = client.post("/v1/embeddings", json={"input": "a", "dimensions": 11})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "dimensions")


def test_the_route_of_llama_server_embeds_too(client: httpx.Client) -> None:
    (answer,) = client.post("/embedding", json={"content": "fox"}).json()
    np.testing.assert_allclose(answer["embedding"][0], expected_vector("fox"), atol=1e-6)


@pytest.mark.parametrize(
    ("input_", "param"),
    [("", "input"), (["dog", " ".join(["dog"] * 15)], "input[1]"), ([4, 10], "input[1]")],
)
def test_texts_that_the_model_cannot_read_are_rejected(
    client: httpx.Client, input_: Any, param: str
) -> None:
    refused = client.post("/v1/embeddings", json={"input": input_})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def relevance(query: str, document: str) -> float:
    common = {*query.split(), "[CLS]"} & {*document.split()}
    return 1 / (1 + math.exp(len(document.split()) + 1 - len(common)))


@pytest.mark.parametrize(
    "path", ["/v1/rerank", "/rerank", "/reranking", "/v1/reranking", "/v2/rerank"]
)
def test_documents_are_ordered_by_relevance(reranker: httpx.Client, path: str) -> None:
    answer = reranker.post(path, json={"query": QUERY, "documents": DOCUMENTS}).json()
    assert (answer["object"], answer["model"]) == ("list", "reranker")
    scores = [relevance(QUERY, document) for document in DOCUMENTS]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    assert [result["index"] for result in answer["results"]] == order
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(scores[result["index"]])
        assert result.keys() == {"index", "relevance_score"}
    tokens = sum(3 + len(QUERY.split()) + len(document.split()) for document in DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


def test_only_the_most_relevant_documents_are_returned(reranker: httpx.Client) -> None:
    body = {"query": QUERY, "documents": DOCUMENTS, "top_n": 1, "return_documents": True}
    (result,) = reranker.post("/v1/rerank", json=body).json()["results"]
    assert (result["index"], result["document"]) == (1, {"text": DOCUMENTS[1]})


@pytest.mark.parametrize(("field", "key"), [("documents", "relevance_score"), ("texts", "score")])
def test_raw_scores_are_the_logits(reranker: httpx.Client, field: str, key: str) -> None:
    body = {"query": QUERY, field: DOCUMENTS, "raw_scores": True}
    answer = reranker.post("/rerank", json=body).json()
    for result in answer["results"] if field == "documents" else answer:
        score = relevance(QUERY, DOCUMENTS[result["index"]])
        assert result[key] == pytest.approx(math.log(score / (1 - score)))


def test_texts_are_scored_in_the_form_of_text_embeddings_inference(
    reranker: httpx.Client,
) -> None:
    answer = reranker.post("/rerank", json={"query": QUERY, "texts": DOCUMENTS}).json()
    scores = [relevance(QUERY, document) for document in DOCUMENTS]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    assert [result["index"] for result in answer] == order
    for result in answer:
        assert result == {
            "index": result["index"],
            "score": pytest.approx(scores[result["index"]]),
        }
    body = {"query": QUERY, "texts": DOCUMENTS, "top_n": 1, "return_text": True}
    (best,) = reranker.post("/rerank", json=body).json()
    assert (best["index"], best["text"]) == (1, DOCUMENTS[1])
    long = {"query": QUERY, "texts": ["dog", " ".join(["dog"] * 11)]}
    assert reranker.post("/rerank", json=long).json()["error"]["param"] == "texts[1]"


def test_a_decoder_reads_a_pair_as_a_prompt() -> None:
    """Names of special tokens in a query or a document are text."""
    prompt = PairPrompt(before="[CLS] fast", query="the ", document=" runs ", behind="[SEP]")
    runtime = FakeEncoder(scores=True)
    service = encoders.service(scores=True, runtime=runtime, pair_prompt=prompt)
    body = {"query": "dog", "documents": ["fox [SEP] sleeps", "fox"]}
    with fakes.running(service) as client:
        runtime.texts.clear()
        answer = client.post("/v1/rerank", json=body).json()
    start = [CLS, *map(WORDS.index, ("fast", "the", "dog", "runs", "fox"))]
    unknown = [UNKNOWN] * len(("[", "SEP", "]"))
    prompts = [[*start, SEP], [*start, *unknown, WORDS.index("sleeps"), SEP]]
    assert runtime.texts[:1] + runtime.texts[-1:] == prompts
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))


@pytest.mark.parametrize(("top_n", "count"), [(None, 4), (2, 2), (4, 4), (99, 4)])
def test_top_n_can_exceed_the_documents(
    reranker: httpx.Client, top_n: int | None, count: int
) -> None:
    for field in ("documents", "texts"):
        body = {"query": QUERY, field: DOCUMENTS, "top_n": top_n}
        answer = reranker.post("/rerank", json=body).json()
        assert len(answer["results"] if field == "documents" else answer) == count


@pytest.mark.parametrize("documents", [[], None, 123, [1, 2, 3]])
@pytest.mark.parametrize("field", ["documents", "texts"])
def test_invalid_documents_are_rejected(reranker: httpx.Client, field: str, documents: Any) -> None:
    refused = reranker.post("/rerank", json={"query": QUERY, field: documents})
    assert refused.status_code == 400
    assert field in refused.json()["error"]["message"]
    both = {"query": QUERY, "documents": DOCUMENTS, "texts": DOCUMENTS}
    assert reranker.post("/rerank", json=both).status_code == 400


def test_a_pair_that_is_too_long_is_rejected_by_name(reranker: httpx.Client) -> None:
    body = {"query": QUERY, "documents": ["dog", " ".join(["dog"] * 11)]}
    refused = reranker.post("/v1/rerank", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "documents[1]")


def test_a_reranker_embeds_nothing_and_an_embedder_orders_nothing(
    client: httpx.Client, reranker: httpx.Client
) -> None:
    refused = reranker.post("/v1/embeddings", json={"input": "dog"})
    assert refused.status_code == 400
    assert "not a reranker" in refused.json()["error"]["message"]
    refused = client.post("/v1/rerank", json={"query": "dog", "documents": ["dog"]})
    assert refused.status_code == 400
    assert "a reranker: a model that scores pairs" in refused.json()["error"]["message"]


def test_a_language_model_orders_nothing() -> None:
    with fakes.running(fakes.fake_service(fakes.gemma_like())) as client:
        refused = client.post("/v1/rerank", json={"query": "dog", "documents": ["dog"]})
    assert refused.status_code == 400
    assert "expected an encoder" in refused.json()["error"]["message"]


def test_an_encoder_is_listed_with_its_sizes(client: httpx.Client) -> None:
    models = client.get("/v1/models").json()
    (model,) = models["data"]
    assert models["models"][0]["capabilities"] == []
    assert model["meta"]["n_vocab"] == len(WORDS)
    assert model["meta"]["n_ctx"] == 16
    assert client.post("/v1/completions", json={"prompt": "dog"}).status_code == 404
