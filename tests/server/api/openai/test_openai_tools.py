"""Tools that are enforced, by the real `openai` client, on a model whose words are random."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import openai
import pydantic
import pytest

from tests.server import fakes
from tests.server.openai_servers import LIBRARY, chatty, client_of, scripted
from tests.server.templates import CHATML, GEMMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.server.services.language_service import LanguageService

TALK: list[Any] = [{"role": "user", "content": "the dog"}]


class Weather(pydantic.BaseModel):
    """Look up the weather."""

    place: Literal["the fox", "the dog"]
    days: Literal[1, 2, 3]


class Light(pydantic.BaseModel):
    """Switch a light."""

    on: bool


TOOLS: list[Any] = [
    openai.pydantic_function_tool(Weather),
    openai.pydantic_function_tool(Light, name="light"),
]
MODELS: dict[str, type[pydantic.BaseModel]] = {"Weather": Weather, "light": Light}
FLAT: list[Any] = [{"type": "function", **tool["function"]} for tool in TOOLS]
NAMED: Any = {"type": "function", "function": {"name": "light"}}


def talkative(template: str) -> LanguageService:
    """A model that says anything, and can end its answers."""
    return fakes.fake_service(
        LIBRARY,
        template=template,
        context=2048,
        script=fakes.Script(cue=(0, 0, 0, 0), answer=(), end=fakes.EOS),
    )


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of(talkative(CHATML)) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    completion = client.chat.completions.create(
        **{"model": "any", "messages": TALK, "tools": TOOLS, "max_tokens": 300, **fields}
    )
    return completion.choices[0]


def check(name: str, arguments: str) -> None:
    MODELS[name].model_validate_json(arguments)


@pytest.mark.parametrize(("seed", "mode"), [*enumerate(["required"] * 3), (3, "any")])
def test_required_gives_calls_that_match_a_pydantic_model(
    client: openai.OpenAI, seed: int, mode: str
) -> None:
    """Mistral's clients call it `any`."""
    choice = ask(client, tool_choice=mode, parallel_tool_calls=False, seed=seed)
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    (call,) = choice.message.tool_calls
    check(call.function.name, call.function.arguments)


def test_a_named_function_is_called_once(client: openai.OpenAI) -> None:
    for seed in range(3):
        (call,) = ask(client, tool_choice=NAMED, seed=seed).message.tool_calls
        assert call.function.name == "light"
        check("light", call.function.arguments)


def test_the_clients_parser_gives_the_model(client: openai.OpenAI) -> None:
    """`parse` insists on `strict`, and reads the arguments into the class."""
    parsed = client.chat.completions.parse(
        model="any", messages=TALK, tools=TOOLS, tool_choice=NAMED, max_tokens=300, seed=1
    )
    (call,) = parsed.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Light)


def test_allowed_tools_limit_the_choice(client: openai.OpenAI) -> None:
    choice: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
    calls = ask(client, tool_choice=choice, parallel_tool_calls=False, seed=3).message.tool_calls
    assert [call.function.name for call in calls] == ["light"]


def test_a_stream_has_the_same_calls(client: openai.OpenAI) -> None:
    fields: Any = {"tool_choice": "required", "parallel_tool_calls": False, "seed": 5}
    whole = ask(client, **fields)
    with client.chat.completions.stream(
        model="any", messages=TALK, tools=TOOLS, max_tokens=300, **fields
    ) as streamed:
        (choice,) = streamed.get_final_completion().choices
    expected = [(c.function.name, c.function.arguments) for c in whole.message.tool_calls]
    calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
    assert calls == expected
    assert choice.finish_reason == "tool_calls"


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize("kind", ["json", "json_object"])
def test_a_schema_of_hugging_faces_clients_is_enforced(client: openai.OpenAI, kind: str) -> None:
    form: Any = {"type": kind, "value": SCHEMA}
    answer = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "the dog"}], response_format=form
    )
    assert json.loads(answer.choices[0].message.content or "")["ok"] in (True, False)
    for wrong in ({"schema": SCHEMA}, {"type": "text"}):
        with pytest.raises(openai.BadRequestError, match="value"):
            client.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": "the dog"}],
                response_format={**form, **wrong},
            )


def test_with_a_response_format_the_answer_is_a_call_or_matches_it(client: openai.OpenAI) -> None:
    bias = {"extra_body": {"logit_bias": [["{", 50]]}}
    for seed in range(2):
        choice = ask(client, response_format=FORM, tool_choice="auto", seed=seed)
        calls = choice.message.tool_calls
        for call in calls[:-1] if choice.finish_reason == "length" else calls:
            check(call.function.name, call.function.arguments)
        answer = ask(client, response_format=FORM, seed=seed, **bias).message
        assert not answer.tool_calls
        assert set(json.loads(answer.content)) == {"ok"}


def test_a_template_without_tools_has_the_same_choices() -> None:
    with client_of(talkative(GEMMA)) as client:
        for seed in range(2):
            required = ask(client, tool_choice="required", parallel_tool_calls=False, seed=seed)
            (call,) = required.message.tool_calls
            check(call.function.name, call.function.arguments)
            assert (required.finish_reason, required.message.content) == ("tool_calls", None)
        (call,) = ask(client, tool_choice=NAMED, seed=1).message.tool_calls
        assert call.function.name == "light"
        text = ask(client, tool_choice="none", max_tokens=8, seed=1).message
        assert not text.tool_calls


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_an_unknown_tool_and_invalid_arguments_are_never_returned(
    strict: bool, choice: Any
) -> None:
    """The model insists on another tool, and then on other arguments."""
    wishes = [
        '<tool_call>\n{"name": "delete", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "light", "arguments": {"on": "yes"}}\n</tool_call>',
    ]
    tools = [{**tool, "function": {**tool["function"], "strict": strict}} for tool in TOOLS]
    for wish in wishes:
        with client_of(scripted(wish)) as client:
            answer = ask(client, tools=tools, tool_choice=choice, seed=1)
        for call in answer.message.tool_calls or []:
            check(call.function.name, call.function.arguments)
        assert answer.finish_reason in ("tool_calls", "length")


def test_a_schema_that_cannot_be_enforced_is_an_error_of_a_strict_tool() -> None:
    parameters = {"type": "object", "properties": {}, "not": {"required": ["a"]}}
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    with client_of(chatty(template=CHATML)) as client:
        tool["function"]["strict"] = True
        with pytest.raises(openai.BadRequestError, match="not") as caught:
            ask(client, tools=[tool])
        assert caught.value.param == "tools[0].function.parameters"


def test_responses_enforce_tools_too(client: openai.OpenAI) -> None:
    choice: Any = {"type": "function", "name": "light"}
    for fields in (
        {"tool_choice": "required", "parallel_tool_calls": False},
        {"tool_choice": choice},
        {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [choice]}},
    ):
        options: Any = {"extra_body": {"seed": 2}, "max_output_tokens": 300, **fields}
        answer = client.responses.create(model="any", input=TALK, tools=FLAT, **options)
        calls = [item for item in answer.output if item.type == "function_call"]
        assert len(calls) == len(answer.output) >= 1
        for call in calls:
            check(call.name, call.arguments)
        assert answer.status == "completed"
        with client.responses.stream(model="any", input=TALK, tools=FLAT, **options) as streamed:
            last = streamed.get_final_response()
        assert [(c.name, c.arguments) for c in last.output if c.type == "function_call"] == [
            (call.name, call.arguments) for call in calls
        ]
