"""The pages that people read, and the examples in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
)
_BLOCK = re.compile(r"(?:<!-- run(?:: (\w+))? -->\n)?^( *)```(\w+)\n(.*?)^ *```", re.DOTALL | re.M)


class Example(NamedTuple):
    """A fenced block. `<!-- run -->` above it marks it; `<!-- run: SERVER -->` names a server."""

    page: str
    line: int
    text: str
    marked: bool
    server: str | None


def examples(language: str) -> list[Example]:
    """The blocks of a language on every page, in order."""
    return [
        Example(
            page=page.relative_to(ROOT).as_posix(),
            line=text.count("\n", 0, match.start(3)) + 1,
            text=match[4],
            marked=match[0].startswith("<!--"),
            server=match[1],
        )
        for page in PAGES
        for text in [page.read_text(encoding="utf-8")]
        for match in _BLOCK.finditer(text)
        if match[3] == language
    ]


def commands(example: Example) -> Iterator[list[str]]:
    """The commands of a shell block, each as its words."""
    for line in _lines(example.text.replace("\\\n", " ")):
        words = shlex.split(line, comments=True)
        while "<" in words:  # and the file that is read
            at = words.index("<")
            del words[at : at + 2]
        while words:
            end = next((i for i, word in enumerate(words) if word in ("&&", "&", "|")), len(words))
            if words[:end]:
                yield words[:end]
            words = words[end + 1 :]


def _lines(text: str) -> Iterator[str]:
    """The lines of a shell text; a line break inside quotes does not end one."""
    pending = ""
    for line in text.splitlines():
        pending += f"{line}\n"
        if pending.count("'") % 2 == 0:
            yield pending
            pending = ""
    assert not pending, f"a quote is not closed: {pending}"
