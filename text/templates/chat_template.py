"""From a conversation to a prompt, with the bundle's chat template.

Templates are Jinja, with the conventions of Hugging Face's `apply_chat_template`: its variables,
filters and white-space rules. A template is a program that came with the weights, so it runs in a
sandbox (template_sandbox.py), and its errors are reported as errors of the messages.

A message has `role`, `content` (text, or a list of parts) and `tool_calls`; the result of a tool
call also has `name` and `tool_call_id`.
"""

from __future__ import annotations

import functools
import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2

from hearthd.bundle import CHAT_TEMPLATE, BundleError
from hearthd.bundle.parsing.text_files import read_bytes
from hearthd.text.errors import InvalidRequest
from hearthd.text.reasoning import Reasoning, reasoning_tags
from hearthd.text.templates import argument_form, content_form, tool_form, turn_form
from hearthd.text.templates import special_token_guard as guard
from hearthd.text.templates.generic_messages import system_text, with_texts
from hearthd.text.templates.prompt import Prompt
from hearthd.text.templates.template_sandbox import LimitedEnvironment
from hearthd.text.tool_calls import written_calls
from hearthd.text.tool_calls.call_formats import native_format
from hearthd.text.tool_calls.generic_calls import GENERIC
from hearthd.text.tool_calls.tools import ToolUse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hearthd.bundle import SpecialTokens
    from hearthd.text.conversation import MediaKind
    from hearthd.text.templates.media_texts import MediaTexts
    from hearthd.text.tokenizer import Tokenizer
    from hearthd.text.tool_calls.call_format import CallFormat
    from hearthd.text.tool_calls.tools import Tool, ToolChoice

TemplateMessage = dict[str, Any]
ToolDefinition = dict[str, Any]  # in OpenAI's form

# Phi 4's words for a conversation with tools and no system message.
_SYSTEM = "You are a helpful assistant with some tools."
MAX_PROMPT = 4_000_000  # characters: more than any context, and little memory


class BadChatTemplate(BundleError):
    """The bundle's chat template cannot be compiled."""


