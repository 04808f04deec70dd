"""Start the processes that decode files of requests."""

from __future__ import annotations

import subprocess
from typing import IO, TYPE_CHECKING

from hearthd.server.errors import DecoderNotStarted

if TYPE_CHECKING:
    from collections.abc import Sequence


def start_decoder(
    command: Sequence[str], *, stdin: int, stderr: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """A process, from whose stdout what it decodes is read; raises DecoderNotStarted."""
    try:
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr)
    except OSError as error:  # the memory, the processes or the open files are at their limit
        raise DecoderNotStarted(
            f"the process that decodes a file cannot be started: {error.strerror}; retry later"
        ) from error
