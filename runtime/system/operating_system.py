"""The differences of Linux, macOS and Windows. Each function says what it does on each system.

No other module imports fcntl, msvcrt or termios, or asks which system this is, except
cpu_features.py and resource_limits.py. Hearth is developed on Linux. The code for macOS and Windows
is type-checked for them (`mypy --platform`), and runs in tests/test_other_systems.py on a Linux
that lacks the same functions.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import select
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl
    import resource
    import termios

if TYPE_CHECKING:
    import socket
    import subprocess
    from asyncio.trsock import TransportSocket
    from collections.abc import Callable
    from pathlib import Path

# Whether `lock` locks a folder itself, and not a file that stands for it and stays.
LOCKS_FOLDERS = sys.platform != "win32"
_LOCK_OFFSET = 2**31 - 2  # on Windows: the last byte that msvcrt can lock, which no file reaches
_LOCK_POLL = 0.1  # seconds
_MAP_FIXED = 0x10  # of mmap(2), on Linux and macOS
_FAILED = ctypes.c_void_p(-1).value
# In Linux's struct tcp_info: where tcpi_bytes_acked is, and enough bytes to read it.
_BYTES_ACKED, _TCP_INFO_BYTES = 120, 128
# prctl(2): the signal that a process gets when the thread that started it ends.
_PR_SET_PDEATHSIG = 1

IS_LINUX = sys.platform == "linux"  # for kernels that call it: product/asynchronous_reads.h
_LOW_PRIORITY = 10  # of setpriority(2), which knows -20 to 19

# The signal that ends a process at once, and the signal that reloads a server, if there is one.
HANGUP: signal.Signals | None
if sys.platform == "win32":
    KILL, HANGUP = signal.SIGTERM, None
else:
    KILL, HANGUP = signal.SIGKILL, signal.SIGHUP


def c_function(name: str) -> Any:
    """A function of the C library, which keeps errno for ctypes; None if it has no such function.

    On Windows, Python has no library of the process: always None.
    """
    if sys.platform == "win32":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), name, None)


_prctl = c_function("prctl")  # loaded before a fork


# Files


def open_folder(path: Path, *, follow: bool = True) -> int:
    """A descriptor of a folder, for `lock`. Raises OSError, also for a link unless `follow`.

    On Windows, which cannot lock a folder, it is one of a file in the folder for temporary files.
    """
    if sys.platform != "win32":
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | (0 if follow else os.O_NOFOLLOW))
    if not path.is_dir() or (path.is_symlink() and not follow):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    import hashlib
    from tempfile import gettempdir

    digest = hashlib.sha256(os.path.normcase(path.resolve()).encode()).hexdigest()
    return os.open(f"{gettempdir()}/hearth-{digest}.lock", os.O_RDWR | os.O_CREAT)


def lock(descriptor: int, *, wait: bool = False) -> None:
    """Lock an open file or folder for this descriptor alone, until it is closed.

    Raises BlockingIOError if another descriptor has it and not `wait`, and OSError if the file
    system has no locks.
    """
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    else:
        os.lseek(descriptor, _LOCK_OFFSET, os.SEEK_SET)
        while True:
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except PermissionError as error:
                if not wait:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
                time.sleep(_LOCK_POLL)
            else:
                return


def sync(path: Path, *, cached: bool = True) -> None:
    """Flush a file, or the names in a folder, to disk. Windows does so for folders itself.

    Unless `cached`, the system may then drop the file from its cache.
    """
    if sys.platform == "win32":
        if path.is_dir():
            return
        opened = os.open(path, os.O_RDWR)  # a file open for reading cannot be flushed
    else:
        opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
        if not cached:
            drop_cached(opened)
    finally:
        os.close(opened)


def drop_cached(descriptor: int, size: int = 0) -> None:
    """Let the system drop the start of a file from its cache: all for 0. Only Linux does."""
    if sys.platform == "linux":
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_DONTNEED)


def pages_read() -> int:
    """How often this process has waited for a page from the disk since its start; 0 on Windows."""
    if sys.platform == "win32":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def open_distrusted(path: Path) -> int:
    """A descriptor for reading a file. Raises OSError, for a link too; does not wait for a pipe."""
    if sys.platform != "win32":
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, os.O_RDONLY | os.O_BINARY)


def open_to_append(path: Path) -> int:
    """A descriptor for reading a file, which is created if needed, and for adding bytes at its end.

    Windows would change the ends of lines if it was not told that they are bytes.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    if sys.platform == "win32":
        flags |= os.O_BINARY
    return os.open(path, flags, 0o666)


# Memory


def physical_memory() -> int:
    """The memory of this machine in bytes."""
    if sys.platform != "win32":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    status = (ctypes.c_uint64 * 8)(ctypes.sizeof(ctypes.c_uint64 * 8))  # MEMORYSTATUSEX
    if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise ctypes.WinError()
    return int(status[1])


def new_pages(size: int, *, huge: bool = False) -> mmap.mmap:
    """Pages of zeros, which take no memory until they are written; huge ones if Linux has them.

    On Linux, a forked process does not have them. If it did, the process that writes a page first
    would get another one, and a direct read that runs meanwhile could be into the other (open(2)).
    """
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        pages.madvise(mmap.MADV_DONTFORK)
    if sys.platform == "linux" and huge:
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def advise_pages(address: int, size: int, advice: str) -> None:
    """Give Linux or macOS advice on pages, such as MADV_DONTNEED, if it has this one."""
    if sys.platform != "win32" and hasattr(mmap, advice):
        _typed("madvise", ctypes.c_int)(address, size, getattr(mmap, advice))


