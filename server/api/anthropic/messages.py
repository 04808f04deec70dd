"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's routes for conversations."""

import json
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.anthropic import message_blocks
from hearthd.server.api.anthropic.client_tools import CLIENT_TOOLS
from hearthd.server.api.anthropic.error_bodies import ERRORS, THREAD_FIELD
from hearthd.server.api.anthropic.events import Message, MessageEvent, MessageWriter
from hearthd.server.api.anthropic.message_blocks import MessageParam, ToolChoiceParam, ToolParam
from hearthd.server.api.conversations.content import Content
from hearthd.server.api.conversations.turn import begin, rendered
from hearthd.server.api.conversations.turn_fields import EFFORT, Effort, TurnFields
from hearthd.server.api.current_service import language_service
from hearthd.server.api.fields import Fields, JsonObject, MaxTokens, Text
from hearthd.server.api.generation_fields import StopString, without_empty
from hearthd.server.api.inert_fields import Ignored, or_ignored
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.server.errors import NotStored
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar

_KNOWN_TOOLS = ("custom", *CLIENT_TOOLS)
router = surface("Anthropic", ERRORS, JsonRoute)


class Thinking(Fields):
    """Whether the model reasons before it answers, if its chat template offers a choice."""

    type: Literal["enabled", "adaptive", "disabled", "between_tools"] = Field(
        description="enabled and adaptive set the template's variable enable_thinking to true, "
        "disabled and between_tools to false."
    )
    budget_tokens: int | None = Field(
        default=None, ge=0, description="Number of tokens after which the reasoning is ended."
    )


class Thread(Fields):
    """The thread of a conversation. The server keeps none."""

    type: Literal["create", "continue"] = Field(
        description="create is accepted and ignored. continue is a 404, after which Anthropic's "
        "packages send the whole conversation."
    )
    previous_message_id: Text = Field("", description="For continue: the latest message.")


class OutputFormat(Fields):
    """The format of the answer."""

    model_config = ConfigDict(populate_by_name=True)

    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema", description="The JSON Schema.")


class OutputConfig(Fields):
    """Options of the answer."""

    format: OutputFormat | None = Field(default=None, description="The format; null for any text.")
    effort: Effort | None = Field(default=None, description=EFFORT)


class MessagesRequest(TurnFields):
    """A conversation to continue. Sampling fields have llama-server's names and defaults."""

    model_config = ConfigDict(
        populate_by_name=True,
        json_schema_extra={
            "examples": [
                {"max_tokens": 32, "messages": [{"role": "user", "content": "Say hello."}]}
            ]
        },
    )

    messages: list[MessageParam] = Field(
        min_length=1, description="The conversation so far, oldest message first."
    )
    system: Content = Field(
        "", description="A system message before the conversation: a text, or a list of texts."
    )
    max_tokens: MaxTokens = Field(
        None,
        description="Maximum number of tokens of the answer. By default, and with -1, the rest of "
        "the context.",
    )
    stop: Annotated[list[StopString], Field(max_length=16), BeforeValidator(without_empty)] = Field(
        default_factory=list,
        alias="stop_sequences",
        description="End the answer before any of these strings.",
    )
    tools: list[Annotated[ToolParam | Ignored, or_ignored(ToolParam, _KNOWN_TOOLS)]] = Field(
        default_factory=list,
        description="Tools that the model may call. Tools that Anthropic runs, or that read the "
        "screen, are ignored.",
    )
    tool_choice: ToolChoiceParam | None = Field(
        None, description="Whether and which tools the model may call. auto by default."
    )
    thinking: Thinking | None = Field(
        None, description="Whether the model reasons, and for how long."
    )
    thread: Thread | None = Field(None, description="A conversation that the server keeps.")
    output_config: OutputConfig | None = Field(None, description="Options of the answer.")
    output_format: OutputFormat | None = Field(
        None, description="Another name of `format` in output_config."
    )

    @property
    @override
    def effort(self) -> Effort | None:
        return None if self.output_config is None else self.output_config.effort

    @property
    @override
    def reasoning_budget(self) -> int | None:
        budget = self.thinking.budget_tokens if self.thinking else None
        return super().reasoning_budget if budget is None else budget

    @override
    def rules(self) -> Grammar | None:
        """The grammar: of `output_config`, `output_format` or a field of all routes."""
        forms = {
            "output_config.format": self.output_config and self.output_config.format,
            "output_format": self.output_format,
        }
        stated = super().rules()
        rules = [stated] if stated else []
        for name, form in forms.items():
            if form:
                schema = json.dumps(form.schema_, ensure_ascii=False)
                rules.append(Grammar("json_schema", schema, f"{name}.schema"))
        if len(rules) > 1:
            raise InvalidRequest(
                field=rules[0].field, got=rules[0].type, expected=f"none beside {rules[1].field}"
            )
        return rules[0] if rules else None

    @override
    def template_variables(self) -> dict[str, Any]:
        variables = super().template_variables()
        if self.thinking is None:
            return variables
        thinks = self.thinking.type in ("enabled", "adaptive")
        return {"enable_thinking": thinks, **variables}

    def conversation(self) -> Conversation:
        """The conversation and its tools; raises InvalidRequest and NotStored."""
        if self.thread and self.thread.type == "continue":
            raise NotStored(self.thread.previous_message_id, field=THREAD_FIELD)
        tools = message_blocks.tools(self.tools, message_blocks.referenced(self.messages))
        return Conversation(
            messages=message_blocks.messages(self.system, self.messages, tools),
            tools=tools,
            choice=message_blocks.choice(self.tool_choice, tools),
        )


class TokenCount(BaseModel):
    """The length of a conversation."""

    input_tokens: int = Field(description="Tokens of the conversation, as the model reads it.")


@router.post(
    "/v1/messages",
    summary="Answer a conversation (Anthropic)",
    response_model=Message,
    responses=streams(MessageEvent),
)
async def create_message(body: MessagesRequest, request: Request) -> Message | CompletionStream:
    """Generate the next message of a conversation, in the form of Anthropic's API.

    With `stream`, the answer is a stream of server-sent events with Anthropic's names, such as
    content_block_delta.
    """
    service = await language_service(request, body)
    conversation = body.conversation()
    prompt = await rendered(request, service, body, conversation)
    choices = await begin(
        service, body, conversation, prompt, max_tokens=body.max_tokens, logprobs=None
    )
    writer = MessageWriter(choices, model=service.name, stops=body.stop)
    return await respond(writer, request, stream=body.stream)


@router.post("/v1/messages/count_tokens", summary="Count the tokens of a conversation")
async def count_tokens(body: MessagesRequest, request: Request) -> TokenCount:
    """Return the number of tokens that the model reads for a conversation."""
    service = await language_service(request, body)
    prompt = await rendered(request, service, body, body.conversation())
    return TokenCount(input_tokens=len(prompt.ids))