class ChatTemplate:
    """A compiled template, and the tokenizer for the prompts that it writes.

    Templates use the names of `eos`, the id that ends an answer, and of `bos`, by default the id
    that the tokenizer puts in front of a text. Raises BadChatTemplate.
    """

    def __init__(
        self, source: str, tokenizer: Tokenizer, *, eos: int | None, bos: int | None = None
    ) -> None:
        self.source = source
        self._tags = reasoning_tags(source)
        self._tokenizer = tokenizer
        bos = tokenizer.bos if bos is None else bos
        self._special = {
            "bos_token": "" if bos is None else tokenizer.name(bos),
            "eos_token": "" if eos is None else tokenizer.name(eos),
        }
        self._environment = LimitedEnvironment(
            functions={"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        )
        try:
            self._template, variables = self._environment.load(source)
        except jinja2.TemplateError as error:
            raise BadChatTemplate(f"the chat template is not valid Jinja: {error}") from error
        # Phi 4's template has no variable `tools` but a field of the system message.
        self._tools_in_message = "tools" not in variables and "message['tools']" in source
        self._takes_tools = "tools" in variables or self._tools_in_message

    @staticmethod
    def from_bundle(
        bundle: Path, tokenizer: Tokenizer, special: SpecialTokens, *, instead: str | None = None
    ) -> ChatTemplate | None:
        """The template of a bundle, or None if it has none; raises BadChatTemplate.

        `instead` is the source of another template, used in place of the bundle's.
        """
        try:
            source = instead or read_bytes(bundle / CHAT_TEMPLATE).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise BadChatTemplate(
                f"{CHAT_TEMPLATE} cannot be read: {error}; bake the bundle again"
            ) from error
        eos = special.eos[0] if special.eos else None
        try:
            return ChatTemplate(source, tokenizer, eos=eos, bos=special.template_bos)
        except BadChatTemplate as error:
            raise BadChatTemplate(f"{CHAT_TEMPLATE}: {error}; bake the bundle again") from error

    @property
    def reasons(self) -> bool:
        """Whether the template names the tags of a model that reasons."""
        return self._tags is not None

    def prompt(
        self,
        messages: Sequence[TemplateMessage],
        *,
        tools: Sequence[ToolDefinition] = (),
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
        continue_final: bool = False,
        media: MediaTexts | None = None,
    ) -> Prompt:
        """Render a conversation; raises InvalidRequest.

        With `continue_final` the prompt ends in the last message, which the answer continues.
        `variables` are more variables of the template, such as enable_thinking. Names of special
        tokens in the messages, tools and variables are plain text in `ids`.
        """
        # Characters have at least a byte each. The template could take long to join them.
        self._tokenizer.require_size(sum(map(content_form.length, messages)))
        values = {
            "messages": self._adapted(messages, tools),
            "tools": self._adapted_tools(tools),
            "variables": dict(variables or {}),
        }
        marks = guard.choose_marks(values, 2)
        if marks is None:
            raise InvalidRequest(
                field="messages",
                got="every character from U+E000 to U+F8FF",
                expected="at least two of them to be absent",
            )
        mark, end = marks
        values = guard.protect(values, self._tokenizer, mark)
        # After the protection, which would break the marks of calls.
        values["messages"] = [self._with_calls(message) for message in values["messages"]]
        if continue_final:
            # A template that trims messages drops the space, and then the message's own, too.
            values["messages"][-1]["content"] += f"{end} "
        text = self.render(**values, add_generation_prompt=add_generation_prompt)
        if continue_final:
            text = _before_end(text, end)
        if media:
            text = media.placed(text)
        plain = text.replace(mark, "")
        return Prompt(
            text=plain,
            ids=guard.encode(text, self._tokenizer, mark),
            reasoning=self._reasoning_after(
                plain, messages[-1]["content"] if continue_final else None
            ),
        )

    def _adapted(
        self, messages: Sequence[TemplateMessage], tools: Sequence[ToolDefinition]
    ) -> list[TemplateMessage]:
        """The messages as the template expects them."""
        is_generic = self._calls is GENERIC
        if is_generic and (tools or "tool_calls" not in self.source):
            messages = with_texts(messages)
        if is_generic and tools:
            messages = _with_system(messages, system_text(tools))
        messages = turn_form.with_system(messages, self._system_form)
        if not self._takes_repeats:
            messages = turn_form.with_alternation(messages)
        if self._calls.id_length:
            messages = [_with_ids(message, self._calls.id_length) for message in messages]
        if any("tool_calls" in message for message in messages) and self._takes_text_arguments:
            messages = [argument_form.with_text(message) for message in messages]
        if tools and self._tools_in_message and not is_generic:
            messages = _with_tools(messages, tools)
        return list(messages)

    def _with_calls(self, message: TemplateMessage) -> TemplateMessage:
        """The message with its calls as the model wrote them, if the template leaves them out."""
        form, are_written = self._native_calls
        if form is None or are_written or not message.get("tool_calls"):
            return message
        calls = [call["function"] for call in message["tool_calls"]]
        text = form.written([(call["name"], call["arguments"]) for call in calls])
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        content = message["content"]
        return {**rest, "content": content_form.joined(content, text) if content else text}

    def _adapted_tools(self, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
        """The tools as the template expects them."""
        if self._calls is GENERIC or not tools:
            return []
        if self._takes_bare_tools:
            return list(tools)
        return [tool_form.with_defaults(tool) for tool in tools]

    def _turns(self, messages: list[TemplateMessage]) -> str:
        """The text of messages alone."""
        return self.render(messages, tools=[], add_generation_prompt=False)

    @property
    def _calls(self) -> CallFormat:
        return self._native_calls[0] or GENERIC

    @functools.cached_property
    def _native_calls(self) -> tuple[CallFormat | None, bool]:
        """The form of tool calls, and whether the template writes calls of earlier turns."""
        if not self._takes_tools:
            return None, False

        def render(messages: list[TemplateMessage]) -> str:
            if self._takes_text_arguments:
                messages = [argument_form.with_text(message) for message in messages]
            return self.render(messages, tools=written_calls.TOOLS, add_generation_prompt=False)

        return native_format(self.source, render, self._tokenizer.special_token_names)

    @functools.cached_property
    def _takes_parts(self) -> bool:
        def render(messages: list[TemplateMessage]) -> str:
            return self._render(messages, tools=[], add_generation_prompt=False)

        return content_form.takes_parts(render)

    def writes(self, kind: MediaKind, marker: str) -> bool:
        """Whether the template writes a marker for an image or a sound in a message."""
        return content_form.writes(self._turns, kind, marker)

    @functools.cached_property
    def _takes_repeats(self) -> bool:
        return turn_form.takes_repeats(self._turns)

    @functools.cached_property
    def _system_form(self) -> turn_form.SystemForm:
        return turn_form.system_form(self._turns)

    @functools.cached_property
    def _takes_bare_tools(self) -> bool:
        def render(tools: list[ToolDefinition]) -> str:
            question = {"role": "user", "content": "probe"}
            return self.render([question], tools=tools, add_generation_prompt=False)

        return tool_form.takes_name_only(render)

    @functools.cached_property
    def _takes_text_arguments(self) -> bool:
        return argument_form.takes_text(self._turns)

    def _reasoning_after(self, prompt: str, continued: str | None) -> Reasoning | None:
        """The reasoning of the answer to a prompt; `continued` is the message that it continues."""
        tags = self._tags
        if tags is None:
            return None
        if continued is not None:
            begun = continued.rfind(tags.start) > continued.rfind(tags.end)
            begun = begun or (not continued.strip() and prompt.rstrip().endswith(tags.start))
            return Reasoning(tags=tags, begun=begun, possible=False)
        prompt = prompt.rstrip()
        return Reasoning(
            tags=tags, begun=prompt.endswith(tags.start), possible=not prompt.endswith(tags.end)
        )

    def tool_use(self, tools: Sequence[Tool], choice: ToolChoice) -> ToolUse | None:
        """How an answer may call some of the tools that the model sees; None without any."""
        if not tools:
            return None
        return ToolUse(
            format=self._calls,
            tools=tuple(
                tool
                for tool in tools
                if choice.mode != "none" and (choice.allowed is None or tool.name in choice.allowed)
            ),
            required=choice.mode == "required",
            parallel=choice.parallel,
        )

    def render(
        self,
        messages: list[TemplateMessage],
        *,
        tools: list[ToolDefinition],
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text that the template writes; raises InvalidRequest."""
        if self._takes_parts:
            messages = [content_form.with_parts(message) for message in messages]
        return self._render(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, variables=variables
        )

    def _render(
        self,
        messages: list[TemplateMessage],
        *,
        tools: list[ToolDefinition],
        add_generation_prompt: bool,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        if "developer" not in self.source:  # OpenAI's newer name of system
            messages = [
                {**message, "role": "system"} if message["role"] == "developer" else message
                for message in messages
            ]
        # The newer and the older name of the same: a template reads one of them.
        messages = [
            {"thinking": message["reasoning_content"], **message}
            if "reasoning_content" in message
            else message
            for message in messages
        ]
        variables = {
            **(variables or {}),
            "messages": messages,
            "tools": tools or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self._special,
        }
        try:
            text = self._environment.render(self._template, variables)
            if len(text) > MAX_PROMPT:
                raise jinja2.TemplateError(
                    f"got {len(text)} characters, expected at most {MAX_PROMPT}"
                )
        except Exception as error:
            raise InvalidRequest(
                field="messages",
                got=", ".join(message["role"] for message in messages),
                expected=f"a conversation that the model's chat template accepts: {error}",
                quotes=True,
            ) from error
        return text


def _with_system(messages: Sequence[TemplateMessage], text: str) -> list[TemplateMessage]:
    """The messages with a text after the system message, or before the first other message."""
    first, *rest = messages
    if first["role"] in ("system", "developer"):
        return [{**first, "content": content_form.joined(first["content"], text)}, *rest]
    return [{"role": "system", "content": text}, *messages]


def _with_ids(message: TemplateMessage, length: int) -> TemplateMessage:
    """A message whose tool calls have ids of this many letters and digits."""
    changed = dict(message)
    if "tool_call_id" in message:
        changed["tool_call_id"] = _short_id(message["tool_call_id"], length)
    if "tool_calls" in message:
        changed["tool_calls"] = [
            {**call, "id": _short_id(call["id"], length)} for call in message["tool_calls"]
        ]
    return changed


def _short_id(id_: str, length: int) -> str:
    if len(id_) == length and id_.isascii() and id_.isalnum():
        return id_
    return hashlib.sha256(id_.encode()).hexdigest()[:length]


def _with_tools(
    messages: Sequence[TemplateMessage], tools: Sequence[ToolDefinition]
) -> list[TemplateMessage]:
    """The messages with the tools in the system message, as JSON of the functions."""
    first, *rest = messages
    if first["role"] != "system":
        first, rest = {"role": "system", "content": _SYSTEM}, [*messages]
    text = json.dumps([tool.get("function", tool) for tool in tools], ensure_ascii=False)
    return [{**first, "tools": text}, *rest]


def _before_end(text: str, end: str) -> str:
    """The prompt up to the mark at the end of its last message; raises InvalidRequest."""
    before, mark, after = text.rpartition(end)
    if not mark:
        raise InvalidRequest(
            field="messages",
            got="a last message to continue",
            expected="another one: the model's chat template does not write it",
        )
    return before if after.startswith(" ") else before.rstrip()


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
