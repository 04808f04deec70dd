"""A conversation and its tools in Gemini's form: contents of parts."""

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hearthd.server.api.conversations.open_calls import OpenCalls
from hearthd.server.api.fields import JsonObject, Text, ToolName
from hearthd.server.api.gemini.gemini_fields import GeminiFields, UpperCase
from hearthd.server.api.gemini.json_schemas import json_schema
from hearthd.text.conversation import EarlierCall, Media, MediaKind, Message, Part, ToolResult
from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.tools import ChoiceMode, Tool, ToolChoice

_OUTPUT = "output"  # the member of a function's response that Gemini takes for the result
_CHOICE = "toolConfig.functionCallingConfig"


class InlineData(GeminiFields):
    """A file in a request."""

    mime_type: Text = Field(description="Type of the file, such as image/png.")
    data: Text = Field(description="The file in base64.")

    @property
    def url(self) -> str:
        """The file as a data URI."""
        return f"data:;base64,{self.data}"


class FileData(GeminiFields):
    """The address of a file."""

    mime_type: Text = Field("image/png", description="Type of the file, such as image/png.")
    file_uri: Text = Field(description="The address of an image.")

    @property
    def url(self) -> str:
        """The address."""
        return self.file_uri


class GeminiFunctionCall(GeminiFields):
    """A function call by the model."""

    id: Text = Field("", description="Id of the call, if the response repeats it.")
    name: ToolName = Field(description="Name of the function.")
    args: JsonObject = Field(default_factory=dict, description="The arguments.")


class FunctionResponsePart(GeminiFields):
    """An image or a sound that a function returned."""

    inline_data: InlineData | None = Field(None, description="The file.")
    file_data: FileData | None = Field(None, description="The address of the file.")

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if (self.inline_data is None) == (self.file_data is None):
            raise ValueError("inlineData or fileData")
        return self


class GeminiFunctionResponse(GeminiFields):
    """What a function returned."""

    id: Text = Field("", description="Id of the call. By default the oldest open one by the name.")
    name: Text = Field("", description="Name of the function.")
    response: JsonObject = Field(
        default_factory=dict,
        description="The result. The model reads `output` if that is the only member, and else the "
        "JSON of the object.",
    )
    parts: list[FunctionResponsePart] = Field(
        default_factory=list, description="Images and sounds, for models that read them."
    )


_CONTENTS = ("text", "inline_data", "file_data", "function_call", "function_response")


class GeminiPart(GeminiFields):
    """A part of a message: one of the first five fields."""

    text: Text | None = Field(None, description="A text.")
    inline_data: InlineData | None = Field(
        None, description="An image or a sound, for a model that reads them."
    )
    file_data: FileData | None = Field(
        None, description="The address of an image, for a model that reads them."
    )
    function_call: GeminiFunctionCall | None = Field(
        None, description="A function call by the model."
    )
    function_response: GeminiFunctionResponse | None = Field(
        None, description="What a function returned."
    )
    thought: bool = Field(
        False, description="Whether the text is the model's reasoning, for templates that use it."
    )
    thought_signature: Text = Field("", description="Accepted and ignored.")

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in _CONTENTS) != 1:
            raise ValueError("one of text, inlineData, fileData, functionCall and functionResponse")
        return self


class GeminiContent(GeminiFields):
    """A message."""

    role: Literal["user", "model", "function", "tool"] = Field(
        "user",
        description="The author. function and tool are other names of user, for results.",
    )
    parts: list[GeminiPart] = Field(default_factory=list, description="The parts, in order.")


class FunctionDeclaration(GeminiFields):
    """A function that the model may call."""

    name: ToolName = Field(description="Name of the function: up to 64 letters, digits and `_.-`.")
    description: Text = Field("", description="What the function does, for the model.")
    parameters: JsonObject | None = Field(
        None, description="A schema of the arguments in Gemini's form, which calls match."
    )
    parameters_json_schema: JsonObject | None = Field(
        None, description="A JSON Schema of the arguments, in place of `parameters`."
    )
    response: JsonObject | None = Field(None, description="Accepted and ignored.")
    response_json_schema: JsonObject | None = Field(None, description="Accepted and ignored.")

    @model_validator(mode="after")
    def _has_one_schema(self) -> Self:
        if self.parameters is not None and self.parameters_json_schema is not None:
            raise ValueError("parameters or parametersJsonSchema, not both")
        return self

    def tool(self, field: str) -> Tool:
        """The tool; `field` is the path of this object."""
        schema, name = self.parameters, "parameters"
        if self.parameters_json_schema is not None:
            schema, name = self.parameters_json_schema, "parametersJsonSchema"
        parameters = None if schema is None else json.dumps(json_schema(schema), ensure_ascii=False)
        return Tool(
            name=self.name,
            description=self.description or None,
            parameters=parameters,
            field=f"{field}.{name}",
        )


class GeminiTool(GeminiFields):
    """Functions that the model may call. Tools that Google's servers run are ignored."""

    function_declarations: list[FunctionDeclaration] = Field(
        default_factory=list, description="The functions."
    )


