"""POST /v1/responses/compact: a summary in place of the answers, calls and results so far."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.answer_writer import new_id, whole_answer
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import Text
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai.response_events import (
    OutputMessage,
    Response,
    ResponseUsage,
    ResponseWriter,
)
from hearthd.server.api.openai.response_items import COMPACTED, Items
from hearthd.server.api.openai.responses import (
    ResponsesRequest,
    begun,
    earlier_items,
    in_progress,
    input_items,
)
from hearthd.server.api.stored.state import CurrentState, stored_item
from hearthd.server.api.stored.store import Item
from hearthd.server.api.surface import surface
from hearthd.text.conversation import Conversation, Message
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.tool_calls.tools import ToolChoice

_REQUEST = (
    "Summarize this conversation for a model that continues it, and that sees only your summary "
    "and the messages of the user. Say what the user wants, what was done and found out, and what "
    "is left to do. Write only the summary."
)

router = surface("OpenAI", ERRORS, JsonRoute)


class CompactionRequest(ResponsesRequest):
    """A conversation to compact, with the fields of /v1/responses."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": "Say hello."}]})

    input: Text | Items | None = Field(  # type: ignore[assignment]
        None, description="As in /v1/responses. null with `previous_response_id`."
    )

    @override
    def rules(self) -> Grammar:
        """Any text that is not empty: an empty summary would lose the conversation."""
        return Grammar("regex", r"(?s:\S.*)")


class Compaction(BaseModel):
    """A shorter conversation, which takes the place of the one in the request."""

    id: str = Field(description="A unique id.")
    object: Literal["response.compaction"] = "response.compaction"
    created_at: int = Field(description="Unix time of the summary, in seconds.")
    output: list[dict[str, Any]] = Field(
        description="The messages that are not from the model, and an item of type `compaction`: "
        "the `input` of the next request, before its own items."
    )
    usage: ResponseUsage = Field(description="Token counts of the summary.")


@router.post("/v1/responses/compact", summary="Compact a conversation")
async def compact_response(
    body: CompactionRequest, request: Request, state: CurrentState
) -> Compaction:
    """Let the model summarize a conversation. The summary is read by /v1/responses of this server.

    It stands in for the model's messages, reasoning and calls, their results, and an earlier
    summary. Without `max_output_tokens` it may take the rest of the context.
    """
    if body.stream:
        raise InvalidRequest(field="stream", got=True, expected="false: a compaction is one answer")
    service = await language_service(request, body)
    earlier = earlier_items(body, state)
    if body.input is None and not earlier:
        raise InvalidRequest(field="input", got=None, expected="items, or previous_response_id")
    choices = await begun(request, service, body, _asked(body.after(earlier, state)))
    request.state.dropped_tokens = choices.dropped_tokens
    writer = ResponseWriter(
        choices,
        in_progress(body, service),
        tools={},
        summarized=False,
        on_end=lambda answer: answer,
    )
    response = await whole_answer(writer, request)
    assert response.usage is not None
    return Compaction(
        id=new_id("resp_"),
        created_at=int(time.time()),
        output=_compacted([*earlier, *input_items(await request.json(), state)], response),
        usage=response.usage,
    )


def _asked(conversation: Conversation) -> Conversation:
    """The conversation with a request for a summary, which calls no tool."""
    return dataclasses.replace(
        conversation,
        messages=[*conversation.messages, Message(role="user", parts=[_REQUEST])],
        choice=ToolChoice(mode="none"),
    )


def _compacted(items: Sequence[Item], response: Response) -> list[Item]:
    summary = "".join(
        part.text
        for item in response.output
        if isinstance(item, OutputMessage)
        for part in item.content
    )
    kept = [item for item in items if item["type"] == "message" and item.get("role") != "assistant"]
    content = {"type": "compaction", "encrypted_content": COMPACTED + summary}
    return [*kept, stored_item(content)]