def replace_by_memory(address: int, size: int) -> bool:
    """Replace mapped pages by writable ones of zeros; raises OSError. Windows cannot: False."""
    if sys.platform == "win32":
        return False
    map_pages = _typed("mmap", ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    map_pages.restype = ctypes.c_void_p
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if map_pages(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True


def protect_pages(address: int, size: int) -> None:
    """Make pages that `replace_by_memory` returned read-only."""
    if sys.platform != "win32":
        _typed("mprotect", ctypes.c_int)(address, size, mmap.PROT_READ)


def _typed(name: str, *arguments: Any) -> Any:
    """A function of the C library of an address, a size and arguments of these types."""
    function = c_function(name)
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *arguments)
    return function


# Processors


def sysctl(name: str) -> int:
    """A number of macOS's sysctlbyname(3); 0 if there is none with this name, as elsewhere."""
    function = c_function("sysctlbyname")
    if function is None:
        return 0
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    references = ctypes.byref(value), ctypes.byref(size)
    failed = function(name.encode(), *references, None, ctypes.c_size_t(0))
    return 0 if failed else value.value


def processor_feature(number: int) -> bool:
    """What Windows's IsProcessorFeaturePresent says; False on other systems."""
    if sys.platform == "win32":
        return bool(ctypes.windll.kernel32.IsProcessorFeaturePresent(number))
    return False


# Processes


def apart_from_terminal() -> dict[str, Any]:
    """Options of Popen for a child that Ctrl-C in a terminal does not reach."""
    if sys.platform == "win32":
        from subprocess import CREATE_NEW_PROCESS_GROUP  # a quick test imports this module

        return {"creationflags": CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def ending_with_this() -> dict[str, Any]:
    """Options of Popen for a child that ends, on Linux, with this process, even by SIGKILL.

    The end of the thread that starts the child kills it, too. Before the program starts, a copy of
    this process runs Python. Meanwhile no other thread may multiply in NumPy with several threads:
    OpenBLAS ends its threads before a process is copied, and the product waits for them for ever.
    """
    parent = os.getpid()
    return {"preexec_fn": lambda: end_with(parent)} if _prctl else {}


def end_with(parent: int) -> None:
    """Let this process end, on Linux, when its parent does."""
    if not _prctl:
        return
    _prctl(_PR_SET_PDEATHSIG, KILL)
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(1)


def kill_children(pid: int) -> None:
    """Kill a child that is `apart_from_terminal`, with the processes that it started.

    On Windows those run on: `end_child` ends only the child. Raises ProcessLookupError.
    """
    if sys.platform != "win32":
        os.killpg(pid, KILL)


def end_child(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a child and wait until it has ended; raises OSError if it already has.

    Another thread may stand still with the lock of Popen.wait. Windows has no such lock, and no
    signals between processes: it ends the child at once.
    """
    if sys.platform == "win32":
        process.terminate()
        process.wait()
        return
    os.kill(process.pid, number)
    if sys.platform == "linux":
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:  # Python before 3.13 has no waitid on macOS
        _, status = os.waitpid(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)


def lower_priority(child: int) -> None:
    """Give a child process a low priority. On Windows, it keeps its own."""
    if sys.platform != "win32":
        os.setpriority(os.PRIO_PROCESS, child, _LOW_PRIORITY)


# Terminals


def terminal_modes() -> Callable[[], None]:
    """A function that sets the terminal on stdin, if it is one, as it is now. None on Windows."""
    if sys.platform != "win32" and os.isatty(0):
        return functools.partial(_set_modes, termios.tcgetattr(0))
    return lambda: None


def _set_modes(modes: list[Any]) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, modes)


def has_terminal() -> bool:
    """Whether the process still has the terminal that it was started from; False on Windows."""
    if sys.platform == "win32":
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def wake_pipe() -> tuple[int, int]:
    """A pipe for signal.set_wakeup_fd: the ends to read and, without blocking, to write."""
    reading, writing = os.pipe()
    if sys.platform != "win32":  # where Python before 3.12 cannot say so
        os.set_blocking(writing, False)
    return reading, writing


def wait_readable(descriptor: int, seconds: float) -> None:
    """Wait until a pipe can be read, at most some seconds. Windows waits for sockets alone."""
    if sys.platform == "win32":
        time.sleep(seconds)
    else:
        select.select([descriptor], [], [], seconds)


# Sockets


def reuse_address(bound: socket.socket) -> None:
    """Let a server bind to the port that another has just closed; on Windows it may without this.

    There, SO_REUSEADDR would let two servers listen on one port.
    """
    import socket  # not at the start of every command

    if sys.platform == "win32":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
    else:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def sent_bytes(connection: socket.socket | TransportSocket) -> tuple[int, int] | None:
    """Bytes that the other end of a TCP connection has acknowledged, and bytes that it has not.

    None where the system does not say: macOS, Windows and old kernels. Raises OSError unless TCP.
    """
    if sys.platform != "linux":
        return None
    import socket

    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    waiting = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    if len(info) < _BYTES_ACKED + 8:
        return None
    acknowledged: int = struct.unpack_from("=Q", info, _BYTES_ACKED)[0]
    return acknowledged, int.from_bytes(waiting, sys.byteorder)
