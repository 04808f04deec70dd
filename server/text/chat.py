"""From a conversation to a prompt, by the bundle's chat template.

Templates are Jinja, with the conventions of Hugging Face's `apply_chat_template`: its variables,
filters and white-space rules. A template is a program that came with the weights, so it runs in
Jinja's sandbox, and whatever it raises is said to be about the messages.

What it knows of a message is what templates know: `role`, `content` (text), `tool_calls`, and of a
tool's answer `name` and `tool_call_id`. It knows no HTTP.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import meta
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.bundle import CHAT_TEMPLATE, BundleError
from server.errors import InvalidRequest
from server.text import guard
from server.text.tools import call_format

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from models.bundle import SpecialTokens
    from server.text.tokenizer import Tokenizer

Message = dict[str, Any]
Tool = dict[str, Any]

LONGEST_PROMPT = 4_000_000  # characters; far beyond any context, and little memory


class BadChatTemplate(BundleError):
    """The bundle's chat template cannot be compiled."""


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A rendered conversation: its text, and its ids as the model reads them."""

    text: str
    ids: tuple[int, ...]


class ChatTemplate:
    """A compiled template and the tokenizer that reads what it writes.

    `eos` is the id that the template may write at the end of an answer. `calls` is how the model
    writes tool calls, None if the template says nothing of them. Raises BadChatTemplate.
    """

    def __init__(self, source: str, tokenizer: Tokenizer, *, eos: int | None) -> None:
        self.source = source
        self.calls = call_format(source)
        self._tokenizer = tokenizer
        self._special = {
            "bos_token": "" if tokenizer.bos is None else tokenizer.name(tokenizer.bos),
            "eos_token": "" if eos is None else tokenizer.name(eos),
        }
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            variables = meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise BadChatTemplate(
                f"{CHAT_TEMPLATE} is no template: {error}: bake the bundle again"
            ) from error
        self._takes_tools = "tools" in variables and self.calls is not None

    @staticmethod
    def from_bundle(
        bundle: Path, tokenizer: Tokenizer, special: SpecialTokens
    ) -> ChatTemplate | None:
        """The template of a bundle, or None if it has none; raises BadChatTemplate."""
        try:
            source = (bundle / CHAT_TEMPLATE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return ChatTemplate(source, tokenizer, eos=special.eos[0] if special.eos else None)

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Tool] = (),
        add_generation_prompt: bool = True,
    ) -> Prompt:
        """The prompt for a conversation; raises InvalidRequest.

        Names of special tokens in the messages and tools are plain text in `ids`.
        """
        if tools and not self._takes_tools:
            raise InvalidRequest(
                field="tools",
                got=f"{len(tools)} tools",
                wanted="none: the model's chat template knows no tools",
            )
        given = {"messages": list(messages), "tools": list(tools)}
        mark = guard.choose_mark(given)
        if mark is None:
            raise InvalidRequest(
                field="messages",
                got="every character from U+E000 to U+F8FF",
                wanted="one of them to be left out",
            )
        given = guard.protect(given, self._tokenizer, mark)
        text = self.render(**given, add_generation_prompt=add_generation_prompt)
        return Prompt(text=text.replace(mark, ""), ids=guard.encode(text, self._tokenizer, mark))

    def render(
        self, messages: list[Message], *, tools: list[Tool], add_generation_prompt: bool
    ) -> str:
        """What the template writes; raises InvalidRequest."""
        if "developer" not in self.source:  # OpenAI's newer word for it
            messages = [
                {**message, "role": "system"} if message["role"] == "developer" else message
                for message in messages
            ]
        stream = self._template.generate(
            messages=messages,
            tools=tools or None,
            add_generation_prompt=add_generation_prompt,
            **self._special,
        )
        text = ""
        try:
            for part in stream:
                text += part
                if len(text) > LONGEST_PROMPT:
                    raise jinja2.TemplateError(f"no more than {LONGEST_PROMPT} characters")
        except Exception as error:
            raise InvalidRequest(
                field="messages",
                got=", ".join(message["role"] for message in messages),
                wanted=f"a conversation that the model's chat template takes: {error}",
            ) from error
        return text


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    """Jinja's own filter escapes HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
