"""Which form of tool calls a chat template describes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.text.tool_calls.gemma_calls import FUNCTION_GEMMA, GEMMA_4
from hearthd.text.tool_calls.harmony import HARMONY
from hearthd.text.tool_calls.json_calls import (
    GRANITE,
    HERMES,
    LLAMA_3,
    MISTRAL,
    MISTRAL_NAMED,
    PHI,
)
from hearthd.text.tool_calls.xml_calls import XML

if TYPE_CHECKING:
    from hearthd.text.tool_calls.call_format import CallFormat

# Texts that show a format if a template has all of them. The first row that matches counts. None is
# a form that is not supported: the XML of GLM.
_SIGNS: tuple[tuple[tuple[str, ...], CallFormat | None], ...] = (
    (("<tool_call>", "<function="), XML),
    (("<tool_call>", "<arg_key>"), None),
    (("<start_function_call>",), FUNCTION_GEMMA),
    (("<|tool_call>", '<|"|>'), GEMMA_4),
    (("<|channel|>", "<|call|>"), HARMONY),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_NAMED),
    (("[TOOL_CALLS]",), MISTRAL),
    (("<tool_call>",), HERMES),
    (("<|start_of_role|>",), GRANITE),
    (("<|tool|>",), PHI),
    (("<|start_header_id|>", '"parameters"'), LLAMA_3),
)


def call_format(template: str) -> CallFormat | None:
    """The format that a chat template uses, or None."""
    return next((known for signs, known in _SIGNS if all(sign in template for sign in signs)), None)
