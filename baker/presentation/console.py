"""The console of the baker's commands."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console


def open_console(**options: Any) -> Console:
    """A Rich console with these options, which writes no escape codes if NO_COLOR is set.

    Rich itself leaves out the colors then, but still writes bold text and moves the cursor.
    """
    return Console(force_terminal=False if os.environ.get("NO_COLOR") else None, **options)