class FunctionCallingConfig(GeminiFields):
    """Whether and which functions the model may call."""

    mode: Annotated[Literal["MODE_UNSPECIFIED", "AUTO", "VALIDATED", "ANY", "NONE"], UpperCase] = (
        Field(
            "AUTO",
            description="AUTO and VALIDATED: the model may call functions. ANY: the answer is one "
            "or more calls. NONE: the model calls none.",
        )
    )
    allowed_function_names: list[Text] = Field(
        default_factory=list,
        description="Names of the functions that may be called. Empty for all.",
    )


class ToolConfig(GeminiFields):
    """How the model uses tools."""

    function_calling_config: FunctionCallingConfig = Field(
        default_factory=lambda: FunctionCallingConfig.model_validate({}),
        description="Whether and which functions the model may call.",
    )


def messages(
    system: GeminiContent | None, contents: Sequence[GeminiContent]
) -> list[Message | ToolResult]:
    """The system text and the messages for the text layer; raises InvalidRequest."""
    converted: list[Message | ToolResult] = []
    if system is not None:
        parts = _parts(system.parts, "systemInstruction.parts")
        converted.append(Message(role="system", parts=parts))
    open_calls = OpenCalls()
    for index, content in enumerate(contents):
        field = f"contents[{index}].parts"
        if content.role == "model":
            converted.append(_answer(content.parts, open_calls, field))
        else:
            converted += _question(content.parts, open_calls, field)
    return converted


def _answer(parts: Sequence[GeminiPart], open_calls: OpenCalls, field: str) -> Message:
    calls: list[EarlierCall] = []
    thoughts: list[str] = []
    texts: list[Part] = []
    for index, part in enumerate(parts):
        if call := part.function_call:
            calls.append(open_calls.add(call.name, call.args, call.id))
        elif part.thought and part.text is not None:
            thoughts.append(part.text)
        else:
            texts.append(_part(part, f"{field}[{index}]"))
    return Message(role="assistant", parts=texts, reasoning="\n".join(thoughts), calls=calls)


def _question(
    parts: Sequence[GeminiPart], open_calls: OpenCalls, field: str
) -> Iterator[Message | ToolResult]:
    """Results of functions as messages of their own, and the parts between them."""
    content: list[Part] = []
    for index, part in enumerate(parts):
        path = f"{field}[{index}]"
        if part.function_response is None:
            content.append(_part(part, path))
            continue
        if content:
            yield Message(role="user", parts=content)
            content = []
        yield _result(part.function_response, open_calls, f"{path}.functionResponse")
    if content:
        yield Message(role="user", parts=content)


def _result(result: GeminiFunctionResponse, open_calls: OpenCalls, field: str) -> ToolResult:
    call = open_calls.take(result.name, result.id)
    if call is None:
        raise InvalidRequest(
            field=f"{field}.name",
            got=result.name,
            expected="the response to a call in an earlier message, which has no response yet",
        )
    files = [
        _media(file, f"{field}.parts[{index}]")
        for index, part in enumerate(result.parts)
        if (file := part.inline_data or part.file_data)
    ]
    texts = [_text(result.response)] if result.response or not files else []
    return ToolResult(call_id=call.id, parts=[*files, *texts], field=field)


def _text(response: dict[str, Any]) -> str:
    value = response[_OUTPUT] if response.keys() == {_OUTPUT} else response
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parts(parts: Sequence[GeminiPart], field: str) -> list[Part]:
    return [_part(part, f"{field}[{index}]") for index, part in enumerate(parts)]


def _part(part: GeminiPart, field: str) -> Part:
    """A text, image or sound; raises InvalidRequest for another part."""
    if file := part.inline_data or part.file_data:
        return _media(file, field)
    if part.text is None:
        raise InvalidRequest(
            field=field,
            got="functionCall" if part.function_call else "functionResponse",
            expected="a part for the role of the message",
        )
    return part.text


def _media(file: InlineData | FileData, field: str) -> Media:
    return Media(kind=_kind(file.mime_type), field=field, url=file.url)


def _kind(mime_type: str) -> MediaKind:
    match mime_type.partition("/")[0].lower():
        case "image":
            return "image"
        case "audio":
            return "audio"
    return "file"


def text(content: GeminiContent, field: str) -> str:
    """The texts of a message in a line each; raises InvalidRequest for other parts."""
    parts = _parts(content.parts, f"{field}.parts")
    for part in parts:
        if isinstance(part, Media):
            raise InvalidRequest(field=part.field, got=part.kind, expected="text")
    return "\n".join(map(str, parts))


def tools(params: Sequence[GeminiTool]) -> list[Tool]:
    """The tools of a request."""
    return [
        function.tool(f"tools[{index}].functionDeclarations[{number}]")
        for index, tool in enumerate(params)
        for number, function in enumerate(tool.function_declarations)
    ]


def choice(params: ToolConfig | None, known: Sequence[Tool]) -> ToolChoice:
    """The choice among tools; raises InvalidRequest for a name that is none of theirs."""
    if params is None:
        return ToolChoice()
    config = params.function_calling_config
    modes: dict[str, ChoiceMode] = {"ANY": "required", "NONE": "none"}
    return ToolChoice.among(
        known,
        modes.get(config.mode, "auto"),
        names=config.allowed_function_names or None,
        parallel=True,
        sent=config.mode,
        field=_CHOICE,
    )
