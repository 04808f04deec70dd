"""POST /v1/responses/compact, by the real `openai` client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from hearthd.server.app import Guards
from tests.server import fakes, openai_servers, templates
from tests.server.openai_servers import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SUMMARY = "the fox runs"
USER: Any = {"role": "user", "content": "the dog"}
TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}
TALK: Any = [
    {"role": "system", "content": "Be brief."},
    USER,
    {"role": "assistant", "content": "the quick brown fox"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "the lazy dog"},
    {"role": "user", "content": "jumps"},
]


@pytest.fixture(scope="module", params=["CHATML", "THINKING"])
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """A model that says the summary wherever it is asked."""
    with client_of(
        openai_servers.scripted(SUMMARY, template=getattr(templates, request.param))
    ) as client:
        yield client


def tokens(client: openai.OpenAI, items: Any, **fields: Any) -> int:
    count = client.responses.input_tokens.count(model="any", input=items, **fields)
    return int(count.input_tokens)


def as_input(compacted: Any) -> Any:
    """The output as openai-agents sends it back. The type of its messages lacks input_text."""
    return [item.to_dict(warnings=False) for item in compacted.output]


def test_a_summary_takes_the_place_of_the_answers_and_calls(client: openai.OpenAI) -> None:
    compacted = client.responses.compact(model="any", input=TALK, extra_body={"tools": [TOOL]})
    assert compacted.object == "response.compaction"
    *messages, summary = as_input(compacted)
    assert [(item["role"], item["content"][0]["text"]) for item in messages] == [
        ("system", "Be brief."),
        ("user", "the dog"),
        ("user", "jumps"),
    ]
    assert summary.keys() == {"type", "id", "encrypted_content"}
    assert (summary["type"], summary["encrypted_content"]) == ("compaction", f"hearth:{SUMMARY}")
    assert compacted.usage.input_tokens > tokens(client, TALK)
    assert compacted.usage.output_tokens > 0


def test_the_model_reads_the_summary(client: openai.OpenAI) -> None:
    compacted = as_input(client.responses.compact(model="any", input=TALK))
    text = f"Summary of the conversation so far:\n\n{SUMMARY}"
    read = [TALK[0], USER, TALK[-1], {"role": "user", "content": text}]
    assert tokens(client, compacted) == tokens(client, read)
    raw = client.responses.with_raw_response.create(model="any", input=[*compacted, USER])
    assert "warning" not in raw.headers
    assert raw.parse().output_text == SUMMARY
    # A later compaction summarizes the summary.
    again = as_input(client.responses.compact(model="any", input=[*compacted, TALK[2], USER]))
    assert [item["type"] for item in again] == ["message"] * 4 + ["compaction"]


def test_a_stored_response_is_compacted_and_continued(client: openai.OpenAI) -> None:
    first = client.responses.create(model="any", input="the dog")
    compacted = as_input(client.responses.compact(model="any", previous_response_id=first.id))
    assert [item["type"] for item in compacted] == ["message", "compaction"]
    second = client.responses.create(model="any", input=[*compacted, USER])
    listed = client.responses.input_items.list(second.id, order="asc")
    assert [item.id for item in listed][:2] == [item["id"] for item in compacted]
    assert tokens(client, "x", previous_response_id=second.id) == tokens(
        client, [*compacted, USER, {"role": "assistant", "content": SUMMARY},
                 {"role": "user", "content": "x"}]
    )  # fmt: skip


def test_a_model_that_says_nothing_writes_a_summary() -> None:
    with client_of(openai_servers.scripted("")) as client:
        compacted = client.responses.compact(
            model="any", input="the dog", extra_body={"max_output_tokens": 4}
        )
    assert as_input(compacted)[-1]["encrypted_content"].removeprefix("hearth:").strip()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp_none"}, "previous_response_id"),
        ({"input": "x " * 3000}, "input"),
        ({}, "input"),
        ({"input": "x", "extra_body": {"stream": True}}, "stream"),
    ],
)
def test_what_cannot_be_compacted_is_an_error(
    client: openai.OpenAI, fields: Any, param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.compact(model="any", **fields)
    assert refused.value.param == param


def test_with_strict_fields_the_compaction_of_another_server_is_an_error() -> None:
    service = openai_servers.scripted(SUMMARY)
    foreign = {"type": "compaction", "encrypted_content": "gAAAAAB"}
    with fakes.running(service, guards=Guards(strict_fields=True)) as client:
        refused = client.post("/v1/responses", json={"input": [USER, foreign]})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "input[1].encrypted_content"


def test_a_summary_is_not_a_call() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    with client_of(openai_servers.scripted(call)) as client:
        compacted = client.responses.compact(
            model="any", input=TALK, extra_body={"tools": [TOOL], "max_output_tokens": 64}
        )
    assert as_input(compacted)[-1]["encrypted_content"].removeprefix("hearth:").strip()
