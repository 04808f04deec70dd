"""`hearth generate|chat ARGUMENTS` on a fake model whose steps take 20 ms; no bundle is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.cli import main
from hearthd.server.services import language_service
from hearthd.server.terminal import commands, message_reader
from tests.server import fakes
from tests.server.templates import GEMMA

if TYPE_CHECKING:
    from hearthd.server.services.engine_options import EngineOptions


def _open(*_: Any, options: EngineOptions, **__: Any) -> Any:
    return fakes.fake_service(
        fakes.gemma_like(), template=GEMMA, delay=0.02, context=128, overflow=options.overflow
    )


def fake() -> None:
    """Replace the model of the commands in this process."""
    vars(commands)["find_or_bake"] = lambda model, *_, **__: Path(model)
    vars(language_service)["open_language_service"] = _open
    if "FAKE_LIBEDIT" in os.environ:
        import readline

        readline.parse_and_bind("set enable-bracketed-paste off")
        vars(message_reader)["_bracket_pastes"] = lambda _: False


if __name__ == "__main__":
    fake()
    main()
