"""Responses and conversations that the server stores, by the real `openai` client."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import openai
import pytest

from hearthd.server.app import Guards
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.openai_servers import LIBRARY, chatty, client_of, scripted
from tests.server.templates import GEMMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of(scripted("the fox runs")) as client:
        yield client


@pytest.fixture(scope="module")
def caller() -> Iterator[openai.OpenAI]:
    """A model that always calls the tool."""
    with client_of(scripted(CALL)) as client:
        yield client


def ask(client: openai.OpenAI, text: Any = "the dog", **fields: Any) -> Any:
    return client.responses.create(model="any", input=text, **fields)


def tokens(client: openai.OpenAI, text: Any = "the dog", **fields: Any) -> int:
    count = client.responses.input_tokens.count(model="any", input=text, **fields)
    return int(count.input_tokens)


def message(role: str, text: str) -> Any:
    return {"role": role, "content": text}


TALK = [message("user", "the dog"), message("assistant", "the fox runs")]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued(client: openai.OpenAI, stream: bool) -> None:
    if stream:
        *_, last = ask(client, stream=True)
        first = last.response
    else:
        first = ask(client)
    assert first.store is True
    second = ask(client, "the cat", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    whole = [*TALK, message("user", "the cat")]
    assert second.usage.input_tokens == tokens(client, whole)
    third = [*whole, TALK[1], message("user", "x")]
    assert tokens(client, "x", previous_response_id=second.id) == tokens(client, third)
    # Instructions belong to one request.
    assert tokens(client, "x", previous_response_id=second.id, instructions="Be brief.") > tokens(
        client, "x", previous_response_id=ask(client, "the cat", previous_response_id=first.id,
                                              instructions="Be brief. " * 9).id
    )  # fmt: skip


def test_a_complete_response_cannot_be_cancelled(client: openai.OpenAI) -> None:
    """As in OpenAI's API, where only a response with `background` can be."""
    first = ask(client)
    with pytest.raises(openai.BadRequestError, match="runs in the background: it is completed"):
        client.responses.cancel(first.id)
    assert client.responses.retrieve(first.id).output == first.output
    with pytest.raises(openai.NotFoundError, match="resp_none"):
        client.responses.cancel("resp_none")


def test_a_tool_result_continues_a_response(caller: openai.OpenAI) -> None:
    first = ask(caller, tools=[TOOL])
    (call,) = first.output
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "42"}
    second = ask(caller, [result], tools=[TOOL], previous_response_id=first.id)
    whole = [TALK[0], call.model_dump(), result]
    assert second.usage.input_tokens == tokens(caller, whole, tools=[TOOL])
    # As the AI SDK sends it.
    referred = [TALK[0], {"type": "item_reference", "id": call.id}, result]
    assert tokens(caller, referred, tools=[TOOL]) == second.usage.input_tokens
    bare = [TALK[0], {"id": call.id}, result]
    assert tokens(caller, bare, tools=[TOOL]) == second.usage.input_tokens
    third = ask(caller, referred, tools=[TOOL])
    assert [item.id for item in caller.responses.input_items.list(third.id, order="asc")][
        1
    ] == call.id


def test_a_response_is_returned_and_deleted(client: openai.OpenAI) -> None:
    compaction = {"type": "compaction", "encrypted_content": "x", "id": "cmp_1"}
    answer = ask(client, [message("user", "the dog"), compaction], metadata={"a": "b"})
    assert client.responses.retrieve(answer.id) == answer
    newest, oldest = client.responses.input_items.list(answer.id)
    # What the server cannot read is kept as it is.
    assert newest.model_dump(exclude_none=True) == compaction
    assert oldest.model_dump(exclude={"id"}, exclude_none=True) == {
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "the dog"}],
    }
    pages = client.responses.input_items.list(answer.id, limit=1, order="asc")
    assert pages.has_more
    assert [item.id for item in pages] == [oldest.id, newest.id]
    after = client.responses.input_items.list(answer.id, order="asc", after=str(oldest.id))
    assert [item.id for item in after] == ["cmp_1"]
    assert tokens(client, "x", previous_response_id=answer.id) == tokens(
        client, [*TALK, message("user", "x")]
    )
    client.responses.delete(answer.id)
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="not stored"):
            call(answer.id)
    with pytest.raises(openai.BadRequestError, match="stored response") as caught:
        ask(client, previous_response_id=answer.id)
    assert caught.value.param == "previous_response_id"


def test_a_response_is_not_stored_if_the_request_says_so(client: openai.OpenAI) -> None:
    answer = ask(client, store=False)
    assert answer.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    with pytest.raises(openai.BadRequestError, match="stored item") as caught:
        ask(client, [TALK[0], {"type": "item_reference", "id": answer.output[0].id}])
    assert caught.value.param == "input[1]"


