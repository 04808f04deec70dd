"""Fields of Ollama's requests, and the turn that they ask for.

A turn has the fields of the other routes for conversations, so all of them share the code behind
it.
"""

import copy
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from hearthd.server.api.conversations.turn_fields import Effort, TurnFields
from hearthd.server.api.fields import JsonObject, ModelFields, with_integers
from hearthd.server.api.generation_fields import SamplingFields
from hearthd.server.api.grammar_fields import schema_rules
from hearthd.server.api.ollama.keep_alive import KEEP_ALIVE, KeepAlive
from hearthd.server.api.ollama.model_names import NAME, OllamaName
from hearthd.server.services.language_service import LanguageService
from hearthd.text.errors import InvalidRequest
from hearthd.text.grammars.grammar import Grammar

if TYPE_CHECKING:
    from hearthd.text.text_request import TextRequest

Format = Literal["", "json"] | JsonObject
Think = bool | Literal["low", "medium", "high", "max"]


def _with_default(name: str, default: Any) -> Any:
    """A field of SamplingFields with Ollama's default."""
    field = copy.copy(SamplingFields.model_fields[name])
    field.default = default
    return field


class OllamaOptions(SamplingFields):
    """How the answer is generated: Ollama's options and defaults, and all sampling fields."""

    top_p: float = _with_default("top_p", 0.9)
    min_p: float = _with_default("min_p", 0.0)
    num_predict: int = Field(
        -1,
        description="Maximum number of tokens of the answer. 0 and negative numbers continue to "
        "the end of the context.",
    )
    num_ctx: int | None = Field(
        None,
        ge=1,
        description="Use at most this many tokens of the context for the prompt and the answer, "
        "at least 4. A bundle fixes the size of its context, which a larger number does not "
        "change.",
    )
    num_keep: int = Field(
        4,
        ge=-1,
        description="Number of tokens that stay at the start of a prompt that is cut, besides the "
        "token that begins every text. -1 keeps as many as fit.",
    )

    _with_integers = model_validator(mode="before")(with_integers)  # as Ollama reads them

    @property
    def context(self) -> int | None:
        """The positions for the prompt and the answer; None for all. The minimum is Ollama's."""
        return None if self.num_ctx is None else max(self.num_ctx, 4)

    @property
    def sampling(self) -> dict[str, Any]:
        """The options that are fields of every route."""
        return {name: getattr(self, name) for name in SamplingFields.model_fields}


class OllamaFields(ModelFields):
    """Fields of every request to a model."""

    model: OllamaName = Field("", description=NAME)
    keep_alive: KeepAlive | None = Field(None, description=KEEP_ALIVE)
    options: OllamaOptions = Field(
        default_factory=lambda: OllamaOptions.model_validate({}),
        description="Options of the model, with Ollama's names.",
    )

    @override
    def take_defaults(self, defaults: Mapping[str, Any]) -> None:
        self.options.take_defaults(defaults)

    @property
    @override
    def idle_timeout(self) -> float | None:
        return self.keep_alive


class OllamaTurn(TurnFields):
    """A turn with Ollama's fields for reasoning and for the form of the answer."""

    think: Think | None = None
    format: Format = ""
    context: int | None = None
    keep_first: int | None = None

    @override
    def completion(self, *prompt: Any, **limits: Any) -> "TextRequest":
        request = super().completion(*prompt, **limits)
        return dataclasses.replace(request, context=self.context, keep_first=self.keep_first)

    @property
    @override
    def effort(self) -> Effort | None:
        return self.think if isinstance(self.think, str) else None

    @override
    def template_variables(self) -> dict[str, Any]:
        variables = super().template_variables()
        return (
            variables if self.think is None else {"enable_thinking": bool(self.think), **variables}
        )

    @override
    def rules(self) -> Grammar | None:
        """The grammar of `format`; None allows any text."""
        if isinstance(self.format, str):
            return Grammar("json_object", field="format") if self.format else None
        return schema_rules(self.format, "format")


class AnswerFields(OllamaFields):
    """Fields of every request for text."""

    stream: bool = Field(True, description="Send the answer as a stream of JSON lines.")
    format: Format = Field(
        "", description="The form of the answer: json, or a JSON Schema, which it matches."
    )
    think: Think | None = Field(
        None,
        description="Whether the model reasons before it answers, or how much. By default as the "
        "model's chat template says. Reasoning arrives in `thinking`.",
    )
    logprobs: bool = Field(False, description="Report the log-probability of each token.")
    top_logprobs: int = Field(
        0,
        ge=0,
        le=20,
        description="With `logprobs`: number of alternatives to report for each token.",
    )
    truncate: bool = Field(
        True,
        description="Leave out the oldest messages of a conversation that is longer than the "
        "context, and cut a prompt that is still too long. If false, it is an error.",
    )
    shift: bool = Field(
        True,
        description="If false, a prompt that is too long without the oldest messages is an error. "
        "An answer ends with the context, whatever this says.",
    )

    @property
    def unloads(self) -> bool:
        """Whether a request without a prompt asks to unload the model."""
        return self.keep_alive == 0

    @property
    def alternatives(self) -> int | None:
        """The number of alternatives to report for each token; None reports nothing."""
        return self.top_logprobs if self.logprobs else None

    def turn(self, service: LanguageService) -> OllamaTurn:
        """The turn; raises InvalidRequest if it shall reason and the model does not."""
        if self.think and not (service.has_template and service.template.reasons):
            raise InvalidRequest(
                field="think", got=self.think, expected="false: the model does not reason"
            )
        keep = self.options.num_keep
        keep = service.context if keep < 0 else keep + (service.tokenizer.bos is not None)
        return OllamaTurn(
            stream=self.stream,
            think=self.think,
            format=self.format,
            context=self.options.context,
            keep_first=keep if self.truncate and self.shift else None,
            **self.options.sampling,
        )

    @property
    def max_tokens(self) -> int | None:
        """The maximum length of the answer; None for the rest of the context."""
        return self.options.num_predict if self.options.num_predict > 0 else None
