"""Gemini's routes for conversations: generateContent, streamGenerateContent and countTokens."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import ConfigDict, Field
from typing_extensions import override

from hearthd.server.api.conversations.turn import begin, rendered
from hearthd.server.api.current_service import language_service
from hearthd.server.api.gemini import contents as gemini_contents
from hearthd.server.api.gemini.answers import ContentWriter, GenerateContentAnswer
from hearthd.server.api.gemini.contents import GeminiContent, GeminiTool, ToolConfig
from hearthd.server.api.gemini.error_bodies import ERRORS
from hearthd.server.api.gemini.gemini_fields import (
    MODEL_PATH,
    GeminiAnswer,
    GeminiModelFields,
    ModelPath,
)
from hearthd.server.api.gemini.generation_config import GenerationConfig
from hearthd.server.api.json_body import JsonRoute
from hearthd.server.api.ndjson import AnswerArray, LineStream, respond_in_lines
from hearthd.server.api.openapi import streams
from hearthd.server.api.sse import CompletionStream, respond
from hearthd.server.api.surface import surface
from hearthd.text.conversation import Conversation
from hearthd.text.errors import InvalidRequest

router = surface("Gemini", ERRORS, JsonRoute)


class GenerateContentRequest(GeminiModelFields):
    """A conversation to continue. Names of fields can be in camelCase or in snake_case."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}],
                    "generationConfig": {"maxOutputTokens": 32},
                }
            ]
        }
    )

    contents: list[GeminiContent] = Field(
        min_length=1, description="The conversation so far, oldest message first."
    )
    system_instruction: GeminiContent | None = Field(
        None, description="A system message before the conversation."
    )
    tools: list[GeminiTool] = Field(
        default_factory=list, description="Tools that the model may call."
    )
    tool_config: ToolConfig | None = Field(
        None, description="Whether and which tools the model may call."
    )
    generation_config: GenerationConfig = Field(
        default_factory=lambda: GenerationConfig.model_validate({}),
        description="How the answer is generated.",
    )

    @override
    def take_defaults(self, defaults: Mapping[str, Any]) -> None:
        self.generation_config.take_defaults(defaults)

    def conversation(self) -> Conversation:
        """The conversation and its tools; raises InvalidRequest."""
        tools = gemini_contents.tools(self.tools)
        return Conversation(
            messages=gemini_contents.messages(self.system_instruction, self.contents),
            tools=tools,
            choice=gemini_contents.choice(self.tool_config, tools),
            field="contents",
        )


class CountTokensRequest(GeminiModelFields):
    """A conversation, or a request to generateContent."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]}]
        }
    )

    contents: list[GeminiContent] | None = Field(
        None, min_length=1, description="The conversation."
    )
    generate_content_request: GenerateContentRequest | None = Field(
        None, description="The request, in place of `contents`."
    )

    def request(self) -> GenerateContentRequest:
        """The request whose tokens are counted; raises InvalidRequest."""
        if (self.contents is None) == (self.generate_content_request is None):
            raise InvalidRequest(
                field="contents",
                got=None if self.contents is None else "a conversation",
                expected="either contents or generateContentRequest",
            )
        if self.generate_content_request is not None:
            return self.generate_content_request
        return GenerateContentRequest.model_validate({"contents": self.contents})


class TokenTotal(GeminiAnswer):
    """The length of a conversation."""

    total_tokens: int = Field(description="Tokens of the conversation, as the model reads it.")


@router.post(
    f"{MODEL_PATH}:generateContent",
    summary="Answer a conversation (Gemini)",
    response_model=GenerateContentAnswer,
    response_model_exclude_unset=True,
)
async def generate_content(
    model: ModelPath, body: GenerateContentRequest, request: Request
) -> GenerateContentAnswer | CompletionStream:
    """Generate the next message of a conversation, in the form of Gemini's API."""
    return await respond(await _writer(model, body, request), request, stream=False)


@router.post(
    f"{MODEL_PATH}:streamGenerateContent",
    summary="Stream the answer to a conversation (Gemini)",
    response_model=list[GenerateContentAnswer],
    responses=streams(GenerateContentAnswer),
)
async def stream_generate_content(
    model: ModelPath,
    body: GenerateContentRequest,
    request: Request,
    alt: Annotated[
        Literal["json", "sse"],
        Query(description="json: the events are the items of an array. sse: server-sent events."),
    ] = "json",
) -> GenerateContentAnswer | CompletionStream | LineStream:
    """Generate the next message of a conversation, and send it as it is generated.

    Each event is a GenerateContentAnswer with more of an answer.
    """
    writer = await _writer(model, body, request)
    if alt == "sse":
        return await respond(writer, request, stream=True)
    return await respond_in_lines(writer, request, stream=True, form=AnswerArray)


async def _writer(model: str, body: GenerateContentRequest, request: Request) -> ContentWriter:
    """Begin to answer a request."""
    service = await language_service(request, body.of(model))
    turn, conversation = body.generation_config.turn(), body.conversation()
    prompt = await rendered(request, service, turn, conversation)
    config = body.generation_config
    choices = await begin(
        service,
        turn,
        conversation,
        prompt,
        max_tokens=config.max_output_tokens,
        logprobs=config.alternatives,
        choices=config.candidate_count,
    )
    return ContentWriter(choices, model=service.name, config=config)


@router.post(f"{MODEL_PATH}:countTokens", summary="Count the tokens of a conversation (Gemini)")
async def count_content_tokens(
    model: ModelPath, body: CountTokensRequest, request: Request
) -> TokenTotal:
    """Return the number of tokens that the model reads for a conversation."""
    counted = body.request()
    service = await language_service(request, counted.of(model))
    turn = counted.generation_config.turn()
    prompt = await rendered(request, service, turn, counted.conversation())
    return TokenTotal(total_tokens=len(prompt.ids))