def test_a_conversation_collects_inputs_and_answers(client: openai.OpenAI) -> None:
    conversation = client.conversations.create(items=TALK, metadata={"topic": "x"})
    assert client.conversations.retrieve(conversation.id) == conversation
    answer = ask(client, "the cat", conversation=conversation.id)
    assert answer.conversation.id == conversation.id
    assert answer.usage.input_tokens == tokens(client, [*TALK, message("user", "the cat")])
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=3))
    assert [item.role for item in items] == ["user", "assistant"] * 2
    # Of an answer that is not stored, the items are.
    ask(client, "x", conversation={"id": conversation.id}, store=False)
    assert len(list(client.conversations.items.list(conversation.id))) == 6
    updated = client.conversations.update(conversation.id, metadata={"topic": "y"})
    assert updated.metadata == {"topic": "y"}
    both = {"conversation": conversation.id, "previous_response_id": answer.id}
    with pytest.raises(openai.BadRequestError, match="null with a conversation"):
        ask(client, **both)
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.BadRequestError, match="stored conversation") as caught:
        ask(client, conversation=conversation.id)
    assert caught.value.param == "conversation"


def test_items_of_a_conversation_are_added_and_deleted(client: openai.OpenAI) -> None:
    conversation = client.conversations.create()
    call: Any = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "x"}
    added = client.conversations.items.create(conversation.id, items=[TALK[0], call, result])
    assert [item.type for item in added.data] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    item = client.conversations.items.retrieve(
        str(added.data[1].id), conversation_id=conversation.id
    )
    assert item == added.data[1]
    for left in added.data[1:]:
        client.conversations.items.delete(str(left.id), conversation_id=conversation.id)
    (rest,) = client.conversations.items.list(conversation.id)
    assert rest == added.data[0]
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve("none", conversation_id=conversation.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(conversation.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.conversations.items.create(conversation.id, items=[{"role": "boss"}])
    assert caught.value.param == "items[0].role"


def test_a_key_does_not_find_the_records_of_another() -> None:
    guards = Guards(api_keys=("one", "two"))
    with fakes.running(scripted("the fox"), guards=guards) as plain:
        mine, other = (
            openai.OpenAI(
                base_url=f"{plain.base_url}/v1",
                api_key=key,
                max_retries=0,
                timeout=PATIENCE,
                default_headers={"Connection": "close"},
            )
            for key in guards.api_keys
        )
        answer = ask(mine)
        assert mine.responses.retrieve(answer.id).id == answer.id
        calls: tuple[Callable[[], object], ...] = (
            lambda: other.responses.retrieve(answer.id),
            lambda: ask(other, previous_response_id=answer.id),
            lambda: ask(other, [{"type": "item_reference", "id": answer.output[0].id}]),
        )
        for call in calls:
            with pytest.raises(openai.APIStatusError):
                call()


def test_a_stream_that_ends_early_stores_nothing() -> None:
    slow = fakes.fake_service(LIBRARY, template=GEMMA, context=2048, delay=0.05)  # 100 s
    with client_of(slow) as client:
        stream = ask(client, "the dog", stream=True)
        first = next(iter(stream))
        stream.close()
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.response.id)


def test_a_get_cannot_stream(client: openai.OpenAI) -> None:
    answer = ask(client)
    with pytest.raises(openai.BadRequestError, match="complete"):
        client.responses.retrieve(answer.id, stream=True)
    assert json.loads(client.responses.with_raw_response.retrieve(answer.id).text)["store"] is True


def test_truncation_drops_the_oldest_turns() -> None:
    with client_of(chatty(context=160)) as client:
        turns = [
            turn
            for number in range(12)
            for turn in (message("user", f"the dog {number}"), message("assistant", "the fox"))
        ]
        items = [message("system", "Be brief."), *turns, message("user", "the last")]
        with pytest.raises(openai.BadRequestError, match="too long"):
            ask(client, items, max_output_tokens=4)
        raw = client.responses.with_raw_response.create(
            model="any", input=items, max_output_tokens=4, truncation="auto"
        )
        dropped = int(raw.headers["warning"].split("oldest ")[1].split()[0])
        answer = raw.parse()
        assert answer.truncation == "auto"
        assert answer.usage is not None
        kept = [items[0], *items[1 + dropped :]]
        assert kept[1]["role"] == "user"
        assert answer.usage.input_tokens == tokens(client, kept) <= 156
        assert tokens(client, [items[0], *items[dropped - 1 :]]) > 156
        # The stored input is whole.
        assert len(list(client.responses.input_items.list(answer.id))) == len(items)
        short = client.responses.with_raw_response.create(
            model="any", input="the dog", max_output_tokens=4, truncation="auto"
        )
        assert "warning" not in short.headers
        with pytest.raises(openai.BadRequestError, match="too long"):
            ask(client, "the dog " * 99, max_output_tokens=4, truncation="auto")


@pytest.mark.parametrize(
    "item",
    [
        '{"type": "web_search_call", "id": 7}',
        '{"type": "web_search_call", "id": {"a": 1}}',
        r'{"type": "mcp_call", "id": "\ud800"}',
        r'{"type": "mcp_call", "id": "a", "note": "\ud800"}',
        r'{"type": "message", "role": "user", "content": "x", "extra": "\ud800"}',
    ],
)
def test_an_item_that_could_not_be_returned_is_not_stored(item: str) -> None:
    with fakes.running(chatty()) as server:
        for path, field in (("/v1/conversations", "items"), ("/v1/responses", "input")):
            body = f'{{"{field}": [{{"role": "user", "content": "the dog"}}, {item}]}}'
            refused = server.post(path, content=body, headers={"Content-Type": "application/json"})
            assert refused.status_code == 400
            assert refused.json()["error"]["message"].startswith(f"{field}[1]: got ")
