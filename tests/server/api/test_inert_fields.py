"""Fields that change nothing: accepted, ignored with a warning, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.server.api import inert_fields
from hearthd.server.api.fields import Fields
from hearthd.server.api.inert_fields import FIELDS
from hearthd.server.app import Guards
from tests.server import fakes
from tests.server.openai_servers import LIBRARY, TOKENIZER, chatty

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

TALK = [{"role": "user", "content": "the dog"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TALK, "max_tokens": 2, "seed": 1},
    "/v1/responses": {"input": "the dog", "max_output_tokens": 2, "seed": 1},
    "/v1/completions": {"prompt": "the dog", "max_tokens": 2, "seed": 1},
    "/generate": {"prompt": "the dog", "max_tokens": 2, "seed": 1},
}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(chatty()) as client:
        yield client


@pytest.fixture(scope="module")
def strict() -> Iterator[httpx.Client]:
    with fakes.running(chatty(), guards=Guards(strict_fields=True)) as client:
        yield client


def post(client: httpx.Client, path: str = CHAT, /, **fields: Any) -> httpx.Response:
    return client.post(path, json={**BODIES[path], **fields})


NEUTRAL: dict[str, Any] = {
    "user": "u",
    "metadata": {"a": "b"},
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "service_tier": "priority",
    "store": False,
    "best_of": 1,
    "modalities": ["text"],
    "reasoning_effort": "none",
    "verbosity": "medium",
    "chat_template_kwargs": {},
    "stop_token_ids": [],
    "functions": None,
    "nonsense": None,
}


@pytest.mark.parametrize("path", BODIES)
def test_neutral_values_pass_without_a_warning(client: httpx.Client, path: str) -> None:
    plain = post(client, path)
    assert plain.status_code == 200
    neutral = post(client, path, **{name: NEUTRAL[name] for name in NEUTRAL if name in FIELDS})
    assert neutral.status_code == 200, neutral.text
    assert "warning" not in neutral.headers
    assert neutral.json().get("choices") == plain.json().get("choices")


def test_neutral_values_pass_in_strict_mode_too(strict: httpx.Client) -> None:
    accepted = post(strict, **NEUTRAL)
    assert accepted.status_code == 200, accepted.text
    assert "warning" not in accepted.headers


IGNORED = [
    ({"verbosity": "high"}, "verbosity"),
    ({"store": True}, "store"),
    ({"nonsense": {"a": 1}}, "nonsense"),
    ({"messages": [{**TALK[0], "nonsense": 1}]}, "messages[0].nonsense"),
    (
        {"stream_options": {"color": 1, "size": 2}, "stream": True},
        "stream_options.color, stream_options.size",
    ),
    ({'q"é\n': 1}, "q???"),
]


@pytest.mark.parametrize(("fields", "paths"), IGNORED)
def test_other_fields_are_ignored_with_a_warning(
    client: httpx.Client, strict: httpx.Client, fields: dict[str, Any], paths: str
) -> None:
    ignored = post(client, **fields)
    assert ignored.status_code == 200, ignored.text
    assert ignored.headers["warning"] == f'299 hearth "ignored: {paths}"'
    refused = post(strict, **fields)
    assert refused.status_code == 400
    assert refused.json()["error"]["expected"] == "no field of this name"


def test_a_warning_names_at_most_sixteen_fields(client: httpx.Client) -> None:
    many: dict[str, Any] = {f"field{number}": 1 for number in range(40)}
    ignored = post(client, **many)
    assert ignored.status_code == 200
    assert ignored.headers["warning"].count("field") == 16
    assert ignored.headers["warning"].endswith(' and others"')
    too_many: dict[str, Any] = {str(number): 1 for number in range(300)}
    assert post(client, **too_many).status_code == 400


@pytest.mark.parametrize(
    ("fields", "param", "expected"),
    [
        ({"functions": [{}]}, "functions", "tools"),
        ({"modalities": ["audio"]}, "modalities", '["text"]'),
        ({"best_of": 2}, "best_of", "n, for several answers"),
        ({"guided_json": {}}, "guided_json", "json_schema"),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
            "messages[0].function_call",
            "tool_calls, or tool_choice",
        ),
    ],
)
def test_fields_without_which_the_answer_is_wrong_are_refused(
    client: httpx.Client, fields: dict[str, Any], param: str, expected: str
) -> None:
    refused = post(client, **fields)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["expected"]) == (param, expected)


FORMS: dict[str, Any] = {
    "guided_json": {}, "guided_json_object": True, "guided_regex": "a", "guided_choice": ["a"],
    "guided_grammar": "a", "guided_decoding_params": {}, "guided_whitespace_pattern": " ",
    "structured_outputs": {"regex": "a", "whitespace_pattern": " "},
    "structural_tag": "{}", "ebnf": 'root ::= "a"',
    "grammar_lazy": True, "grammar_triggers": [{"type": 1, "value": "a"}], "format": "json",
    "response_schema": {}, "response_mime_type": "application/json",
    "output_config": {"format": {}},
    "output_format": {"type": "json_schema", "schema": {}},
    "grammar": {"type": "regex", "value": "a"}, "json_schema": "{}", "regex": 1, "choice": "a",
    "response_format": {"type": "regex", "value": {"type": "null"}},
}  # fmt: skip
PATHS = {**BODIES, "/v1/messages": BODIES[CHAT], "/completion": BODIES["/generate"]}


@pytest.mark.parametrize("path", PATHS)
def test_no_field_that_asks_for_a_form_of_the_answer_is_ignored(
    client: httpx.Client, path: str
) -> None:
    for name, value in FORMS.items():
        answer = client.post(path, json={**PATHS[path], name: value})
        if path == "/v1/messages" and name.startswith("output_"):
            continue  # see test_anthropic
        assert answer.status_code in (400, 422), name
        assert name in answer.json()["error"]["message"]


def test_ignored_values_can_be_nested_deeply(client: httpx.Client) -> None:
    deep = '{"prompt": "x", "max_tokens": 1, "a": ' + '{"a":' * 900 + "1" + "}" * 901
    ignored = client.post("/generate", content=deep, headers={"Content-Type": "application/json"})
    assert ignored.status_code == 200, ignored.text
    assert ignored.headers["warning"].endswith('ignored: a"')


def test_few_fields_have_both_a_row_and_a_meaning() -> None:
    """Where a schema lacks such a field by mistake, the table would hide that."""

    def schemas(base: type[Fields]) -> Iterator[type[Fields]]:
        for schema in base.__subclasses__():
            yield schema
            yield from schemas(schema)

    honored = {
        field.alias or name
        for schema in schemas(Fields)
        for name, field in schema.model_fields.items()
    }
    # Ollama's routes have `suffix` and `format`, Anthropic's `output_*`, Gemini's `response*`,
    # /v1/responses the four before them, `response_format` has `value`; /completion has
    # `multimodal_data`; parts of messages have `refusal`.
    assert honored & set(FIELDS) == {
        "annotations", "lora", "metadata", "multimodal_data", "prompt", "suffix", "format",
        "conversation", "previous_response_id", "store", "truncation", "output_config",
        "output_format", "refusal", "value", "responseJsonSchema", "responseMimeType",
        "responseSchema",
    }  # fmt: skip


def test_the_name_of_an_author_reaches_the_template() -> None:
    template = "{% for m in messages %}{{ m.name }}:{{ m.content }}{% endfor %}"
    with fakes.running(chatty(template=template)) as client:
        message = {"role": "user", "name": "Ann<eos>", "content": "hello"}
        rendered = client.post("/apply-template", json={"messages": [message]})
        assert rendered.json()["prompt"] == "Ann<eos>:hello"
        counted = post(client, messages=[message]).json()["usage"]["prompt_tokens"]
        assert counted == len(TOKENIZER.with_bos(TOKENIZER.read("Ann<eos>:hello", special=False)))


def test_template_variables_reach_the_template() -> None:
    template = "{{ enable_thinking }} {{ messages[0].content }} {{ bos_token }}"
    fields: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": False, "messages": [], "bos_token": "b"}
    }
    with fakes.running(chatty(template=template)) as client:
        rendered = client.post("/apply-template", json={"messages": TALK, **fields})
        assert rendered.json()["prompt"] == "False the dog <bos>"
        assert post(client, **fields).status_code == 200


def test_stop_token_ids_end_the_answer_before_the_token(client: httpx.Client) -> None:
    greedy: dict[str, Any] = {"max_tokens": 12, "temperature": 0}
    whole = post(client, "/generate", **greedy).json()
    ids = whole["token_ids"]
    stop = next(id_ for id_ in ids[3:] if id_ not in ids[:3])
    end = ids.index(stop)
    ended = post(client, "/generate", **greedy, stop_token_ids=[stop]).json()
    assert ended["token_ids"] == ids[:end]
    assert ended["text"] == LIBRARY.decode(ids[:end])
    assert ended["finish_reason"] == "stop"
    assert ended["usage"]["completion_tokens"] == end


def test_include_of_absent_output_changes_nothing(client: httpx.Client) -> None:
    answer = post(client, "/v1/responses", include=["reasoning.encrypted_content"])
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"][0]["content"][0]["logprobs"] == []


def test_outside_a_request_unknown_fields_stay() -> None:
    assert inert_fields.without_inert({"a": 1, "user": "u"}, frozenset()) == {"a": 1}
