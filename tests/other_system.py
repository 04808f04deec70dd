"""Make this process look to Hearth like one on macOS or Windows, as far as Python shows.

Modules that are imported afterwards find `sys`, `os` and others in a form that lacks what the other
system lacks. Modules that are loaded already, as those that Hearth imports, are not deceived. So
this says whether Hearth avoids what is missing. It says nothing of what those systems do.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import ctypes
import errno
import fcntl
import importlib
import mmap
import os
import platform
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from typing_extensions import override

ROOT = Path(__file__).parent.parent
PACKAGES = ("baker", "bundle", "hearthd", "models", "runtime", "sampling", "server", "text")
CLUSTER = ("server.cluster", "server.batch.ray_data")  # imports Ray, which is for Linux

_GLIBC = ("getauxval", "mallopt", "malloc_trim", "prctl", "renameat2", "syscall")
_NOT_ON_MACOS = {
    "os": "sched_ SCHED_ posix_fadvise POSIX_FADV_ waitid",
    "mmap": "MADV_HUGEPAGE",
    "socket": "TCP_INFO",
}
_NOT_ON_WINDOWS = {
    "os": "sched_ SCHED_ posix_fadvise POSIX_FADV_ waitid P_PID WEXITED WNOWAIT WNOHANG killpg "
    "fork getuid geteuid sysconf statvfs set_blocking getloadavg "
    "O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_NOCTTY",
    "mmap": "MADV_ MAP_ PROT_",
    "signal": "SIGHUP SIGKILL SIGUSR1 SIGUSR2 SIGALRM setitimer",
    "socket": "TCP_INFO AF_UNIX",
}
_HIDDEN_ON_WINDOWS = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
_AVX2 = 40  # PF_AVX2_INSTRUCTIONS_AVAILABLE
_MEMORY = 8 << 30


class Lacking(ModuleType):
    """A module or library without the names that begin with some words, and with other ones."""

    def __init__(self, module: Any, words: str, **others: Any) -> None:
        super().__init__("lacking")
        self.__dict__.update(_module=module, _words=tuple(words.split()), _others=others)

    @override
    def __getattr__(self, name: str) -> Any:
        if name in self._others:
            return self._others[name]
        if self._words and name.startswith(self._words):
            raise AttributeError(f"{self._module!r} has no attribute {name!r}")
        return getattr(self._module, name)

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


def modules() -> list[str]:
    """The modules of Hearth without the cluster's, as `hearthd.NAME`."""
    names = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            name = name.removesuffix(".__init__")
            if not name.startswith(CLUSTER) and not name.endswith("__main__"):
                names.append(name if package == "hearthd" else f"hearthd.{name}")
    return list(dict.fromkeys(names))


def imitate(system: str, machine: str) -> None:
    """From now on, imports find a `darwin` or `win32` on this machine, as the system names it."""
    _load_packages()
    others: dict[str, dict[str, Any]] = {"sys": {"platform": system}}
    if system == "darwin":
        lacking = _NOT_ON_MACOS
        others["ctypes"] = {"CDLL": _macos_library}
    else:
        lacking = _NOT_ON_WINDOWS
        others |= _windows()
        sys.modules.update(dict.fromkeys(_HIDDEN_ON_WINDOWS))  # type: ignore[arg-type]
        sys.modules["msvcrt"] = _msvcrt()
        _change_libraries_for_windows()
    platform.system = lambda: {"darwin": "Darwin", "win32": "Windows"}[system]
    platform.machine = lambda: machine
    for name in sorted({*lacking, *others}):
        real = sys.modules[name]
        sys.modules[name] = Lacking(real, lacking.get(name, ""), **others.get(name, {}))


