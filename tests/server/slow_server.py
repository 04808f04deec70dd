"""A server process whose steps take 50 ms, for the tests of signals.

A SIGHUP has it serve another bundle; for a second one there is none.
Run as `python -m tests.server.slow_server`; prints its address when it is ready.
"""

from __future__ import annotations

import sys

from server.app import create_app
from server.process.draining_server import DrainingServer
from server.process.listening import bind, url
from tests.server import fakes


def main() -> None:
    """Serve until a signal comes."""
    service = fakes.fake_service(fakes.gemma_like(), delay=0.05)
    bound = bind("127.0.0.1", 0)

    def announce() -> None:
        sys.stdout.write(url(bound) + "\n")
        sys.stdout.flush()

    pool = fakes.pool(service, fakes.fake_service(fakes.gemma_like(), spread=2.0))
    DrainingServer(create_app(pool, on_start=announce), pool).serve_on(bound)


if __name__ == "__main__":
    main()
