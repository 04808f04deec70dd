"""Hubs that send little, nothing, or what grows: a pull ends, and continues later."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import get_session

from hearthd.baker.hub import bounded_answers, header_copy, repository
from hearthd.baker.hub.bounded_answers import MAX_BYTES
from hearthd.baker.hub.download import download
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError, Unreachable
from hearthd.baker.hub.reference import parse_reference
from tests.baker.hub.local_hub import Faults
from tests.conftest import Silent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.baker.hub.conftest import Files
    from tests.baker.hub.local_hub import LocalHub

OK = b"HTTP/1.1 200 OK\r\n"
BOMB = gzip.compress(bytes(MAX_BYTES + 1))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hub is slow."""
    monkeypatch.setattr(bounded_answers, "WINDOW", 0.1)
    monkeypatch.setattr(bounded_answers, "MIN_SPEED", 10**9)
    monkeypatch.setattr(repository, "MIN_SPEED", 10**9)


@contextmanager
def answering(start: bytes, piece: bytes = b"") -> Iterator[str]:
    """The URL of a server that answers with a start, and then with a piece each 5 ms."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(start)
            while piece:
                time.sleep(0.005)
                connection.sendall(piece)
            connection.recv(1)  # until the client leaves

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def listed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", url)
    download("hf:a/gguf", Silent())


@pytest.mark.parametrize(
    ("start", "piece", "reason"),
    [
        pytest.param(OK + b"X-A: ", b"x", "did not begin within", id="headers"),
        pytest.param(b"", OK.replace(b"200", b"103") + b"\r\n", "did not begin", id="1xx"),
        pytest.param(OK + b"Content-Length: 99999\r\n\r\n", b"x", "sends less than", id="body"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x", "sends less than", id="chunk"
        ),
    ],
)
@pytest.mark.usefixtures("hub", "impatient")
def test_a_list_that_drips_is_given_up(
    start: bytes, piece: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(start, piece) as url, pytest.raises(Unreachable, match=reason):
        listed(url, monkeypatch)


@pytest.mark.usefixtures("hub")
def test_a_hub_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    with answering(b"") as url, pytest.raises(Unreachable, match=r"\(timed out\)"):
        listed(url, monkeypatch)


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [(b"gzip", r"an answer has more than 16\.8 MB"), (b"br", r"an answer is compressed as 'br'")],
)
@pytest.mark.usefixtures("hub")
def test_a_list_is_decompressed_to_its_limit(
    encoding: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = OK + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (encoding, len(BOMB))
    with answering(headers + BOMB) as url, pytest.raises(Unreachable, match=reason):
        listed(url, monkeypatch)


def test_a_file_that_drips_is_given_up_and_continued_later(
    hub: LocalHub, small: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthd.baker.hub.fit_check.FitCheck.require", lambda *_: None)
    hub.repositories["a/gguf"]["model-Q4_K_M.gguf"] = content = small.gguf + bytes(1 << 20)
    hub.faults.pace = 0.02
    with monkeypatch.context() as patch:
        for module in (bounded_answers, repository):
            patch.setattr(module, "MIN_SPEED", 10**9)
        patch.setattr(bounded_answers, "WINDOW", 0.05)
        with pytest.raises(HubError, match=r"5 times .*less than 1"):
            download("hf:a/gguf", Silent())
    assert 0 < hub.sent < len(content)
    hub.faults = Faults()
    hub.requests.clear()
    assert download("hf:a/gguf", Silent()).read_bytes() == content
    assert hub.ranges()[0] is not None


@pytest.mark.usefixtures("impatient")
def test_a_byte_per_connection_is_given_up(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_answers, "WINDOW", 30.0)
    monkeypatch.setattr("hearthd.baker.hub.fit_check.FitCheck.require", lambda *_: None)
    hub.faults.breaks = [1] * 20
    with pytest.raises(HubError, match="the connection broke 5 times"):
        download("hf:a/gguf", Silent())
    assert len(hub.ranges()) == 5


def test_a_header_of_gigabytes_is_not_read(
    hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_MAX_RANGE", 1 << 19)
    size = 1 << 22
    hub.repositories["a/gguf"] = {"m.safetensors": (size - 8).to_bytes(8, "little") + bytes(size)}
    found = repository.Repository(parse_reference("hf:a/gguf"))
    with pytest.raises(DoesNotFit, match=r"the header of m\.safetensors takes more than 0\.6 MB"):
        header_copy.copy_headers(found, found.files, tmp_path, Silent())
    assert hub.sent < 1 << 20


def test_the_client_has_no_limits_after_a_download(
    hub: LocalHub, small: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearthd.baker.hub.fit_check.FitCheck.require", lambda *_: None)
    monkeypatch.setattr(bounded_answers, "MAX_BYTES", 1 << 14)
    download("hf:a/gguf:Q8_0", Silent())
    url = f"{hub.url}/a/gguf/resolve/main/model-Q4_K_M.gguf"
    assert get_session().get(url).content == small.gguf


def test_the_hub_is_asked_for_nothing_but_the_model(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The client would ask which agents there are, to report whether it is run by one."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.setattr(constants, "AGENT_HARNESSES_PATH", str(tmp_path / "agents.json"))
    monkeypatch.setattr("huggingface_hub.utils._detect_agent._registry", None)
    monkeypatch.setattr("hearthd.baker.hub.fit_check.FitCheck.require", lambda *_: None)
    download("hf:a/gguf", Silent())
    assert {request.path.split("/")[1] for request in hub.requests} == {"a", "api", "cdn"}
    assert {request.path for request in hub.requests if request.path.startswith("/api")} == {
        "/api/models/a/gguf/revision/main?blobs=true"
    }
