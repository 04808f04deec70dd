"""The entry points `hearth`, `bake` and `python -m hearthd`.

Until the command handles Ctrl-C, which takes imports of 50 ms, it ends the process without a
traceback.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from hearthd.cli import bake, main

__all__ = ["bake", "main"]

if __name__ == "__main__":
    main()
