"""For gdb: hold a worker of IREE for some seconds between completing a call and releasing it.

gdb -q -batch -x hold_worker.py --args python exit_after_call.py

A busy machine holds a worker there, too, but rarely. OFFSET is the address of the instruction
behind `iree_hal_semaphore_list_signal` of a queue operation in
_runtime.cpython-311-x86_64-linux-gnu.so of iree-base-runtime 3.13.0; HOLD is in seconds.
"""

import os
import time

import gdb

OFFSET = int(os.environ.get("OFFSET", "0x1c9902"), 16)
HOLD = float(os.environ.get("HOLD", "8"))


class Held(gdb.Breakpoint):  # type: ignore[misc]
    """The instruction at which a thread is held."""

    def stop(self) -> bool:
        """Called when a thread arrives; the others go on, in non-stop mode."""
        time.sleep(HOLD)
        return False


class FirstWorker(gdb.Breakpoint):  # type: ignore[misc]
    """A system call of a worker: IREE's library is loaded, and its address is known."""

    found = False

    def stop(self) -> bool:
        """Called when any thread arrives."""
        name = gdb.selected_thread().name or ""
        if not FirstWorker.found and name.startswith("iree-worker"):
            mappings = gdb.execute("info proc mappings", to_string=True).splitlines()
            library = next(line for line in mappings if "_runtime.cpython" in line)
            Held(f"*{int(library.split()[0], 16) + OFFSET}")
            FirstWorker.found = True
        return False


for setting in ("pagination off", "confirm off", "breakpoint pending on", "non-stop on"):
    gdb.execute(f"set {setting}")
FirstWorker("syscall")
gdb.execute("run")
for thread in gdb.selected_inferior().threads():
    if thread.is_stopped():
        thread.switch()
        gdb.execute("bt 40")
