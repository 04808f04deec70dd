"""Divide an answer into the model's reasoning and its text."""

START, END = "<think>", "</think>"


class ThinkingFilter:
    """Text between START and END at the beginning of an answer is reasoning.

    White space around both is dropped. The division of the text into pieces makes no difference.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._state = "start" if enabled else "text"
        self._held = ""
        self._begun = False  # whether the current part has passed on text

    def push(self, text: str) -> tuple[str, str]:
        """Add text; return the reasoning and the text that are final now."""
        self._held += text
        thinking = ""
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(START):
                self._state, self._held = "thinking", begun[len(START) :]
            elif not START.startswith(begun):
                self._state = "text"
                self._begun = True  # an answer without reasoning keeps its white space
        if self._state == "thinking":
            body, ended, rest = self._held.partition(END)
            if ended:
                thinking = self._trimmed(body.rstrip())
                self._state, self._held, self._begun = "text", rest, False
            else:
                keep = _safe(body)
                thinking, self._held = self._trimmed(body[:keep]), body[keep:]
        if self._state != "text":
            return thinking, ""
        passed, self._held = self._trimmed(self._held), ""
        return thinking, passed

    def flush(self) -> tuple[str, str]:
        """The reasoning and the text that were held because they could have become a mark."""
        held, self._held = self._held, ""
        return (self._trimmed(held.rstrip()), "") if self._state == "thinking" else ("", held)

    def _trimmed(self, text: str) -> str:
        """The text without white space at the beginning of its part."""
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        return text


def _safe(text: str) -> int:
    """How many characters can be neither a part of END nor white space before it."""
    for length in range(min(len(END) - 1, len(text)), 0, -1):
        if END.startswith(text[-length:]):
            return len(text[:-length].rstrip())
    return len(text.rstrip())
