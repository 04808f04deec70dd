"""POST /v1/responses: OpenAI's newer route for conversations, which stores its answers."""

import json
import logging
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from fastapi import Request
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import override

from hearthd.server.api.answer_writer import new_id
from hearthd.server.api.conversations.truncation import truncated
from hearthd.server.api.conversations.turn import begin, rendered
from hearthd.server.api.conversations.turn_fields import EFFORT, Effort, TurnFields
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import Fields, JsonObject, MaxTokens, Metadata, Text
from hearthd.server.api.http_errors import ERRORS
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openai import response_items
from hearthd.server.api.openai.response_events import (
    ConversationId,
    Response,
    ResponseEvent,
    ResponseWriter,
)
from hearthd.server.api.openai.response_items import AnyItem, ItemReference, Items, MessageItem
from hearthd.server.api.openai.response_tools import ResponseTools, offered
from hearthd.server.api.openai.tool_fields import MODES, FlatToolChoice, tool_choice
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.stored.state import CurrentState, State, stored_item
from hearthd.server.api.stored.store import Item
from hearthd.server.api.surface import surface
from hearthd.server.completions.choices import Choices
from hearthd.server.errors import StorageFull, TooLargeToStore
from hearthd.server.services.language_service import LanguageService
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.overflow import prompt_room

log = logging.getLogger(__name__)

LOGPROBS = "message.output_text.logprobs"
Include = Literal[
    "message.output_text.logprobs",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]

router = surface("OpenAI", ERRORS, JsonRoute)


class TextFormat(Fields):
    """The format of the answer: any text, JSON, or JSON that is valid under a schema."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["text", "json_object", "json_schema"] = Field(
        default="text", description="text allows any answer; the other types constrain it."
    )
    name: Text | None = Field(default=None, description="Accepted and ignored.")
    description: Text | None = Field(default=None, description="Accepted and ignored.")
    schema_: JsonObject | None = Field(
        default=None, alias="schema", description="With json_schema: the JSON Schema."
    )
    strict: bool | None = Field(
        default=None, description="Accepted and ignored: the schema is always enforced."
    )

    @model_validator(mode="after")
    def _schema_matches_type(self) -> Self:
        if (self.schema_ is not None) != (self.type == "json_schema"):
            raise ValueError("a schema with type json_schema, and only there")
        return self

    def rules(self) -> Grammar | None:
        """The grammar of the answer; None allows any text."""
        if self.type == "text":
            return None
        if self.schema_ is None:
            return Grammar("json_object", field="text.format")
        schema = json.dumps(self.schema_, ensure_ascii=False)
        return Grammar("json_schema", schema, "text.format.schema")


class TextOptions(Fields):
    """Options of the answer's text."""

    format: TextFormat = Field(default_factory=TextFormat)


class ReasoningOptions(Fields):
    """Options of the reasoning."""

    effort: Effort | None = Field(default=None, description=EFFORT)
    summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None,
        description="Return the reasoning as a summary, which has all of it. By default the "
        "reasoning is content.",
    )


class ConversationParam(Fields):
    """A stored conversation."""

    id: Text = Field(description="Its id.")


class ResponsesRequest(TurnFields):
    """A conversation to continue. Sampling fields have llama-server's names and defaults."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": "Say hello.", "max_output_tokens": 32}]}
    )

    input: Text | Items = Field(
        description="A message from the user, or the items of the conversation, after those that "
        "`previous_response_id` or `conversation` stand for."
    )
    previous_response_id: Text | None = Field(
        None, description="Id of a stored response that this request continues."
    )
    conversation: Text | ConversationParam | None = Field(
        None,
        description="Id of a stored conversation that this request continues. The input and the "
        "answer are added to it.",
    )
    store: bool = Field(
        True,
        description="Store the response, until room is needed for newer ones: see --state-size.",
    )
    instructions: Text = Field("", description="A system message before the conversation.")
    max_output_tokens: MaxTokens = Field(
        None,
        description="Maximum number of tokens of the answer. By default, and with -1, the rest of "
        "the context.",
    )
    text: TextOptions = Field(default_factory=TextOptions)
    reasoning: ReasoningOptions = Field(default_factory=ReasoningOptions)
    tools: ResponseTools = Field(
        default_factory=list,
        description="Functions and custom tools that the model may call, and groups of them. Tools "
        "of other types, which would run on the server, are ignored.",
    )
    tool_choice: FlatToolChoice = Field(
        "auto", description=f"{MODES} Or the function to call, or the allowed functions."
    )
    parallel_tool_calls: bool = Field(
        True, description="Allow several calls in one answer. If false, an answer has at most one."
    )
    include: list[Include] = Field(
        default_factory=list,
        description="message.output_text.logprobs reports the log-probability of each token. The "
        "other values ask for output that the server never has.",
    )
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None,
        description="With logprobs in `include`: number of alternatives to report for each token. "
        "0 by default.",
    )
    metadata: Metadata = Field(default_factory=dict, description="Returned with the answer.")
    truncation: Literal["auto", "disabled"] = Field(
        "disabled",
        description="auto: drop the oldest turns of a conversation that does not fit in the "
        "context. The header Warning says how many messages were dropped.",
    )

    @property
    @override
    def effort(self) -> Effort | None:
        return self.reasoning.effort

    @override
    def rules(self) -> Grammar | None:
        """The grammar, from `text` or a field of all routes; raises InvalidRequest for two."""
        rules, other = self.text.format.rules(), super().rules()
        if rules and other:
            raise InvalidRequest(field=other.field, got=other.type, expected="none beside text")
        return rules or other

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation."""
        given = self.conversation
        return given.id if isinstance(given, ConversationParam) else given

    def after(self, earlier: Sequence[Item], state: State) -> Conversation:
        """The conversation and its tools, after the `earlier` items; raises InvalidRequest."""
        field = "conversation" if self.conversation else "previous_response_id"
        items = [(field, item) for item in response_items.read_stored(earlier)]
        if isinstance(self.input, str):
            message = MessageItem(type="message", role="user", content=self.input)
            items.append(("input", message))
        else:
            items += [
                (path, _resolved(item, path, state))
                for index, item in enumerate(self.input or ())
                for path in (f"input[{index}]",)
            ]
        tools = [offered_tool.tool for offered_tool in offered(self.tools).values()]
        return Conversation(
            messages=response_items.messages(self.instructions, items),
            tools=tools,
            choice=tool_choice(self.tool_choice, tools, parallel=self.parallel_tool_calls),
            field="input",
        )


