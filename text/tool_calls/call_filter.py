"""Find tool calls in a model's answer, while its text arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.text.text_overlap import overlap

if TYPE_CHECKING:
    from collections.abc import Collection

    from hearthd.text.tool_calls.call_format import CallFormat, ToolCall


class CallFilter:
    """Remove calls of the tools in `names` from text, with the white space around them.

    What looks like a call and is not one stays in the text: a malformed one, one of another tool,
    or one that is cut off. A format of None finds no calls.
    """

    def __init__(self, format_: CallFormat | None, names: Collection[str]) -> None:
        self._format = format_
        self._names = frozenset(names)
        self._held = ""
        self._inside = False
        self._space = ""  # white space before the current call
        self._began = False  # text that is not white space has been passed on
        self._after_call = False  # only white space has arrived since the last call
        self.count = 0

    def push(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """Add text; return the text and the calls that are final now."""
        return self._read(text, final=False)

    def flush(self) -> tuple[str, tuple[ToolCall, ...]]:
        """The rest of the text and of the calls."""
        passed, calls = self._read("", final=True)
        rest, self._held = self._held, ""
        return passed + ("" if self._after_call and not rest.strip() else rest), calls

    def _read(self, text: str, *, final: bool) -> tuple[str, tuple[ToolCall, ...]]:
        if self._format is None:
            return text, ()
        self._held += text
        passed = ""
        calls: list[ToolCall] = []
        while self._held:
            if not self._inside:
                passed += self._before_call(self._format)
                if not self._inside:
                    break
            parsed = self._format.parse(self._held, final=final)
            if parsed is None:
                break
            body, self._held = self._held[: parsed.length], self._held[parsed.length :]
            self._inside = False
            if parsed.calls and all(call.name in self._names for call in parsed.calls):
                calls += parsed.calls
                self.count += len(parsed.calls)
                self._after_call = True
            else:
                self._after_call, self._began = False, True
                passed += self._space + body
        return passed, tuple(calls)

    def _before_call(self, format_: CallFormat) -> str:
        """Remove and return the text before a call; the rest is a call, or could become one."""
        text = self._held.lstrip() if self._after_call else self._held
        starts = () if format_.only_first and self._began else format_.starts
        matches = [(at, start) for start in starts if (at := text.find(start)) >= 0]
        if format_.only_first:
            matches = [(at, start) for at, start in matches if not text[:at].strip()]
        end = min(matches)[0] if matches else len(text) - overlap(text, starts)
        passed = text[:end].rstrip()
        self._began = self._began or bool(passed)
        self._after_call = self._after_call and not passed
        if matches:
            self._inside, self._space, self._held = True, text[len(passed) : end], text[end:]
        else:
            self._held = text[len(passed) :]
        return passed
