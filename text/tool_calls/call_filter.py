"""Find tool calls in a model's answer, while its text arrives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hearthd.text.text_overlap import overlap
from hearthd.text.tool_calls.arguments import JsonString, decoded
from hearthd.text.tool_calls.call_format import CallDelta, IncompleteText, match

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.text.tool_calls.arguments import ArgumentReader
    from hearthd.text.tool_calls.call_format import CallFormat, Elements, Match


@dataclass(kw_only=True)
class Passed:
    """Text of an answer, and what of the calls follows it."""

    text: str = ""
    calls: list[CallDelta] = field(default_factory=list)


class CallFilter:
    """Remove calls of tools from text, with the white space around them.

    A call is reported from its name on, so its arguments arrive as the model writes them. What
    looks like a call and is not one stays in the text: another form, or another tool. Of a call
    that is cut off, what was reported remains; nothing of it becomes text. A format of None finds
    no calls.

    schemas       the JSON Schemas of the arguments of the tools, by name
    has_response  whether the format's `response` stands for an answer without calls
    only_calls    whether the answer has no text
    opened        the beginning of a call that the prompt ends with; never text of the answer
    """

    def __init__(
        self,
        format_: CallFormat | None,
        schemas: Mapping[str, Mapping[str, Any]],
        *,
        has_response: bool = False,
        only_calls: bool = False,
        opened: str = "",
    ) -> None:
        self._format = format_
        self._schemas = schemas
        self._name = ""  # of the tool in the current call
        self._has_response = has_response
        self._only_calls = only_calls
        self._held = self._opened = opened
        self._space = ""  # white space before the current call
        self._began = False  # text that is not white space has been passed on
        self._after_call = False  # only white space has arrived since the last call
        self._state: Callable[[CallFormat], bool] = self._outside
        self._arguments: ArgumentReader | None = None
        self._response = JsonString()
        self._passed = [Passed()]
        self.count = 0  # calls, the open one included
        self.open = False  # whether the arguments of a call are incomplete

    def push(self, text: str) -> list[Passed]:
        """Add text; return the text and what of the calls is final now, at least one part."""
        if self._format is None:
            return [Passed(text=text)]
        self._held += text
        while self._held:
            try:
                if not self._state(self._format):
                    break
            except IncompleteText:
                break
        passed, self._passed = self._passed, [Passed()]
        return passed

    def flush(self, *, cut: bool = False) -> str:
        """The rest of the text, which was held back.

        If the answer was cut off, the beginning of a marker is a part of a call.
        """
        if self._format is None or self._only_calls:
            return ""
        rest, self._held = self._held.removeprefix(self._opened), ""
        if self._state == self._outside:
            if cut and (begun := overlap(rest, self._format.starts)):
                rest = rest[:-begun].rstrip()
            return "" if self._after_call and not rest.strip() else rest
        # What triggers the grammar of calls is the beginning of a call, not text.
        began = self._state == self._group and not re.match(
            self._format.trigger, rest.encode(errors="replace")
        )
        return self._space + rest if began and not self._has_response else ""

    def _outside(self, format_: CallFormat) -> bool:
        """Pass on the text before a call; the rest is a call, or could become one."""
        text = self._held.lstrip() if self._after_call else self._held
        starts = () if format_.only_first and self._began else format_.starts
        matches = [(at, start) for start in starts if (at := text.find(start)) >= 0]
        if format_.only_first:
            matches = [(at, start) for at, start in matches if not text[:at].strip()]
        end = min(matches)[0] if matches else len(text) - overlap(text, starts)
        passed = text[:end].rstrip()
        self._pass(passed)
        if not matches:
            self._held = text[len(passed) :]
            return False
        self._space, self._held = text[len(passed) : end], text[end:]
        self._state = self._group
        return True

    def _pass(self, text: str) -> None:
        if text and not self._only_calls:
            if self._passed[-1].calls:
                self._passed.append(Passed())
            self._passed[-1].text += text
        self._began = self._began or bool(text)
        self._after_call = self._after_call and not text

    def _group(self, format_: CallFormat) -> bool:
        """Read the beginning of calls, up to the name of the first one."""
        marked = self._held.startswith(format_.marker)
        begin: Elements = (format_.marker,) if marked or not format_.optional_marker else ()
        forms = [(*begin, *head) for head in format_.heads]
        response = len(forms)
        if self._has_response and format_.response:
            forms.append(format_.response[0])
        form, found = self._match(*forms)
        if found and form == response:
            self._held, self._state = self._held[found.end :], self._inside_response
        elif found and found.name in self._schemas:
            self._begin_call(found)
        else:
            start = self._opened or (format_.marker if marked else self._held[:1])
            self._pass("" if self._opened else self._space + start)
            self._held, self._state = self._held[len(start) :], self._outside
        self._opened = ""
        return True

    def _match(self, *forms: Elements) -> tuple[int, Match | None]:
        """Find one of several forms; raises IncompleteText if more text decides."""
        incomplete = False
        for number, form in enumerate(forms):
            try:
                found = match(form, self._held)
            except IncompleteText:
                incomplete = True
                continue
            if found:
                return number, found
        if incomplete:
            raise IncompleteText
        return 0, None

    def _begin_call(self, found: Match) -> None:
        self._passed[-1].calls.append(CallDelta(index=self.count, name=found.name))
        self.count += 1
        self._name = found.name
        self.open = self._after_call = True
        self._held, self._state = self._held[found.end :], self._between
        self._arguments = None

    def _between(self, format_: CallFormat) -> bool:
        """Read what is between the name and the arguments."""
        found = match(format_.middle, self._held)
        if found is None or found.end == len(self._held):
            return False
        self._held = self._held[found.end :]
        self._arguments, self._state = format_.arguments(self._schemas[self._name]), self._inside
        return True

    def _inside(self, _format: CallFormat) -> bool:
        assert self._arguments is not None
        written = self._arguments.push(self._held)
        self._held = self._arguments.rest if self._arguments.ended else ""
        if written or self._arguments.ended:
            self._passed[-1].calls.append(
                CallDelta(index=self.count - 1, arguments=written, complete=self._arguments.ended)
            )
        if self._arguments.ended:
            self.open, self._state = False, self._after
        return self._arguments.ended

    def _after(self, format_: CallFormat) -> bool:
        """Read the end of a call: another one follows, or the end of them all."""
        forms = [(*format_.tail, *format_.closing)]
        if format_.separator is not None:
            forms.append((*format_.tail, *format_.separator, *format_.head))
        form, found = self._match(*forms)
        if found and form and found.name in self._schemas:
            self._begin_call(found)
            return True
        # Anything else is not a call: the grammar does not allow it.
        self._held = self._held[found.end :] if found and not form else self._held
        self._state = self._outside
        return True

    def _inside_response(self, _format: CallFormat) -> bool:
        if self._response.ended:
            self._held = ""
            return False
        self._pass(decoded(self._response.push(self._held)))
        self._held = ""
        return False
