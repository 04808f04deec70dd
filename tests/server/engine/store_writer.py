"""A process that writes blocks to a prefix store until it is killed.

Run as `python -m tests.server.engine.store_writer FOLDER`; prints a line when the first one is
written.
"""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from tests.server.engine.test_prefix_store import BUNDLE, block


def main() -> None:
    """Write for ever."""
    store = PrefixStore(Path(sys.argv[1]), bundle=BUNDLE, limit_bytes=2**40)
    for number in itertools.count():
        key, rows = block(number)
        store.save(key, rows)
        while store._waiting_bytes:  # what the disk cannot take in time would be dropped
            time.sleep(0.0005)
        if number == 20:
            sys.stdout.write("writing\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
