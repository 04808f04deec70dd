"""Constraints, biases and DRY breakers over HTTP, with random logits."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from hearthd.sampling.options import SamplingOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.text.sampling_text import SamplingText
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server.fakes import BOS, EOS, gemma_like, manifest_of, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

TOKENIZER = gemma_like()
PLAIN = Tokenizer(TOKENIZER, bos=BOS)
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    runtime = FakeRuntime(
        vocab_size=TOKENIZER.get_vocab_size(), context=512, slots=4, batch=4, chunk=8
    )
    with running(LocalLanguageService(runtime, PLAIN, manifest_of(runtime, eos=(EOS,)))) as client:
        yield client


def ask(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/generate", json={"prompt": "the fox", "max_tokens": 400, **fields})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def refused(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/generate", json={"prompt": "the fox", "max_tokens": 400, **fields})
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    return error


def streamed(client: httpx.Client, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream, by type."""
    body = {"prompt": "the fox", "max_tokens": 400, "stream": True, **fields}
    text = client.post("/generate", json=body).text
    events = re.findall(r"(?:event: (\w+)\n)?data: (.*)\n", text)
    return [(name, json.loads(data)) for name, data in events]


RULES: list[tuple[dict[str, Any], str]] = [
    ({"json_schema": SCHEMA}, "schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "schema"),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "schema"),
    ({"regex": "[ab]{3,9}!"}, "regex"),
    ({"response_format": {"type": "regex", "regex": "[ab]{3,9}!"}}, "regex"),
    ({"grammar": 'start: /[ab]/~3..9 "!"'}, "regex"),
    ({"response_format": {"type": "grammar", "grammar": 'start: /[ab]/~3..9 "!"'}}, "regex"),
    ({"choice": ["the fox", "the dog"]}, "choice"),
    ({"response_format": {"type": "choice", "choice": ["the fox", "the dog"]}}, "choice"),
]


def check(format_: str, text: str) -> None:
    match format_:
        case "schema":
            jsonschema_rs.Draft202012Validator(SCHEMA).validate(json.loads(text))
        case "regex":
            assert re.fullmatch("[ab]{3,9}!", text)
        case "choice":
            assert text in ("the fox", "the dog")


@pytest.mark.parametrize(("fields", "format_"), RULES)
def test_an_answer_follows_its_grammar_and_stops(
    client: httpx.Client, fields: dict[str, Any], format_: str
) -> None:
    for seed in range(3):
        answer = ask(client, seed=seed, **fields)
        check(format_, answer["text"])
        assert answer["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == len(answer["token_ids"])


def test_json_object_answers_with_an_object(client: httpx.Client) -> None:
    # Greedy ends what random tokens would make long.
    fields = {"logit_bias": [['"', 8], ["}", 8]], "seed": 1}
    answer = ask(client, response_format={"type": "json_object"}, **fields)
    assert isinstance(json.loads(answer["text"]), dict)


@pytest.mark.parametrize(("fields", "format_"), RULES[::3])
def test_a_stream_has_the_same_answer(
    client: httpx.Client, fields: dict[str, Any], format_: str
) -> None:
    whole = ask(client, seed=5, logprobs=2, **fields)
    events = [data for _, data in streamed(client, seed=5, logprobs=2, **fields)]
    text = "".join(event["text"] for event in events)
    check(format_, text)
    assert text == whole["text"]
    assert [i for e in events for i in e["token_ids"]] == whole["token_ids"]
    assert events[-1]["finish_reason"] == whole["finish_reason"] == "stop"


def test_eight_requests_at_once_have_the_answers_of_one_by_one(client: httpx.Client) -> None:
    requests = [{"seed": n, **RULES[n][0]} for n in range(8)]
    alone = [ask(client, **fields)["token_ids"] for fields in requests]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda fields: ask(client, **fields)["token_ids"], requests))
    assert together == alone


