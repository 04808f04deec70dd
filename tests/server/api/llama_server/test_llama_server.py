"""llama-server's own routes, fields and answers, as its clients use them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import SpecialTokens
from hearthd.server.app import Guards
from hearthd.text.templates.chat_template import ChatTemplate
from tests.server import fakes, templates
from tests.server.openai_servers import TOKENIZER, chatty, scripted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

PROMPT = "the quick brown fox"
TALK = [{"role": "user", "content": "the dog"}]
KEY = "a long enough key"
FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty()) as client:
        yield client


def complete(client: httpx.Client, **fields: Any) -> Any:
    body = {"prompt": PROMPT, "n_predict": 8, "temperature": 0, **fields}
    response = client.post("/completion", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(client: httpx.Client, path: str = "/completion", **fields: Any) -> list[dict[str, Any]]:
    prompt = {} if "messages" in fields else {"prompt": PROMPT, "n_predict": 8}
    body = {**prompt, "temperature": 0, "stream": True, **fields}
    text = client.post(path, json=body).text
    return [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: {")
    ]


@pytest.mark.parametrize("return_tokens", [False, True])
def test_completion(client: httpx.Client, return_tokens: bool) -> None:
    answer = complete(client, return_tokens=return_tokens, cache_prompt=False, id_slot=0)
    ids = TOKENIZER.encode(PROMPT)
    assert answer["timings"]["prompt_n"] == answer["tokens_evaluated"] == len(ids)
    assert answer["timings"]["cache_n"] == 0
    assert answer["timings"]["predicted_n"] == answer["tokens_predicted"] == 8
    assert (answer["stop"], answer["stop_type"], answer["truncated"]) == (True, "limit", False)
    assert answer["prompt"] == "<bos>" + PROMPT
    assert answer["model"] == "fake-model"
    assert answer["has_new_line"] == ("\n" in answer["content"])
    assert len(answer["tokens"]) == (8 if return_tokens else 0)
    assert answer["generation_settings"]["n_predict"] == 8
    plain = client.post("/generate", json={"prompt": PROMPT, "max_tokens": 8, "temperature": 0})
    assert answer["content"] == plain.json()["text"]


def test_a_stream_joins_to_the_answer(client: httpx.Client) -> None:
    whole = complete(client, return_tokens=True)
    *parts, last = events(client)
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [id_ for part in parts for id_ in part["tokens"]] == whole["tokens"]
    assert [part["tokens_predicted"] for part in parts][-1] == 8
    assert [part["stop"] for part in parts] == [False] * len(parts)
    same = ("stop_type", "tokens_predicted", "truncated", "generation_settings", "prompt")
    for name in same:
        if name != "generation_settings":
            assert last[name] == whole[name]
    assert last["stop"]
    assert last["content"] == ""


def test_minus_one_continues_to_the_end_of_the_context(client: httpx.Client) -> None:
    answer = complete(client, n_predict=-1, ignore_eos=True)
    assert answer["tokens_evaluated"] + answer["tokens_predicted"] == 256
    assert (answer["truncated"], answer["stop_type"]) == (True, "limit")


def test_n_predict_zero_reads_the_prompt_only(client: httpx.Client) -> None:
    answer = complete(client, n_predict=0, return_tokens=True)
    assert (answer["content"], answer["tokens"], answer["tokens_predicted"]) == ("", [], 0)
    assert [event["stop"] for event in events(client, n_predict=0)] == [True]


def test_stop_words_and_the_end_of_the_answer_are_told_apart() -> None:
    with fakes.running(scripted("the dog jumps", cue="x", end="<eos>")) as client:
        ended = complete(client, prompt="x", n_predict=-1)
        assert (ended["stop_type"], ended["stopping_word"]) == ("eos", "")
        stopped = complete(client, prompt="x", n_predict=-1, stop=["fox", " jumps"])
        assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", " jumps")
        assert stopped["content"] == "the dog"


def test_prompts_can_be_many_and_mixed(client: httpx.Client) -> None:
    ids = list(TOKENIZER.encode(PROMPT))
    one, same = complete(client, prompt=[PROMPT, ids])
    assert one["content"] == same["content"]
    assert (one["index"], same["index"]) == (0, 1)
    mixed = complete(client, prompt=[ids[0], PROMPT])
    assert mixed["content"] == one["content"]
    assert complete(client, prompt=[[ids[0], PROMPT]])["content"] == one["content"]
    assert {event["index"] for event in events(client, prompt=[PROMPT, ids])} == {0, 1}
    for wrong in ([ids[0], [5]], [[5]] * 17, [[5, [5]]], []):
        assert client.post("/completion", json={"prompt": wrong}).status_code == 400


def test_response_fields_select(client: httpx.Client) -> None:
    paths = ["content", "generation_settings/n_predict", "prompt", "nothing/here"]
    answer = complete(client, response_fields=paths)
    assert set(answer) == set(paths[:3])
    assert answer["generation_settings/n_predict"] == 8
    assert answer["prompt"] == "<bos>" + PROMPT


def test_n_probs(client: httpx.Client) -> None:
    answer = complete(client, n_probs=10, n_predict=5)
    assert len(answer["completion_probabilities"]) == 5
    for token in answer["completion_probabilities"]:
        assert token["logprob"] <= 0
        assert bytes(token["bytes"]) == TOKENIZER.bytes_of(token["id"])
        top = [other["logprob"] for other in token["top_logprobs"]]
        assert len(top) == 10
        assert top == sorted(top, reverse=True)
        assert token["logprob"] == top[0]
        assert not {"prob", "top_probs"} & set(token)
    *parts, _ = events(client, n_probs=10, n_predict=5)
    assert [len(part["completion_probabilities"]) for part in parts if part["tokens"]] == [1] * 5


def test_n_probs_can_be_large_in_a_short_answer(client: httpx.Client) -> None:
    answer = complete(client, n_probs=4096, n_predict=1)
    token = answer["completion_probabilities"][0]
    ids = {other["id"] for other in token["top_logprobs"]}
    assert len(ids) == len(token["top_logprobs"]) > 256
    assert sum(math.exp(other["logprob"]) for other in token["top_logprobs"]) == pytest.approx(1)


@pytest.mark.parametrize("limit", [{}, {"n_predict": -1}, {"n_predict": 17}])
def test_n_probs_of_a_long_answer_are_limited(client: httpx.Client, limit: dict[str, int]) -> None:
    response = client.post("/completion", json={"prompt": PROMPT, "n_probs": 4096, **limit})
    assert response.status_code == 400
    assert response.json()["error"]["message"] == (
        "n_probs: got 4096, expected at most 20, or n_predict from 0 to 16"
    )


def test_probabilities_after_sampling(client: httpx.Client) -> None:
    fields = {"n_probs": 10, "post_sampling_probs": True, "temperature": 1.0, "top_k": 4}
    answer = complete(client, **fields)
    for token in answer["completion_probabilities"]:
        assert 0 < token["prob"] <= 1
        assert 0 < sum(other["prob"] for other in token["top_probs"]) == pytest.approx(1, abs=1e-4)
        assert not {"logprob", "top_logprobs"} & set(token)


@pytest.mark.parametrize(
    ("alias", "path", "body"),
    [
        ("/completions", "/completion", {"prompt": PROMPT, "n_predict": 2}),
        ("/chat/completions", "/v1/chat/completions", {"messages": TALK, "max_tokens": 2}),
        ("/responses", "/v1/responses", {"input": PROMPT, "max_output_tokens": 2}),
        ("/embeddings", "/embedding", {"content": PROMPT}),
    ],
)
def test_paths_without_v1(client: httpx.Client, alias: str, path: str, body: Any) -> None:
    first, second = (client.post(route, json={**body, "seed": 1}) for route in (alias, path))
    assert first.status_code == second.status_code == 200
    assert type(first.json()) is type(second.json())
    if isinstance(first.json(), dict):
        assert set(first.json()) == set(second.json())


def test_models_and_health_have_other_names(client: httpx.Client) -> None:
    lists = [client.get(path).json() for path in ("/models", "/v1/models")]
    for models in lists:
        assert models["data"][0]["status"].pop("idle_seconds") >= 0
    assert lists[0] == lists[1]
    assert client.get("/v1/health").json()["status"] == "ok"


def test_health_and_models_need_no_key() -> None:
    with fakes.running(chatty(), guards=Guards(api_keys=(KEY,))) as client:
        for path in ("/health", "/v1/health", "/models", "/v1/models", "/"):
            assert client.get(path).status_code == 200, path
        for path in ("/completion", "/completions", "/chat/completions", "/v1/completions"):
            assert client.post(path, json={"prompt": "x"}).status_code == 401, path
        keyed = {"X-Api-Key": KEY}
        assert client.post("/completions", json={"prompt": "x"}, headers=keyed).status_code == 200


def test_embedding(client: httpx.Client) -> None:
    answers = client.post("/embedding", json={"content": [PROMPT, "the dog"]}).json()
    expected = client.post("/v1/embeddings", json={"input": [PROMPT, "the dog"]}).json()["data"]
    assert [a["embedding"][0] for a in answers] == [item["embedding"] for item in expected]
    assert client.post("/embedding", json={"input": PROMPT}).json() == [answers[0]]
    assert client.post("/embedding", json={}).status_code == 400


def test_an_empty_grammar_and_absent_samplers_change_nothing(client: httpx.Client) -> None:
    """Clients of llama-server send them with every request."""
    samplers = ["dry", "top_n_sigma", "tfs_z", "typical_p", "adaptive_p", "temperature"]
    answer = complete(client, grammar="", samplers=samplers)
    assert answer["content"] == complete(client)["content"]
    assert {"adaptive_target", "adaptive_decay"} <= answer["generation_settings"].keys()
    assert answer["generation_settings"]["samplers"] == [
        "dry", "top_n_sigma", "adaptive_p", "temperature",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/chat/completions", {"messages": TALK}, "max_tokens"),
        ("/v1/chat/completions", {"messages": TALK}, "max_completion_tokens"),
        ("/v1/responses", {"input": PROMPT}, "max_output_tokens"),
    ],
)
def test_minus_one_sets_no_limit(
    client: httpx.Client, path: str, body: dict[str, Any], name: str
) -> None:
    limits: tuple[dict[str, int], ...] = ({}, {name: -1})
    free, unlimited = (client.post(path, json={**body, "seed": 1, **limit}) for limit in limits)
    assert unlimited.status_code == 200, unlimited.text
    predicted = [answer.json()["timings"]["predicted_n"] for answer in (free, unlimited)]
    assert predicted[0] == predicted[1]
    refused = client.post(path, json={**body, name: 0})
    assert refused.json()["error"]["param"] == name


PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": TALK, "max_tokens": 3}),
    ("/v1/completions", {"prompt": PROMPT, "max_tokens": 3}),
    ("/generate", {"prompt": PROMPT, "max_tokens": 3}),
    ("/completion", {"prompt": PROMPT, "n_predict": 3}),
    ("/v1/responses", {"input": PROMPT, "max_output_tokens": 3}),
]


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_timings_are_everywhere(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    timings = client.post(path, json={**body, "cache_prompt": False}).json()["timings"]
    assert (timings["cache_n"], timings["predicted_n"]) == (0, 3)
    assert timings["prompt_n"] >= 2
    per_second = 1e3 * timings["prompt_n"] / timings["prompt_ms"]
    assert timings["prompt_per_second"] == pytest.approx(per_second)
    assert timings["prompt_per_token_ms"] == pytest.approx(1e3 / per_second)
    assert timings["predicted_per_second"] == pytest.approx(2e3 / timings["predicted_ms"])
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / 2)


def test_cached_tokens_are_not_read_again(client: httpx.Client) -> None:
    prompt = "the dog jumps over the lazy fox, then the quick brown fox " * 2
    complete(client, prompt=prompt)
    timings = complete(client, prompt=prompt)["timings"]
    total = len(TOKENIZER.encode(prompt))
    assert (timings["cache_n"], timings["prompt_n"]) == (total - 1, 1)


@pytest.mark.parametrize(("path", "body"), PATHS[:-1])
def test_timings_per_token(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    plain = [event for event in events(client, path, **body) if "timings" in event]
    assert len(plain) == 1
    timed = events(client, path, **body, timings_per_token=True)
    counts = [event["timings"]["predicted_n"] for event in timed if "timings" in event]
    assert len(counts) > 1  # a token without complete text has no event on OpenAI's routes
    assert counts == sorted(counts)
    assert counts[-1] == 3


@pytest.mark.parametrize(("path", "body"), PATHS[:-1])
def test_progress_of_the_prompt(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    long = "the dog jumps over the lazy fox " * 4
    name = "messages" if "messages" in body else "prompt"
    prompt: Any = [{"role": "user", "content": long}] if name == "messages" else long
    body = {**body, name: prompt, "cache_prompt": False}
    assert not [event for event in events(client, path, **body) if "prompt_progress" in event]
    seen = [
        event["prompt_progress"]
        for event in events(client, path, **body, return_progress=True)
        if "prompt_progress" in event
    ]
    processed = [progress["processed"] for progress in seen]
    (total,) = {progress["total"] for progress in seen}
    assert total > 16
    assert processed == [*range(0, total - 1, 8), total - 1, total]
    assert {progress["cache"] for progress in seen} == {0}
    times = [progress["time_ms"] for progress in seen]
    assert times == sorted(times)
    timed = [
        event["timings"]
        for event in events(client, path, **body, return_progress=True, timings_per_token=True)
        if "prompt_progress" in event
    ]
    assert [timings["prompt_n"] for timings in timed] == processed
    assert timed[0]["prompt_ms"] == 0 < timed[-1]["prompt_ms"]
    assert all(value is not None for timings in timed for value in timings.values())


def test_responses_report_progress_and_timings(client: httpx.Client) -> None:
    prompt = "the dog jumps over the lazy fox " * 4
    body = {"input": prompt, "max_output_tokens": 6, "temperature": 0}
    fields: dict[str, Any] = {**body, "timings_per_token": True, "return_progress": True}
    text = client.post("/v1/responses", json={**fields, "stream": True}).text
    seen = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    progress = [event for event in seen if "prompt_progress" in event]
    assert progress
    assert {event["type"] for event in progress} == {"response.in_progress"}
    assert progress[0]["prompt_progress"]["processed"] == progress[0]["prompt_progress"]["cache"]
    deltas = [event for event in seen if event["type"] == "response.output_text.delta"]
    assert any(event.get("timings", {}).get("predicted_n") for event in deltas)
    assert seen[-1]["timings"] == seen[-1]["response"]["timings"]


def test_the_usage_chunk_has_the_timings(client: httpx.Client) -> None:
    fields: dict[str, Any] = {"messages": TALK, "max_tokens": 3}
    options = {"stream_options": {"include_usage": True}}
    *_, last = events(client, "/v1/chat/completions", **fields, **options)
    assert last["choices"] == []
    assert last["timings"]["predicted_n"] == 3


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_a_prompt_that_is_too_long(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    def error_for(text: str) -> dict[str, Any]:
        name = next(name for name in ("messages", "prompt", "input") if name in body)
        prompt: Any = [{"role": "user", "content": text}] if name == "messages" else text
        refused = client.post(path, json={**body, name: prompt})
        assert refused.status_code == 400
        error: dict[str, Any] = refused.json()["error"]
        assert error["type"] == "exceed_context_size_error"
        assert error["code"] == "context_length_exceeded"
        assert error["n_ctx"] == 256
        return error

    long = "the dog " * 300
    error = error_for(long)
    assert error["n_prompt_tokens"] >= len(TOKENIZER.encode(long))
    assert "exceeds the available context size" in error["message"]
    # More bytes than the server tokenizes.
    assert error_for(long * 2)["message"].startswith("prompt is too long: ")


def infill(client: httpx.Client, **fields: Any) -> httpx.Response:
    body = {"input_prefix": "the dog", "input_suffix": "the fox", "prompt": " jumps", **fields}
    return client.post("/infill", json={"n_predict": 4, **body})


def test_infill_orders_the_parts() -> None:
    library = fakes.gemma_like(special=FIM)
    with fakes.running(fakes.fake_service(library, context=256)) as client:
        plain = infill(client).json()
        gap = "<|fim_prefix|>the dog jumps<|fim_suffix|>the fox<|fim_middle|>"
        assert plain["prompt"] == f"<bos>{gap}"
        assert plain["tokens_predicted"] == 4
        extra = infill(client, input_extra=[{"filename": "a.h", "text": "lazy <bos>\n"}]).json()
        files = "<|repo_name|>myproject\n<|file_sep|>a.h\nlazy <bos>\n<|file_sep|>filename\n"
        assert extra["prompt"] == f"<bos>{files}{gap}"
        for wrong in ({}, {"filename": "ok"}, {"filename": 123, "text": "abc"}):
            assert infill(client, input_extra=[wrong]).status_code == 400


def test_infill_needs_the_tokens(client: httpx.Client) -> None:
    refused = infill(client)
    assert refused.status_code == 501
    assert refused.json()["error"]["type"] == "not_supported_error"


def test_the_page_can_be_left_out() -> None:
    with fakes.running(chatty()) as client:
        assert "<!doctype html>" in client.get("/").text
    with fakes.running(chatty(), webui=False) as client:
        assert client.get("/").status_code == 404
        assert client.get("/health").status_code == 200


def test_another_template_replaces_the_bundles(tmp_path: Path) -> None:
    special = SpecialTokens(bos=fakes.BOS, eos=(fakes.EOS,))
    template = ChatTemplate.from_bundle(tmp_path, TOKENIZER, special, instead=templates.CHATML)
    assert template is not None
    assert template.source == templates.CHATML