def _load_packages() -> None:
    """Import what Hearth imports of others, so that it runs as on Linux."""
    for module in modules():
        path = ROOT.joinpath(*module.removeprefix("hearthd.").split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        path = path if path.exists() else ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if not path.exists():
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [node.module] if node.module and not node.level else []
            for name in names:
                if name.split(".")[0] not in ("hearthd", "__future__"):
                    with contextlib.suppress(ModuleNotFoundError):  # an extra
                        package = importlib.import_module(name)
                        for alias in node.names:  # some packages import what is asked for
                            getattr(package, alias.name, None)


def _has_avx2() -> bool:
    return "avx2" in Path("/proc/cpuinfo").read_text(encoding="utf-8").split()


def _macos_library(name: None, **options: Any) -> Lacking:
    library = ctypes.CDLL(name, **options)
    return Lacking(library, " ".join(_GLIBC), sysctlbyname=_sysctlbyname)


def _sysctlbyname(name: bytes, value: Any, _size: Any, _new: None, _length: Any) -> int:
    known = {b"hw.optional.avx2_0": int(_has_avx2()), b"hw.optional.arm.FEAT_I8MM": 1}
    if name not in known:
        return -1
    value._obj.value = known[name]
    return 0


def _windows() -> dict[str, dict[str, Any]]:
    kernel = SimpleNamespace(
        IsProcessorFeaturePresent=lambda number: int(number == _AVX2 and _has_avx2()),
        GlobalMemoryStatusEx=_memory_status,
    )
    return {
        "ctypes": {"CDLL": _no_library, "windll": SimpleNamespace(kernel32=kernel)},
        "os": {"O_BINARY": 0, "open": _open, "fsync": _fsync},
        "select": {"select": _select_sockets},
        "signal": {"set_wakeup_fd": _set_wakeup_fd},
        "socket": {"SO_EXCLUSIVEADDRUSE": socket.SO_REUSEADDR},
    }


def _no_library(name: object, **_: Any) -> Any:
    raise TypeError(f"argument of type {type(name).__name__!r} is not iterable")


def _memory_status(status: Any) -> int:
    assert status._obj[0] == 64, "the length of MEMORYSTATUSEX"
    status._obj[1] = _MEMORY
    return 1


def _open(path: Any, flags: int, mode: int = 0o777) -> int:
    if Path(path).is_dir():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return os.open(path, flags, mode)


def _fsync(descriptor: int) -> None:
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    os.fsync(descriptor)


def _set_wakeup_fd(descriptor: int) -> int:
    os.set_blocking(descriptor, False)  # Windows does not require it
    return signal.set_wakeup_fd(descriptor)


def _select_sockets(*_: Any) -> None:
    raise OSError("an operation was attempted on something that is not a socket")


def _msvcrt() -> ModuleType:
    module = ModuleType("msvcrt")

    def locking(descriptor: int, _mode: int, _count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None

    module.__dict__.update(locking=locking, LK_NBLCK=2)
    return module


def _change_libraries_for_windows() -> None:
    """Processes, signals, names and text files as Windows has them, in the standard library."""
    popen, rename, write_text = subprocess.Popen.__init__, Path.rename, Path.write_text

    def start(self: Any, *arguments: Any, **options: Any) -> None:
        assert not {"preexec_fn", "process_group"} & set(options), "not on Windows"
        options.pop("creationflags", None)
        popen(self, *arguments, **options)

    def move(self: Path, target: Path) -> Path:
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        return rename(self, target)

    def write(self: Path, data: str, encoding: Any = None, errors: Any = None, **n: Any) -> int:
        return write_text(self, data, encoding, errors, **{"newline": "\r\n", **n})

    def refuse(*_: Any) -> None:
        raise NotImplementedError

    for owner, name, changed in (
        (subprocess.Popen, "__init__", start),
        (subprocess, "CREATE_NEW_PROCESS_GROUP", 0x200),
        (Path, "rename", move),
        (Path, "write_text", write),
        (asyncio, "ProactorEventLoop", asyncio.SelectorEventLoop),
        (asyncio.SelectorEventLoop, "add_signal_handler", refuse),
    ):
        setattr(owner, name, changed)


_LOADED = (mmap, select, signal)  # `imitate` finds them in sys.modules