def test_max_tokens_ends_a_constrained_answer(client: httpx.Client) -> None:
    answer = ask(client, regex="a{30}b", max_tokens=3)
    assert (len(answer["token_ids"]), answer["finish_reason"]) == (3, "length")


def test_a_finished_grammar_ends_the_answer_despite_ignore_eos(client: httpx.Client) -> None:
    answer = ask(client, regex="abc", min_tokens=50, ignore_eos=True)
    assert (answer["text"], answer["finish_reason"]) == ("abc", "stop")


def test_a_stop_string_ends_a_constrained_answer(client: httpx.Client) -> None:
    answer = ask(client, regex="[ab]{20}xx[ab]{20}", stop="xx")
    assert re.fullmatch("[ab]{20}", answer["text"])
    assert answer["finish_reason"] == "stop"


def test_biases_apply_to_the_tokens_that_a_grammar_allows(client: httpx.Client) -> None:
    foxes = {str(i): False for i, word in enumerate(PLAIN.words) if word.lstrip()[:1] == b"f"}
    for bias, possible in (({}, {"a fox", "a dog"}), (foxes, {"a dog"})):
        choice = ["a fox", "a dog"]
        answers = {
            ask(client, choice=choice, logit_bias=bias, seed=seed)["text"] for seed in range(9)
        }
        assert answers == possible


def test_a_grammar_that_allows_no_token_is_an_error(client: httpx.Client) -> None:
    (x,) = PLAIN.read("x", special=False)
    fields: dict[str, Any] = {"regex": "[ab]{3}x", "logit_bias": {str(x): False}}
    error = refused(client, **fields)
    assert "no next token" in error["message"]
    *tokens, (name, last) = streamed(client, **fields)
    assert name == "error"
    assert "no next token" in last["error"]["message"]
    assert len([id_ for _, event in tokens for id_ in event["token_ids"]]) == 3


