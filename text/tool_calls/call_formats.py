"""Which form of tool calls a chat template writes or describes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest
from hearthd.text.tool_calls.call_filter import CallFilter
from hearthd.text.tool_calls.derived_format import derived_format
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
from hearthd.text.tool_calls.python_calls import PYTHON
from hearthd.text.tool_calls.written_calls import WrittenCalls
from hearthd.text.tool_calls.xml_calls import XML

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.text.tool_calls.call_format import CallFormat

# Texts that show a format if a template has all of them. The first row that matches counts. None is
# a form that only the calls in a template show: the XML of GLM.
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
    (("<|tool_list_start|>",), PYTHON),
    (("List of tools: [",), PYTHON),
)


def call_format(template: str) -> CallFormat | None:
    """The format that a chat template names, or None."""
    return next((known for signs, known in _SIGNS if all(sign in template for sign in signs)), None)


def native_format(
    template: str, render: Callable[[list[dict[str, Any]]], str], special_tokens: Sequence[str]
) -> tuple[CallFormat | None, bool]:
    """The format in which a chat template writes calls, or None; and whether it writes any.

    A template that writes none, or fails, has the format that it names. `render` renders messages
    and raises InvalidRequest; `special_tokens` are the names of all special tokens.
    """
    named = call_format(template)
    written = WrittenCalls(render)
    if not written.calls:
        return named, False
    if named and [name for name, _ in _read(named, written)] == [n for n, _ in written.calls]:
        return named, True
    try:
        derived = derived_format(written, special_tokens)
    except InvalidRequest:
        derived = None
    return (derived if derived and _read(derived, written) == written.calls else None), True


def _read(format_: CallFormat, written: WrittenCalls) -> list[tuple[str, Any]]:
    """The names and arguments that a format reads in the calls that a template writes."""
    call_filter = CallFilter(format_, {name: {} for name, _ in written.calls})
    parts = call_filter.push(written.answer if format_.only_first else written.text)
    calls: list[list[str]] = []
    for delta in (delta for part in parts for delta in part.calls):
        if delta.name:
            calls.append([delta.name, ""])
        calls[-1][1] += delta.arguments
    complete = calls[:-1] if call_filter.open else calls
    return [(name, json.loads(arguments)) for name, arguments in complete]
