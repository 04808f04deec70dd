"""The console of the baker's commands."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from typing_extensions import override

from hearthd.text.control_characters import escape_controls


class _Console(Console):
    """Prints texts of models and files without their control characters."""

    @override
    def print(self, *objects: Any, **options: Any) -> None:
        texts = (escape_controls(each) if isinstance(each, str) else each for each in objects)
        super().print(*texts, **options)


def open_console(**options: Any) -> Console:
    """A Rich console with these options, which writes no escape codes if NO_COLOR is set.

    Rich itself leaves out the colors then, but still writes bold text and moves the cursor.
    """
    return _Console(force_terminal=False if os.environ.get("NO_COLOR") else None, **options)
