"""A server process whose steps take 50 ms, for the tests of signals.

A SIGHUP has it serve another bundle; for a second one there is none.
Run as `python -m tests.server.slow_server`; prints its address when it is ready.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from server.app import create_app
from server.process.draining_server import DrainingServer
from server.process.listening import bind, url
from tests.server import fakes

if TYPE_CHECKING:
    from runtime.self_test import Verdict


def main() -> None:
    """Serve until a signal comes."""
    service = fakes.fake_service(fakes.gemma_like(), delay=0.05)
    bound = bind("127.0.0.1", 0)

    def announce(_: Verdict) -> None:
        sys.stdout.write(url(bound) + "\n")
        sys.stdout.flush()

    deployment = fakes.deployed(service, fakes.fake_service(fakes.gemma_like(), spread=2.0))
    DrainingServer(create_app(deployment, on_verdict=announce), deployment).serve_on(bound)


if __name__ == "__main__":
    main()
