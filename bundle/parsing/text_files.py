"""Text files that others made: UTF-8, with or without a byte order mark, with any line ends."""

from __future__ import annotations

import codecs
import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BYTE_ORDER_MARK = codecs.BOM_UTF8
MAX_BYTES = 1 << 28  # the largest tokenizer.json have 1 << 25
_PIECE = 1 << 20
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_bytes(path: Path) -> bytes:
    """The content of a file that is parsed in memory; raises OSError, also for a large one."""
    pieces, size = [], 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {MAX_BYTES} bytes", str(path))
    return b"".join(pieces)


def read_text(path: Path) -> str:
    r"""The text of a file, without a byte order mark and with \n as line ends.

    Raises OSError, or ValueError as `decode`.
    """
    return decode(read_bytes(path)).replace("\r\n", "\n").replace("\r", "\n")


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
