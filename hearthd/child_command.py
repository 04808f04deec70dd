"""A command of Hearth that ends when the process that started it does: `PID COMMAND ARGUMENTS`.

A server does not arrange that for its child, since it multiplies in other threads meanwhile: see
`ending_with_this`.
"""

import sys

from hearthd.runtime.system.operating_system import end_with

if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))

    from hearthd.__main__ import main

    main()
