"""Files that are written completely or not at all."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from hearthd.server.complete_file import write_completely

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    """As root, /dev/null would be replaced by a file otherwise."""
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_completely(pipe, "text")
    assert pipe.is_fifo()
    reader.join()
    assert read == ["text"]
    assert [*tmp_path.iterdir()] == [pipe]
