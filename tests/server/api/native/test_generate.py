"""POST /generate over HTTP, on a real server with a fake runtime."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.runtime.interface import read_prompt
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import fakes
from tests.server.generate_client import LIBRARY, VOCAB, answer, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(fakes.fake_service(LIBRARY)) as client:
        yield client


def test_an_answer_has_every_field(client: httpx.Client) -> None:
    data = answer(client, max_tokens=7, seed=5)
    assert set(data) == {"text", "token_ids", "finish_reason", "usage", "timings", "seed"}
    assert data["text"] == LIBRARY.decode(data["token_ids"])
    assert data["finish_reason"] == "length"
    prompt = len(LIBRARY.encode("the dog").ids) + 1
    assert data["usage"] == {
        "prompt_tokens": prompt,
        "completion_tokens": 7,
        "total_tokens": prompt + 7,
    }
    assert data["seed"] == 5
    timings = data["timings"]
    names = {"queue_ms", "prefill_ms", "decode_ms", "tokens_per_second"}
    assert names | {"draft_n", "draft_n_accepted"} < set(timings)
    assert timings["tokens_per_second"] == pytest.approx(6e3 / timings["decode_ms"])


def test_greedy_takes_the_most_likely_tokens(client: httpx.Client) -> None:
    runtime = FakeRuntime(vocab_size=VOCAB, context=64, chunk=64)
    ids = [fakes.BOS, *LIBRARY.encode("the dog").ids]
    expected: list[int] = []
    while len(expected) < 6:
        expected.append(int(read_prompt(runtime, ids + expected).argmax()))
    assert answer(client, max_tokens=6, temperature=0)["token_ids"] == expected


@pytest.mark.parametrize("fields", [{}, {"temperature": 0}, {"stop": ["o", "ab"], "logprobs": 3}])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_stream_joins_to_the_answer(
    client: httpx.Client, seed: int, fields: dict[str, Any]
) -> None:
    whole = answer(client, seed=seed, max_tokens=20, **fields)
    events = stream(client, seed=seed, max_tokens=20, **fields)
    assert {name for name, _ in events} == {"message"}
    *pieces, last = [data for _, data in events]
    assert "".join(piece["text"] for piece in pieces) == whole["text"]
    assert [id_ for piece in pieces for id_ in piece["token_ids"]] == whole["token_ids"]
    assert all("finish_reason" not in piece for piece in pieces)
    assert (last["text"], last["token_ids"]) == ("", [])
    for field in ("finish_reason", "usage", "seed"):
        assert last[field] == whole[field]
    assert set(last["timings"]) == set(whole["timings"])
    if "logprobs" in fields:
        entries = [entry for piece in pieces for entry in piece["logprobs"]]
        assert entries == whole["logprobs"]
    else:
        assert all("logprobs" not in data for data in (whole, last, *pieces))


def test_the_same_seed_gives_the_same_answer_and_another_one_does_not(
    client: httpx.Client,
) -> None:
    texts = {answer(client, seed=11, max_tokens=12)["text"] for _ in range(4)}
    assert len(texts) == 1
    assert answer(client, seed=12, max_tokens=12)["text"] not in texts


def test_a_random_seed_is_reported_and_repeats_the_answer(client: httpx.Client) -> None:
    first, second = (answer(client, max_tokens=12) for _ in range(2))
    assert first["seed"] != second["seed"]
    again = answer(client, max_tokens=12, seed=first["seed"])
    assert again["token_ids"] == first["token_ids"]


def test_text_and_its_ids_are_the_same_prompt(client: httpx.Client) -> None:
    ids = [fakes.BOS, *LIBRARY.encode("the dog").ids]
    by_text, by_ids = answer(client, seed=1), answer(client, seed=1, prompt=ids)
    assert by_text["token_ids"] == by_ids["token_ids"]
    without_bos = answer(client, seed=1, prompt=ids[1:])
    assert without_bos["usage"]["prompt_tokens"] == len(ids) - 1


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 50},
        {"frequency_penalty": 50},
        {"typical_p": 0.1},
        {"xtc_probability": 1, "xtc_threshold": 0.01},
        {"dynatemp_range": 5},
        {"samplers": ["temperature"]},
        {"repeat_penalty": 9},
        {"temperature": 9},
        {"top_k": 1},
        {"top_p": 0.1},
        {"min_p": 0.9},
    ],
)
def test_every_sampling_field_has_an_effect(client: httpx.Client, fields: dict[str, Any]) -> None:
    plain = answer(client, seed=1, max_tokens=40)
    assert answer(client, seed=1, max_tokens=40, **fields)["token_ids"] != plain["token_ids"]


def test_null_is_the_default(client: httpx.Client) -> None:
    nulls = {"temperature": None, "top_k": None, "stop": None, "logprobs": None, "stream": None}
    assert answer(client, seed=1, **nulls)["text"] == answer(client, seed=1)["text"]


def test_a_stop_string_never_leaks(client: httpx.Client) -> None:
    free = answer(client, seed=4, max_tokens=30)
    middle = len(free["text"]) // 2
    stop = free["text"][middle : middle + 3]
    expected = free["text"][: free["text"].find(stop)]
    for form in (stop, [stop], ["never in it", stop]):
        data = answer(client, seed=4, max_tokens=30, stop=form)
        assert data["text"] == expected
        assert data["finish_reason"] == "stop"
        assert data["token_ids"] == free["token_ids"][: len(data["token_ids"])]
        assert data["usage"]["completion_tokens"] == len(data["token_ids"]) < 30
    pieces = [data["text"] for _, data in stream(client, seed=4, max_tokens=30, stop=stop)]
    assert "".join(pieces) == expected


def test_a_held_part_of_a_stop_string_is_sent_at_the_end(client: httpx.Client) -> None:
    free = answer(client, seed=4, max_tokens=30)
    stop = free["text"][-1] + "never"
    assert answer(client, seed=4, max_tokens=30, stop=stop)["text"] == free["text"]
    pieces = [data["text"] for _, data in stream(client, seed=4, max_tokens=30, stop=stop)]
    assert "".join(pieces) == free["text"]


def test_the_model_ends_an_answer() -> None:
    runtime = FakeRuntime(vocab_size=VOCAB, context=64)
    first, second = (
        int(read_prompt(runtime, ids).argmax())
        for ids in ([5], [5, int(read_prompt(runtime, [5]).argmax())])
    )
    for eos, tokens in ((first, []), (second, [first])):
        manifest = fakes.manifest_of(runtime, eos=(eos,))
        service = LocalLanguageService(runtime, Tokenizer(LIBRARY, bos=None), manifest)
        with fakes.running(service) as client:
            data = answer(client, prompt=[5], temperature=0)
            assert data["finish_reason"] == "stop"
            assert data["token_ids"] == tokens
            assert data["usage"]["completion_tokens"] == len(tokens)
            assert (data["timings"]["tokens_per_second"] == 0) == (len(tokens) < 2)


def test_log_probabilities_are_those_of_the_model(client: httpx.Client) -> None:
    data = answer(client, seed=2, max_tokens=8, logprobs=4)
    assert [entry["id"] for entry in data["logprobs"]] == data["token_ids"]
    for entry in data["logprobs"]:
        assert entry["text"] == LIBRARY.decode([entry["id"]], skip_special_tokens=False)
        ranked = [other["logprob"] for other in entry["top"]]
        assert len(ranked) == 4
        assert ranked == sorted(ranked, reverse=True)
        assert entry["logprob"] <= ranked[0] <= 0
    assert all(entry["top"] == [] for entry in answer(client, seed=2, logprobs=0)["logprobs"])
    everything = answer(client, seed=2, max_tokens=1, logprobs=20)["logprobs"][0]["top"]
    assert sum(math.exp(other["logprob"]) for other in everything) < 1


def test_the_context_ends_an_answer(client: httpx.Client) -> None:
    data = answer(client, prompt=[5] * 60, seed=1)
    assert data["finish_reason"] == "length"
    assert data["usage"]["total_tokens"] == 64
