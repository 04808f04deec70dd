"""A program that IREE has loaded, and its end before Python's.

IREE signals that a call is complete, and then a worker releases what the call used. The last
release of a module calls Python, to free its code; a thread that returns from a call does, too.
Python before 3.14 ends a thread that wants to run Python code while the interpreter finalizes, by
unwinding its stack. That ends the process, as the stack has C++ functions that cannot be unwound
(docs/iree-reports.md). So an exit handler, which runs before Python finalizes, lets no call begin,
waits for those that run, and waits until IREE has destroyed every module.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import iree.runtime as rt
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

# IREE's alignment of buffers, in bytes.
ALIGNMENT = 64
# The most seconds that the exit handler waits for calls, and for releases. It is over sooner unless
# a call is longer, or something outside Hearth has a reference to a module.
_MAX_CALL, _MAX_RELEASE = 60.0, 10.0

_programs: WeakSet[LoadedProgram] = WeakSet()
_modules: set[int] = set()  # those that IREE has not destroyed
_numbers = count()
_turn = threading.Condition()
_callers: set[int] = set()  # threads in a call
_ended = False


class LoadedProgram:
    """A compiled program, and the context that its functions run in."""

    def __init__(self, code: bytes, *imports: rt.VmModule, instance: rt.VmInstance) -> None:
        """Load code that calls the functions of other modules; raises RuntimeError, ValueError."""
        self._module: Any = None
        self._context: Any = None
        _programs.add(self)
        with calls_iree():
            self._module = _load(instance, code)
            self._context = rt.VmContext(instance, [*imports, self._module])

    def function(self, name: str) -> rt.VmFunction | None:
        """The function of this name."""
        return self._module.lookup_function(name)

    def call(
        self, function: rt.VmFunction, inputs: rt.VmVariantList, outputs: rt.VmVariantList
    ) -> None:
        """Run a function, and append its results to `outputs`."""
        with calls_iree():
            self._context.invoke(function, inputs, outputs)

    def unload(self) -> None:
        """Release the module and the context; no call may follow."""
        self._module = self._context = None


def _load(instance: rt.VmInstance, code: bytes) -> rt.VmModule:
    """As VmModule.copy_buffer, which does not say when IREE has destroyed the module.

    The exit handler sees that it has only when the worker that did so is out of Python: neither
    this callback, which is not Python code, nor freeing NumPy's memory lets another thread run.
    """
    number = next(_numbers)
    _modules.add(number)
    try:
        return rt.VmModule.wrap_buffer(
            instance, _aligned(code), destroy_callback=partial(_modules.discard, number)
        )
    except BaseException:
        _modules.discard(number)
        raise


def _aligned(code: bytes) -> NDArray[np.uint8]:
    """A copy of bytes at an address that is a multiple of ALIGNMENT."""
    memory = np.empty(len(code) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    aligned = memory[start : start + len(code)]
    aligned[:] = np.frombuffer(code, np.uint8)
    return aligned


@contextlib.contextmanager
def calls_iree() -> Iterator[None]:
    """Call functions of IREE that let other threads run Python code meanwhile. Not reentrant.

    A thread that comes after the exit handler waits here for ever.
    """
    thread = threading.get_ident()
    with _turn:
        while _ended:
            if threading.current_thread() is threading.main_thread():
                raise RuntimeError("the interpreter exits: IREE can neither load nor call programs")
            _turn.wait()
        _callers.add(thread)
    try:
        yield
    finally:
        with _turn:
            _callers.discard(thread)
            _turn.notify_all()


# Objects that such a thread keeps are not a leak.
rt._binding.disable_leak_checker()


@atexit.register
def _end() -> None:
    global _ended
    with _turn:
        _ended = True
        _callers.discard(threading.get_ident())  # by an exception of a signal handler
        _turn.wait_for(lambda: not _callers, _MAX_CALL)
    # The device stays: deleting it waits for its threads, and one may wait for this one.
    for program in list(_programs):
        program.unload()
    deadline = time.monotonic() + _MAX_RELEASE
    while _modules and time.monotonic() < deadline:
        time.sleep(0.001)
