"""`hearth serve` with a fake runtime, in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.server.app import create_app
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.listening import bind, url
from tests.server import fakes

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.cluster.fake_bundles import FakeBundles


def serve(bundles: FakeBundles, ready: Connection) -> None:
    """Serve until SIGTERM; send the address through `ready`."""
    pool = fakes.pool(bundles.open_model(bundles.describe()))
    bound = bind("127.0.0.1", 0)
    app = create_app(pool, on_start=lambda: ready.send(url(bound)))
    DrainingServer(app, pool).serve_on(bound)
