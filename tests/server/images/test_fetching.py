"""Images at addresses: from public hosts only, and within limits, whatever the host does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import json
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from hearthd.server.errors import ImagesFull
from hearthd.server.images import fetching
from hearthd.server.images.fetching import MAX_ADDRESSES, MAX_REDIRECTS, ImageFetcher, is_public
from hearthd.server.services import language_service
from hearthd.text.conversation import Media
from hearthd.text.errors import InvalidRequest
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.certificates import certificate
from tests.server.images.image_service import WIDE, anthropic, chat, image_service, openai

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DATA = b"an image" * 100


class Host(BaseHTTPRequestHandler):
    """/redirects/N redirects N times, /to/URL to an address."""

    visits: list[str]

    def do_GET(self) -> None:
        self.visits.append(self.path)
        _, name, *rest = self.path.split("/", 2)
        if name in ("redirects", "to") and rest != ["0"]:
            target = f"/redirects/{int(rest[0]) - 1}" if name == "redirects" else rest[0]
            self.send_response(302)
            self.send_header("Location", target)
            self.end_headers()
        elif name == "image.png":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(base64.b64decode(WIDE))
        elif name == "missing":
            self.send_error(404)
        else:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(DATA)
                if name == "slow":
                    stopping.wait(3 * PATIENCE)

    @override
    def log_message(self, format: str, *args: object) -> None:
        pass


stopping = threading.Event()


def served(visits: list[str], context: ssl.SSLContext | None = None) -> Iterator[str]:
    stopping.clear()
    handler = type("Handler", (Host,), {"visits": visits})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def visits() -> list[str]:
    return []


@pytest.fixture
def host(visits: list[str]) -> Iterator[str]:
    yield from served(visits)


LOCAL = ImageFetcher(lambda address: address.is_loopback)


def fetch(url: str, fetcher: ImageFetcher = LOCAL) -> bytes | None:
    (image,) = asyncio.run(fetcher.fetch([Media(kind="image", field="messages[0]", url=url)]))
    return image.data


def refused(url: str, match: str, fetcher: ImageFetcher = LOCAL) -> None:
    with pytest.raises(InvalidRequest, match=match) as caught:
        fetch(url, fetcher)
    assert str(caught.value).startswith("messages[0]: got ")


# From the IANA registries of special addresses, RFC 6052 (64:ff9b::) and RFC 3056 (2002::).
@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "168.63.129.16", "100.64.0.1", "127.0.0.1", "169.254.169.254",
        "172.16.0.1", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::",
        "2001:0:a00:1::", "2001:db8::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1",
        "ff02::1",
    ],
)  # fmt: skip
def test_addresses_of_no_public_host_are_refused(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_an_image_is_downloaded_and_other_images_stay_as_they_are(host: str) -> None:
    assert fetch(f"http://{host}/a.png") == DATA
    assert fetch(f"HTTP://{host}/redirects/{MAX_REDIRECTS}") == DATA
    assert fetch("data:;base64,AAAA") is None


def test_the_servers_network_is_not_read(host: str, visits: list[str]) -> None:
    port = host.partition(":")[2]
    for name in (host, f"localhost:{port}", f"2130706433:{port}", f"[::ffff:127.0.0.1]:{port}"):
        refused(f"http://{name}/a.png", "is not a public host", ImageFetcher())
    assert not visits


def test_each_redirect_is_checked(host: str) -> None:
    refused(f"http://{host}/to/http://169.254.169.254/a", "169.254.169.254 is not a public host")
    refused(f"http://{host}/to/file:///etc/hostname", "not to an http address")
    refused(f"http://{host}/redirects/{MAX_REDIRECTS + 1}", "redirects more than 3 times")


def test_the_address_that_was_checked_is_connected_to(
    host: str, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server may answer with another address the second time."""
    resolved = socket.getaddrinfo
    answers = iter(["127.0.0.1", "127.0.0.2"])
    asked: list[str] = []

    def answer(name: str, *rest: object, **options: object) -> object:
        asked.append(name)
        return resolved(next(answers), *rest, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    port = host.partition(":")[2]
    assert fetch(f"http://rebinding.example:{port}/a") == DATA
    assert asked == ["rebinding.example"]
    assert visits == ["/a"]


def test_a_name_with_any_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object, **__: object) -> object:
        return [(socket.AF_INET, 1, 6, "", (a, 80)) for a in ("93.184.216.34", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    refused("http://both.example/", r"both\.example is not a public host", ImageFetcher())


def test_limits_end_a_download(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "MAX_SECONDS", 0.3)
    refused(f"http://{host}/slow", "the download took more than")
    monkeypatch.setattr(fetching, "MAX_SECONDS", 30)
    monkeypatch.setattr(fetching, "MAX_FETCHED_BYTES", len(DATA) - 1)
    refused(f"http://{host}/a", "it has more than")


def test_a_name_that_is_resolved_late_gets_no_connection(
    host: str, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing would end the connection: the timer has ended those before it."""
    resolved = socket.getaddrinfo

    def answer(*rest: Any, **options: Any) -> Any:
        time.sleep(0.1)
        return resolved(*rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    monkeypatch.setattr(fetching, "MAX_SECONDS", 0.05)
    refused(f"http://{host}/a", "the download took more than")
    assert not visits


def test_errors_are_sentences(host: str) -> None:
    refused(f"http://{host}/missing", "the host answered with status 404")
    refused("http://", "expected an address that the server can read: ")
    refused("http://127.0.0.1:1/", "Connection refused")
    refused("http://127.0.0.1:port/", "expected an address that the server can read: ")
    for number in (0, 65_536, -1):
        refused(f"http://127.0.0.1:{number}/", f"{number} is not the number of a port")
    refused("http://a b/", "expected an address that the server can read: ")


def test_the_memory_for_downloads_is_limited_and_given_back(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FETCHED_MEMORY", len(DATA) + 10)
    monkeypatch.setattr(fetching, "MAX_FETCHED_BYTES", len(DATA))
    fetcher = ImageFetcher(lambda _: True)
    image = Media(kind="image", field="a", url=f"http://{host}/a")
    for _ in range(2):
        with pytest.raises(ImagesFull):
            asyncio.run(fetcher.fetch([image, image]))
        # The thread of a download may let go of it a little later.
        end = time.monotonic() + PATIENCE
        while fetcher.memory.used and time.monotonic() < end:
            time.sleep(0.001)
        assert fetch(image.url, fetcher) == DATA


def test_certificates_are_checked(
    tmp_path: Path, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    for host in served(visits, context):
        refused(f"https://{host}/a", "certificate")
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        assert fetch(f"https://{host}/a") == DATA


def test_each_surface_reads_images_at_addresses(
    host: str, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt has the tokens of the same image in base64."""
    monkeypatch.setattr(language_service, "image_fetcher", lambda: LOCAL)
    url = f"http://{host}/image.png"
    item = {"type": "input_image", "image_url": url}
    with fakes.running(image_service(fetch_images=True)) as client:
        for path, by_address, in_body in (
            (
                "/v1/chat/completions",
                chat(openai_url(url)),
                chat(openai(WIDE)),
            ),
            (
                "/v1/messages/count_tokens",
                chat({"type": "image", "source": {"type": "url", "url": url}}),
                chat(anthropic(WIDE)),
            ),
            (
                "/v1/responses/input_tokens",
                {"input": [{"role": "user", "content": [item]}]},
                {"input": [{"role": "user", "content": [item | openai_item(WIDE)]}]},
            ),
        ):
            counts = []
            for body in (by_address, in_body):
                response = client.post(path, json=body)
                assert response.status_code == 200, response.text
                counts.append(prompt_tokens(response.json()))
            assert counts[0] == counts[1]
        assert visits == ["/image.png"] * 3
        bad = client.post("/v1/chat/completions", json=chat(openai_url(f"http://{host}/a")))
        assert "an image in the format JPEG" in bad.json()["error"]["message"]
        many = [openai_url(url)] * (MAX_ADDRESSES + 1)
        refusal = client.post("/v1/chat/completions", json=chat(*many))
        assert refusal.status_code == 400
        assert "messages[0].content[16]: got" in refusal.json()["error"]["message"]


def test_a_request_downloads_an_image_once_however_often_it_is_shortened(
    host: str, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_service, "image_fetcher", lambda: LOCAL)
    part = {"type": "input_image", "image_url": f"http://{host}/image.png"}
    text = {"type": "input_text", "text": "the dog " * 30}
    turns = [{"role": "user", "content": [part, text]} for _ in range(8)]
    with fakes.running(image_service(fetch_images=True)) as client:
        body = {"input": turns, "max_output_tokens": 4, "truncation": "auto"}
        response = client.post("/v1/responses", json=body)
        assert response.status_code == 200, response.text
    kept = 8 - int(response.headers["warning"].split("oldest ")[1].split()[0])
    assert 0 < kept < 7  # more than two lengths were tried
    assert visits == ["/image.png"] * 8


def test_a_download_ends_with_its_client(
    host: str, visits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MAX_SECONDS", 10 * PATIENCE)  # no limit ends it
    fetcher = ImageFetcher(lambda address: address.is_loopback)
    monkeypatch.setattr(language_service, "image_fetcher", lambda: fetcher)
    body = json.dumps(chat(openai_url(f"http://{host}/slow"))).encode()
    with fakes.running(image_service(fetch_images=True)) as client:
        address = (client.base_url.host, client.base_url.port or 0)
        for stream in (b"false", b"true"):
            sent = body[:-1] + b', "stream": ' + stream + b"}"
            with socket.create_connection(address) as connection:
                connection.sendall(
                    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
                    b"Content-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(sent), sent)
                )
                wait_until(lambda: visits == ["/slow"])
                assert fetcher.memory.used
            wait_until(lambda: not fetcher.memory.used)
            visits.clear()


def openai_url(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


def openai_item(data: str) -> dict[str, str]:
    return {"image_url": f"data:;base64,{data}"}


def prompt_tokens(answer: dict[str, Any]) -> int:
    """The tokens of a prompt, in the form of any surface."""
    usage = answer.get("usage", answer)
    count: int = usage.get("input_tokens", usage.get("prompt_tokens"))
    return count
