"""`generate` and `chat` on a fake model whose steps take 20 ms, for the tests of the terminal.

Run as `python -m tests.server.terminal.fake_terminal generate|chat ARGUMENTS`; no bundle is read.
"""

from __future__ import annotations

import sys
from typing import Any

from server.terminal import commands as cli
from tests.server import fakes
from tests.server.templates import GEMMA


def _open(*_: Any, **__: Any) -> Any:
    return fakes.fake_service(fakes.gemma_like(), template=GEMMA, delay=0.02, context=128)


def main() -> None:
    """Run the command that the first argument names."""
    name = sys.argv.pop(1)
    vars(cli)["open_service"] = _open
    getattr(cli, name)()


if __name__ == "__main__":
    main()
