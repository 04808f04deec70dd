"""Weights of the Hugging Face Hub, for every command that takes a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.baker.hub.download import download
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.runtime.system.operating_system import physical_memory
from hearthd.server.process.memory_limit import memory_limit

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.baker.progress import Progress


def pulled(
    reference: str, progress: Progress | None = None, *, force: bool = False, images: bool = True
) -> Path:
    """The weights of a reference, which are downloaded if this process can serve them.

    `force` downloads them in any case, and without `images` a projector of images is left out. The
    progress is shown on stderr by default. Raises BadReference, HubError or OSError.
    """
    limit, memory = memory_limit(None, None), physical_memory()
    return download(
        reference,
        progress or TerminalProgress(open_console(stderr=True)),
        max_memory=memory if limit is None else min(memory, limit.bytes),
        force=force,
        images=images,
    )
