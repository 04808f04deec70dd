"""The file of earlier messages, which only the user can read: one JSON text per line."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

ENVIRONMENT = "HEARTH_HISTORY"
MAX_ENTRIES = 1000
_MODE = 0o600
_MAX_BAD_LINES = 16  # that were cut; a file with more is not a history, and is not shortened


def history_file() -> Path | None:
    """The file of $HEARTH_HISTORY, or the default one in the user's state folder.

    None if the variable is empty, or if the home folder of the user is not known.
    """
    named = os.environ.get(ENVIRONMENT)
    if named is not None:
        return Path(named).expanduser() if named else None
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # as the specification of XDG says
        try:
            state = Path.home() / ".local/state"
        except RuntimeError:
            return None
    return state / "hearth" / "chat-history"


def read_history(path: Path) -> list[str]:
    """The latest messages, oldest first; none if there is no file. Shortens a long file.

    Skips lines that are not JSON texts. Raises OSError.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    entries = [entry for line in lines if (entry := _entry(line))]
    if len(lines) > 2 * MAX_ENTRIES and len(lines) - len(entries) <= _MAX_BAD_LINES:
        shorter = path.with_name(f"{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            _append(shorter, entries[-MAX_ENTRIES:])
            shorter.replace(path)
    return entries[-MAX_ENTRIES:]


def append_history(path: Path, text: str) -> None:
    """Add a message to the file, which is created if it does not exist; raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _append(path, [text])


def _append(path: Path, entries: list[str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(entry)}\n" for entry in entries)


def _entry(line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    return entry if isinstance(entry, str) else ""