@pytest.mark.parametrize(
    ("fields", "field", "part"),
    [
        ({"json_schema": {"not": {}}}, "json_schema", "not"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            "response_format.json_schema.schema",
            "not",
        ),
        ({"regex": "["}, "regex", "unclosed"),
        ({"grammar": "start: x"}, "grammar", "x"),
        ({"grammar": 'root ::= "a" other'}, "grammar", "other"),
        ({"regex": "a", "choice": ["a"]}, "choice", "regex"),
        (
            {"regex": "a", "response_format": {"type": "json_object"}},
            "regex",
            "response_format",
        ),
        ({"choice": []}, "choice", "at least 1"),
        ({"choice": [""]}, "choice[0]", "at least 1"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "json_object"),
        ({"response_format": {"type": "regex"}}, "response_format", "regex"),
        ({"response_format": {"type": "text", "regex": "a"}}, "response_format", "text"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
            "value",
        ),
        ({"regex": "a" * 70_000}, "regex", "65536 bytes"),
        ({"logit_bias": {"9999": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": [[-1, 1]]}, "logit_bias", "token ids"),
        ({"logit_bias": {"5": True}}, "logit_bias.5", "false"),
        ({"logit_bias": [[5, True]]}, "logit_bias[0]", "false"),
        ({"logit_bias": [[5]]}, "logit_bias[0]", "number"),
        ({"logit_bias": [["a", 1e9]]}, "logit_bias[0]", "1e6"),
        ({"dry_sequence_breakers": []}, "dry_sequence_breakers", "at least 1"),
        ({"samplers": ["top_k", "mirostat"]}, "samplers[1]", "top_k"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(
    client: httpx.Client, fields: dict[str, Any], field: str, part: str
) -> None:
    error = refused(client, **fields)
    assert error["param"] == field
    assert part.lower() in error["message"].lower()


@pytest.mark.parametrize("form", [dict, list])
def test_a_bias_may_name_an_id_or_a_text(client: httpx.Client, form: type) -> None:
    dog = PLAIN.read(" dog", special=False)
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 4}
    pairs: list[tuple[str | int, float | bool]] = [(" dog", 500)]
    bias: Any = dict(pairs) if form is dict else [list(pair) for pair in pairs]
    favored = ask(client, logit_bias=bias, **greedy)["token_ids"]
    assert set(favored) <= set(dog)
    first = ask(client, **greedy)["token_ids"][0]
    banned: Any = {str(first): False} if form is dict else [[first, False]]
    assert ask(client, logit_bias=banned, **greedy)["token_ids"][0] != first


def test_a_token_that_the_weights_suppress_is_never_sampled(client: httpx.Client) -> None:
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 4}
    first = ask(client, **greedy)["token_ids"][0]
    runtime = FakeRuntime(vocab_size=TOKENIZER.get_vocab_size(), context=512, slots=1, chunk=8)
    manifest = replace(manifest_of(runtime, eos=(EOS,)), suppressed_tokens=(first,))
    with running(LocalLanguageService(runtime, PLAIN, manifest)) as other:
        answer = ask(other, **greedy, logit_bias={str(first): 500})
        # A prompt that is scored can have it.
        scored = {"prompt": [5, first, 6], "echo": True, "logprobs": 1, "max_tokens": 0}
        assert other.post("/v1/completions", json=scored).status_code == 200
    expected = ask(client, **greedy, logit_bias={str(first): False})
    assert answer["token_ids"] == expected["token_ids"]


def test_a_bias_of_a_text_applies_to_each_of_its_tokens() -> None:
    text = SamplingText(PLAIN, vocab_size=TOKENIZER.get_vocab_size())
    options = text.resolve(
        SamplingOptions(), logit_bias=[(7, 0.5), ("q<bos>", -1)], dry_sequence_breakers=()
    )
    ids = PLAIN.read("q<bos>", special=False)
    assert options.logit_bias == ((7, 0.5), *((id_, -1) for id_ in ids))
    assert BOS not in ids


def test_breakers_are_the_tokens_that_contain_or_begin_them() -> None:
    text = SamplingText(PLAIN, vocab_size=TOKENIZER.get_vocab_size())

    def breakers(*texts: str) -> dict[int, tuple[tuple[int, ...], ...]]:
        on = SamplingOptions(dry_multiplier=1)
        return dict(text.resolve(on, logit_bias=(), dry_sequence_breakers=texts).dry_breakers)

    def spelled(head: int, tail: tuple[int, ...]) -> str:
        return PLAIN.decode([head, *tail])

    single = breakers("o")
    assert all(tails == ((),) for tails in single.values())
    assert set(single) == {i for i, word in enumerate(PLAIN.words) if b"o" in word}
    by_id = breakers("x ju")
    words = enumerate(PLAIN.words)
    ends = (b"x", b"x ", b"x j")
    assert set(by_id) == {i for i, word in words if word.endswith(ends) or b"x ju" in word}
    for head, tails in by_id.items():
        assert tails
        assert all("x ju" in spelled(head, tail) for tail in tails)
    first, second = (PLAIN.words.index(bytes([byte])) for byte in "é".encode())
    assert breakers("é") == {first: ((second,),)}
    assert text.resolve(SamplingOptions(), logit_bias=(), dry_sequence_breakers=("o",)) == (
        SamplingOptions()
    )


def test_dry_ends_repetitions_over_http(client: httpx.Client) -> None:
    fields = {"prompt": "the fox jumps over the fox jumps over the fox", "temperature": 0}
    plain, dry = (
        ask(client, max_tokens=8, dry_multiplier=m, dry_base=4, **fields)["token_ids"]
        for m in (0, 90)
    )
    assert len(plain) == len(dry) == 8
    unbroken = ask(client, max_tokens=8, dry_multiplier=90, **fields, dry_sequence_breakers=["o"])
    assert unbroken["token_ids"] == plain
