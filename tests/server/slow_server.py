"""A server process whose steps take 50 ms, for the tests of signals.

A SIGHUP has it serve another bundle; for a second one there is none.
Run as `python -m tests.server.slow_server [--client-timeout S] [CERTIFICATE KEY]`; prints its
address when it is ready.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearthd.server.app import create_app
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.listening import Tls, bind, url
from tests.server import fakes


def main() -> None:
    """Serve until a signal comes."""
    options = argparse.ArgumentParser()
    options.add_argument("--client-timeout", type=float, default=30)
    options.add_argument("files", type=Path, nargs="*")
    given = options.parse_args()
    service = fakes.fake_service(fakes.gemma_like(), context=5000, delay=0.05)
    bound = bind("127.0.0.1", 0)
    tls = Tls(certificate=given.files[0], key=given.files[1]) if given.files else None

    def announce() -> None:
        sys.stdout.write(url(bound, tls) + "\n")
        sys.stdout.flush()

    pool = fakes.pool(service, fakes.fake_service(fakes.gemma_like(), spread=2.0))
    app = create_app(pool, on_start=announce)
    DrainingServer(app, pool, tls=tls, client_timeout=given.client_timeout).serve_on(bound)


if __name__ == "__main__":
    main()