def _resolved(item: AnyItem, path: str, state: State) -> AnyItem:
    if not isinstance(item, ItemReference):
        return item
    (resolved,) = response_items.read_stored([state.item(item.id, path)])
    return resolved


def earlier_items(body: ResponsesRequest, state: State) -> list[Item]:
    """The stored items before a request's; raises InvalidRequest."""
    if body.conversation_id is None:
        previous = body.previous_response_id
        return [] if previous is None else state.before(previous)
    if body.previous_response_id is not None:
        raise InvalidRequest(
            field="previous_response_id",
            got=body.previous_response_id,
            expected="null with a conversation",
        )
    return state.in_conversation(body.conversation_id)


@router.post(
    "/v1/responses",
    summary="Answer a conversation (Responses API)",
    response_model=Response,
    responses=streams(ResponseEvent),
)
async def responses(
    body: ResponsesRequest, request: Request, state: CurrentState
) -> Response | CompletionStream:
    """Generate the next messages or tool calls of a conversation.

    With `stream`, the answer is a stream of server-sent events with OpenAI's names, such as
    response.output_text.delta. The last event holds the complete response.
    """
    service = await language_service(request, body)
    with_logprobs = LOGPROBS in body.include
    if body.top_logprobs and not with_logprobs:
        raise InvalidRequest(
            field="top_logprobs",
            got=body.top_logprobs,
            expected="null or 0 without logprobs in include",
        )
    conversation = body.after(earlier_items(body, state), state)
    inputs = input_items(await request.json(), state)
    logprobs = (body.top_logprobs or 0) if with_logprobs else None
    writer = ResponseWriter(
        await begun(request, service, body, conversation, logprobs=logprobs),
        in_progress(body, service),
        tools=offered(body.tools),
        summarized=body.reasoning.summary is not None,
        on_end=lambda response: _stored(response, body, inputs, state, request),
    )
    return await respond(writer, request, stream=body.stream)


async def begun(
    request: Request,
    service: LanguageService,
    body: ResponsesRequest,
    conversation: Conversation,
    *,
    logprobs: int | None = None,
) -> Choices:
    """Submit the answer to a conversation, which `truncation` may shorten; raises as `begin`."""
    if body.truncation == "auto":
        conversation, prompt, request.state.dropped_messages = await truncated(
            request,
            service,
            body,
            conversation,
            max_tokens=prompt_room(service.context, body.max_output_tokens),
        )
    else:
        prompt = await rendered(request, service, body, conversation)
    return await begin(
        service, body, conversation, prompt, max_tokens=body.max_output_tokens, logprobs=logprobs
    )


def input_items(body: dict[str, Any], state: State) -> list[Item]:
    """The items of a request as they are stored: what the server ignores stays among them."""
    items = body.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    return [
        state.item(item["id"], "input") if _is_reference(item) else stored_item(item)
        for item in items
    ]


def _is_reference(item: dict[str, Any]) -> bool:
    named = isinstance(item.get("id"), str)
    return named and (item.get("type") == "item_reference" or not item.keys() - {"id", "type"})


def _stored(
    response: Response,
    body: ResponsesRequest,
    inputs: Sequence[Item],
    state: State,
    request: Request,
) -> Response:
    """Store a complete response, and add its items to the conversation of the request.

    If there is no space, returns it with `store` false, and leaves the reason for a header.
    """
    outputs = [item.model_dump(mode="json", exclude_none=True) for item in response.output]
    conversation = body.conversation_id
    # It may have been deleted while the model answered.
    record = None if conversation is None else state.store.get(state.owner, conversation)
    try:
        with state.store.transaction():
            if body.store:
                dumped = response.model_dump(mode="json")
                state.put(response.id, dumped, inputs=inputs, outputs=outputs)
            if conversation is not None and record is not None:
                state.put(conversation, record, inputs=inputs, outputs=outputs)
    except (StorageFull, TooLargeToStore) as error:
        log.warning("%s: %s", response.id, error)
        request.state.not_stored = str(error)
        return response.model_copy(update={"store": False})
    return response


def in_progress(body: ResponsesRequest, service: LanguageService) -> Response:
    """The response before its first event."""
    tools: list[dict[str, Any]] = [tool.model_dump() for tool in body.tools if tool]
    return Response(
        id=new_id("resp_"),
        created_at=int(time.time()),
        instructions=body.instructions or None,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata,
        previous_response_id=body.previous_response_id,
        conversation=ConversationId(id=body.conversation_id) if body.conversation_id else None,
        store=body.store,
        model=service.name,
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning=body.reasoning.model_dump(),
        system_fingerprint=service.fingerprint,
        temperature=body.temperature,
        text=body.text.model_dump(by_alias=True, exclude_none=True),
        tool_choice=body.tool_choice
        if isinstance(body.tool_choice, str)
        else body.tool_choice.model_dump(),
        tools=tools,
        top_p=body.top_p,
        truncation=body.truncation,
    )
