"""A server process whose steps take 50 ms, for the tests of signals.

A SIGHUP has it serve another bundle; for a second one there is none.
Run as `python -m tests.server.slow_server [CERTIFICATE KEY]`; prints its address when it is ready.
"""

from __future__ import annotations

import sys
from pathlib import Path

from server.app import create_app
from server.process.draining_server import DrainingServer
from server.process.listening import Tls, bind, url
from tests.server import fakes


def main() -> None:
    """Serve until a signal comes."""
    service = fakes.fake_service(fakes.gemma_like(), delay=0.05)
    bound = bind("127.0.0.1", 0)
    files = [Path(name) for name in sys.argv[1:]]
    tls = Tls(certificate=files[0], key=files[1]) if files else None

    def announce() -> None:
        sys.stdout.write(url(bound, tls) + "\n")
        sys.stdout.flush()

    pool = fakes.pool(service, fakes.fake_service(fakes.gemma_like(), spread=2.0))
    DrainingServer(create_app(pool, on_start=announce), pool, tls=tls).serve_on(bound)


if __name__ == "__main__":
    main()
