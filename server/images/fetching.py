"""Images at http and https addresses, of hosts on the public internet alone.

A request could otherwise read what only the server's machine or network reaches. A host's addresses
are checked when they are connected to, of each redirect too, so a name server that answers
differently the next time changes nothing. No proxy is used: it would choose the address itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import ipaddress
import math
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from hearthd.bundle import FETCHED_MEMORY, MAX_FETCHED_BYTES
from hearthd.server.images.image_memory import ImageMemory
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearthd.text.conversation import Media

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_SECONDS = 10.0
MAX_REDIRECTS = 3
MAX_ADDRESSES = 16  # of one request
_DOWNLOADS = 4  # at a time
_UNICAST = ipaddress.IPv6Network("2000::/3")
# Their addresses have one of IPv4 in them, to which a router forwards: 6to4 and Teredo.
_TUNNELS = tuple(map(ipaddress.IPv6Network, ("2002::/16", "2001::/32")))
# Azure's services for the virtual machine itself: https://learn.microsoft.com/azure/virtual-network/
# what-is-ip-address-168-63-129-16. Other clouds have link-local or shared addresses.
_AZURE = ipaddress.IPv4Address("168.63.129.16")


def is_public(address: Address) -> bool:
    """Whether an address is of a host on the public internet."""
    if isinstance(address, ipaddress.IPv6Address) and (
        address not in _UNICAST or any(address in network for network in _TUNNELS)
    ):
        return False
    if address == _AZURE:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def is_address(url: str) -> bool:
    """Whether an image is at an http or https address."""
    return url.partition(":")[0].lower() in ("http", "https")


def _is_at_address(media: Media) -> bool:
    return media.kind == "image" and is_address(media.url)


class ImageFetcher:
    """Downloads images into FETCHED_MEMORY; `allowed` are the addresses it connects to."""

    def __init__(self, allowed: Callable[[Address], bool] = is_public) -> None:
        self._allowed = allowed
        self.memory = ImageMemory(FETCHED_MEMORY)
        self._threads = ThreadPoolExecutor(_DOWNLOADS, thread_name_prefix="fetch")

    async def fetch(self, images: Sequence[Media]) -> tuple[Media, ...]:
        """The media with the data of images at addresses, downloaded one after the other.

        Each takes at most MAX_SECONDS after its name is resolved, MAX_REDIRECTS and
        MAX_FETCHED_BYTES, whatever the host does. Raises InvalidRequest at the field of an image,
        or ImagesFull.
        """
        at_addresses = [image for image in images if _is_at_address(image)]
        if len(at_addresses) > MAX_ADDRESSES:
            raise InvalidRequest(
                field=at_addresses[MAX_ADDRESSES].field,
                got=f"{len(at_addresses)} images at addresses",
                expected=f"at most {MAX_ADDRESSES}: send the others as data URIs",
            )
        complete = list(images)
        try:
            for index, image in enumerate(images):
                if _is_at_address(image):
                    complete[index] = await self._in_thread(image)
        except BaseException:
            complete.clear()  # the error keeps this frame, and would keep their memory
            raise
        return tuple(complete)

    async def _in_thread(self, image: Media) -> Media:
        """The image with its data. A download ends when the task is cancelled."""
        download = _Download(self._allowed)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, self._fetch, image, download)
        except asyncio.CancelledError:
            download.end()  # its thread and memory are for other requests
            raise

    def _fetch(self, image: Media, download: _Download) -> Media:
        with self.memory.reserved(MAX_FETCHED_BYTES):
            data = fetched(image.url, image.field, download)
        with_data = dataclasses.replace(image, data=data)
        self.memory.take(with_data, len(data))
        return with_data


class _Refused(Exception):
    """The message says why an address is not fetched."""


def fetched(url: str, field: str, download: _Download) -> bytes:
    """The bytes at an http or https address; raises InvalidRequest at `field`."""
    try:
        with download:
            return download.read(url)
    except _Refused as error:
        problem = str(error)
    except urllib.error.HTTPError as error:
        error.close()
        is_redirect = 300 <= error.code < 400
        problem = _REDIRECTS if is_redirect else f"the host answered with status {error.code}"
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        problem = _LATE if isinstance(reason, TimeoutError) else str(reason)[:160]
    raise InvalidRequest(
        field=field, got=url[:80], expected=f"an address that the server can read: {problem}"
    )


_LATE = f"the download took more than {MAX_SECONDS:g} s"
_LONG = f"it has more than {MAX_FETCHED_BYTES} bytes; send a smaller image"
_REDIRECTS = f"it redirects more than {MAX_REDIRECTS} times, or not to an http address"


class _Download:
    """One download. A context manager, which begins it and closes its connections."""

    def __init__(self, allowed: Callable[[Address], bool]) -> None:
        self._allowed = allowed
        self._deadline = math.inf
        # Duplicates: one that TLS is put around loses its file, and a response closes its own.
        self._sockets: list[socket.socket] = []
        self._expired = False
        self._timer = threading.Timer(MAX_SECONDS, self.end)
        self._timer.daemon = True

    def __enter__(self) -> _Download:
        self._deadline = time.monotonic() + MAX_SECONDS
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for connection in self._sockets:
            connection.close()

    def read(self, url: str) -> bytes:
        """The body at an address; raises _Refused, HTTPException, OSError or ValueError."""
        opener = urllib.request.OpenerDirector()
        for handler in (
            _Http(self), _Redirects(), urllib.request.HTTPErrorProcessor(),
            urllib.request.HTTPDefaultErrorHandler(), urllib.request.UnknownHandler(),
        ):  # fmt: skip
            opener.add_handler(handler)
        request = urllib.request.Request(url, headers={"Accept": "image/*"})
        try:
            with opener.open(request, timeout=MAX_SECONDS) as response:
                data: bytes = response.read(MAX_FETCHED_BYTES + 1)
        except Exception:
            if self._expired:
                raise _Refused(_LATE) from None
            raise
        if self._expired:
            raise _Refused(_LATE)
        if len(data) > MAX_FETCHED_BYTES:
            raise _Refused(_LONG)
        return data

    def connect(self, host: str, port: int) -> socket.socket:
        """Connect to the address of a host that was checked; raises _Refused or OSError."""
        if not 0 < port < 2**16:
            raise _Refused(f"{port} is not the number of a port")
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        targets = {str(target[0]): family for family, _, _, _, target in found}
        for text in targets:
            if not self._allowed(ipaddress.ip_address(text.partition("%")[0])):
                raise _Refused(f"{host[:80]} is not a public host")
        problem = OSError("the host has no address")
        for text, family in targets.items():
            connection = socket.socket(family, socket.SOCK_STREAM)
            self._sockets.append(connection.dup())
            # The time may have ended while a name was resolved, before there was this connection.
            if (remaining := self._deadline - time.monotonic()) <= 0 or self._expired:
                connection.close()
                raise _Refused(_LATE)
            connection.settimeout(remaining)
            try:
                connection.connect((text, port))
            except OSError as error:
                connection.close()
                problem = error
                continue
            return connection
        raise problem

    def end(self) -> None:
        """End all connections: a host that sends a byte a second meets no other timeout."""
        self._expired = True
        for connection in self._sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.AbstractHTTPHandler):
    """Opens http and https addresses with the connections of a download."""

    def __init__(self, download: _Download) -> None:
        super().__init__()
        self._download = download

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Called by urllib."""
        return self.do_open(self._plain, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Called by urllib."""
        return self.do_open(self._tls, request)

    http_request = https_request = urllib.request.AbstractHTTPHandler.do_request_

    def _plain(self, host: str, /, **options: Any) -> _Connection:
        return _Connection(host, self._download, None, **options)

    def _tls(self, host: str, /, **options: Any) -> _Connection:
        return _Connection(host, self._download, ssl.create_default_context(), **options)


class _Connection(http.client.HTTPConnection):
    """A connection to a checked address, with TLS in a context."""

    def __init__(
        self, host: str, download: _Download, context: ssl.SSLContext | None, **options: Any
    ) -> None:
        if context is not None:
            self.default_port = http.client.HTTPS_PORT
        super().__init__(host, **options)
        self._download = download
        self._context = context

    @override
    def connect(self) -> None:
        """Called by http.client."""
        self.sock = self._download.connect(self.host, self.port)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=self.host)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = MAX_REDIRECTS
