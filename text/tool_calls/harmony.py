"""The tool calls of gpt-oss, each a message of its own to a function.

<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>

A prompt ends with the opening of an answer's first message. ReasoningFilter puts it in front of the
answer; if it does not separate the reasoning, CallFilter does. Source: "OpenAI Harmony Response
Format" (2025).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.text.reasoning import quoted
from hearthd.text.tool_calls.call_format import NAME, REST_OF_HEADER, CallFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.text.tool_calls.call_format import Elements, Signature

# The model also writes calls in the channel of the reasoning.
_CHANNELS = ("<|channel|>commentary", "<|channel|>analysis")
_RECIPIENT, _CONSTRAIN, _MESSAGE = " to=functions.", "<|constrain|>", "<|message|>"


@dataclass(frozen=True, kw_only=True)
class HarmonyCalls(CallFormat):
    """Calls whose recipient is before the channel of their message, or after it."""

    @property
    @override
    def heads(self) -> tuple[Elements, ...]:
        return (self.head, *((channel, *self.head) for channel in _CHANNELS))

    @property
    @override
    def trigger(self) -> bytes:
        marker, recipient = (re.escape(text.encode()) for text in (self.marker, _RECIPIENT))
        channels = b"|".join(re.escape(channel.encode()) for channel in _CHANNELS)
        return rb"(\A|%s)(?P<call>(%s)?%s)" % (marker, channels, recipient)

    @override
    def lark(
        self, tools: Sequence[Signature], quote: Callable[[str], str], *, parallel: bool
    ) -> str:
        """As `CallFormat.lark`, without a marker: one call, after which the model waits."""
        message, constrain = quote(_MESSAGE), quote(_CONSTRAIN)
        first, *_ = channels = [quoted(channel, quote) for channel in _CHANNELS]
        rules = [
            "calls: " + " | ".join(f"call_{number}" for number in range(len(tools))),
            f'kind: (SPACE? {constrain} "json" | SPACE "json"?)? {message}',
            "SPACE: / {1,2}/",
        ]
        for number, tool in enumerate(tools):
            recipient, arguments = quote(_RECIPIENT + tool.name), f"arguments_{number}"
            heads = [f"{recipient} {first}", *(f"{channel} {recipient}" for channel in channels)]
            rules.append(f"call_{number}: ({' | '.join(heads)}) kind {arguments}")
            rules += self.argument_rules(arguments, tool, quote)
        return "\n".join(rules)


HARMONY = HarmonyCalls(
    marker="<|start|>assistant",
    head=(_RECIPIENT, NAME),
    middle=(REST_OF_HEADER,),
    between=(),
    special=("<|start|>", "<|channel|>", _CONSTRAIN, _MESSAGE),
)
