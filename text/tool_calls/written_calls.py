"""What a chat template writes for tool calls, found by rendering probes."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from hearthd.text.errors import InvalidRequest
from hearthd.text.text_overlap import shared_end, shared_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST, SECOND = "probe_first", "probe_second"  # names of tools
KEY, TEXT = "probe_key", "probe value"
OTHER_KEY, OTHER_TEXT = "probe_other_key", "another value"
FIRST_ARGUMENTS = {KEY: TEXT}
SECOND_ARGUMENTS = {KEY: TEXT, OTHER_KEY: OTHER_TEXT}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "A probe.", "parameters": {
        "type": "object", "properties": {key: {"type": "string"} for key in (KEY, OTHER_KEY)},
    }}}
    for name in (FIRST, SECOND)
]  # fmt: skip
_IDS = ("probeid01", "probeid02")  # in Mistral's form
_QUESTION, _ANSWER = "A question.", "A plain answer."
# The beginning of a tag at the end of a text, and the rest of it.
_OPEN_TAG = re.compile(r"[<\[][^<>\[\]\s]*$")
_REST_OF_TAG = re.compile(r"[^<>\[\]\s]*[>\]]")
_LAST_TAG = re.compile(r"<[^<>]*>\s*$")


class WrittenCalls:
    """The calls that a template writes; `render` renders messages, and raises InvalidRequest.

    calls    the names and arguments of the calls that are written: two, one or none
    text     the text after the question
    plain    the text after the question, with an answer that has no calls
    answer   the text where it differs from an answer without calls
    before, between, after   parts of `answer` around the names of two calls
    """

    def __init__(self, render: Callable[[list[dict[str, Any]]], str]) -> None:
        self._render = render
        probes = [(FIRST, FIRST_ARGUMENTS), (SECOND, SECOND_ARGUMENTS)]
        self.calls: list[tuple[str, dict[str, str]]] = []
        self.text = self.plain = self.answer = ""
        for given in (probes, probes[:1]):
            try:
                self.text, self.plain, self.answer = self._turn(given)
            except InvalidRequest:  # some templates write one call only, or none
                continue
            names = itertools.takewhile(lambda call: call[0] in self.text, given)
            self.calls = list(names)
            break
        self.before, _, rest = self.answer.partition(FIRST)
        self.before = self.before.lstrip()
        self.between, _, self.after = rest.partition(SECOND)

    def written(self, arguments: Mapping[str, Any]) -> str:
        """The text after the name of a call with these arguments; raises InvalidRequest."""
        return self._turn([(FIRST, arguments)])[2].partition(FIRST)[2]

    def _turn(self, calls: list[tuple[str, Any]]) -> tuple[str, str, str]:
        """What follows the question: calls, a plain answer, and where the calls differ from it."""
        question = {"role": "user", "content": _QUESTION}
        message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": given}}
                for id_, (name, given) in zip(_IDS, calls, strict=False)
            ],
        }
        plain = self._render([question, {"role": "assistant", "content": _ANSWER}])
        text = self._render([question, message])
        start, stop = _difference(text, *plain.rsplit(_ANSWER, 1))
        return text.rpartition(_QUESTION)[2], plain.rpartition(_QUESTION)[2], text[start:stop]


def _difference(text: str, before: str, after: str = "") -> tuple[int, int]:
    """Where a text differs from one that begins and ends with other texts, in complete tags."""
    start = len(shared_start(text, before))
    if begun := _OPEN_TAG.search(text, 0, start):
        start = begun.start()
    stop = len(text) - len(shared_end(text[start:], after))
    if _OPEN_TAG.search(text, start, stop) and (rest := _REST_OF_TAG.match(text, stop)):
        stop = rest.end()
    if after.strip() and not text[stop:].strip() and (last := _LAST_TAG.search(text, start, stop)):
        stop = last.start()  # another token ends a turn with calls
    return start, stop
