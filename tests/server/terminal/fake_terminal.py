"""`hearth generate|chat ARGUMENTS` on a fake model whose steps take 20 ms; no bundle is read."""

from __future__ import annotations

from typing import Any

from hearth.cli import main
from server.terminal import commands
from tests.server import fakes
from tests.server.templates import GEMMA


def _open(*_: Any, **__: Any) -> Any:
    return fakes.fake_service(fakes.gemma_like(), template=GEMMA, delay=0.02, context=128)


if __name__ == "__main__":
    vars(commands)["open_language_service"] = _open
    main()
