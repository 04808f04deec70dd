"""Text files that others made: UTF-8, with or without a byte order mark, with any line ends."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BYTE_ORDER_MARK = codecs.BOM_UTF8
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_text(path: Path) -> str:
    r"""The text of a file, without a byte order mark and with \n as line ends.

    Raises OSError, or ValueError as `decode`.
    """
    return decode(path.read_bytes()).replace("\r\n", "\n").replace("\r", "\n")


def reason(error: Exception) -> str:
    """Why a file cannot be read or written, without the number and the path of an OSError."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def decode(data: bytes) -> str:
    """The text of UTF-8 bytes, without a byte order mark; raises ValueError for other bytes."""
    if data.startswith(_UTF_16) or b"\0" in data:
        raise ValueError(
            "it is UTF-16 text or binary, expected UTF-8 text; in PowerShell, write it with "
            "`Out-File -Encoding utf8` in place of `>`"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: {error}") from error
