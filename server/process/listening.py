"""The sockets that the server listens on: their addresses, TLS files and number of connections.

An address is a network's, or `unix:PATH` for a socket in the file system.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hearthd.runtime.system.operating_system import reuse_address
from hearthd.runtime.system.resource_limits import raise_open_files

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNIX = "unix:"
_MAX_FILES = 2**16
_OTHER_FILES = 64  # open files of the process that are not connections, at most


class CannotListen(Exception):
    """The server cannot listen on the address, or the TLS files are not valid."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The files of a certificate chain and its private key, both PEM, and the context of both.

    Raises CannotListen if they cannot be read or do not belong together.
    """

    certificate: Path
    key: Path
    context: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        """Read the files; raises CannotListen."""
        for path in (self.certificate, self.key):
            if not path.is_file():
                raise CannotListen(f"cannot serve HTTPS: {path} does not exist")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            # Without a password, OpenSSL would ask for one in the terminal and stop the event loop.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise CannotListen(
                f"cannot serve HTTPS: {self.certificate} and {self.key} are not a certificate and "
                f"its private key in PEM format, which is not encrypted: {error}"
            ) from error
        object.__setattr__(self, "context", context)


def bind(host: str, port: int) -> socket.socket:
    """Create a socket bound to an address, not yet listening; raises CannotListen."""
    try:
        family, socket_type, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, socket_type, protocol)
        reuse_address(bound)
        bound.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotListen(
            f"cannot listen on {host} port {port}: {reason}; choose another --host or --port "
            "(--port 0 chooses a free one)"
        ) from error
    return bound


def bind_unix(path: Path) -> socket.socket:
    """As `bind`, for a socket in the file system. One that a dead server left is replaced.

    It listens already, so that another server finds it in use while this one loads.
    """
    try:
        if path.exists():
            if not stat.S_ISSOCK(path.stat().st_mode) or _is_served(path):
                raise FileExistsError(None, "the file exists, or another server listens on it")
            path.unlink()
        with contextlib.ExitStack() as unless_bound:
            bound = unless_bound.enter_context(socket.socket(socket.AF_UNIX))
            bound.bind(str(path))
            bound.listen()
            unless_bound.pop_all()
    except (OSError, AttributeError) as error:  # Windows has no AF_UNIX
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotListen(
            f"cannot listen on {_UNIX}{path}: {reason}; choose another --host"
        ) from error
    return bound


def _is_served(path: Path) -> bool:
    """Whether a socket may have a server: also one of another user, or with a full queue."""
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        return client.connect_ex(str(path)) != errno.ECONNREFUSED


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from a later one at the same path; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def bound_sockets(hosts: str, port: int) -> Iterator[list[socket.socket]]:
    """The sockets of addresses separated by commas, all with one port; raises CannotListen.

    They are closed when the block ends, and those in the file system are removed, unless another
    server has replaced them.
    """
    sockets: list[socket.socket] = []
    files: dict[Path, tuple[int, int] | None] = {}
    try:
        for host in (host.strip() for host in hosts.split(",")):
            if host.startswith(_UNIX):
                path = Path(host.removeprefix(_UNIX))
                sockets.append(bind_unix(path))
                files[path] = _identity(path)
            else:
                sockets.append(bind(host, port))
                port = sockets[-1].getsockname()[1]
        yield sockets
    finally:
        for path, identity in files.items():
            if _identity(path) == identity:
                path.unlink(missing_ok=True)
        for bound in sockets:
            bound.close()


def url(bound: socket.socket, tls: Tls | None = None, prefix: str = "") -> str:
    """The URL of a bound socket, such as http://host:port/prefix; unix:PATH for one in files."""
    if isinstance(path := bound.getsockname(), str):
        return f"{_UNIX}{path}"
    host, port = bound.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    name = f"[{host}]" if ":" in host else host
    return f"{scheme}://{name}:{port}{prefix}"


def max_connections() -> int:
    """Raise the limit on open files as far as allowed; return how many may be connections."""
    files = raise_open_files(_MAX_FILES)
    return max(files // 2, files - _OTHER_FILES)
