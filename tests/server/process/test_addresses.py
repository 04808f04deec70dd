"""Where a server listens: sockets in the file system, a prefix of paths, proxies in front of it."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from hearthd.server.process.listening import CannotListen, bound_sockets, url
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.api.ollama.ask import lines
from tests.server.openai_servers import LIBRARY, chatty

if TYPE_CHECKING:
    from pathlib import Path


def test_a_socket_in_the_file_system_serves_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "hearth.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # by a server that was killed
    with fakes.running(chatty(), host=f"unix:{path}") as client:
        assert client.get("/health").json()["status"] == "ok"
        *_, last = lines(client, "/api/generate", prompt="x", options={"num_predict": 4})
        assert last["done"]
        with (
            pytest.raises(CannotListen, match="another server listens on it"),
            bound_sockets(f"unix:{path}", 0),
        ):
            pass
        assert client.get("/health").status_code == 200
    assert not path.exists()


def test_a_file_is_not_replaced_by_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x")
    for name in (path, tmp_path / ("long" * 40), tmp_path / "missing" / "a.sock"):
        with (
            pytest.raises(CannotListen, match="choose another --host"),
            bound_sockets(f"unix:{name}", 0),
        ):
            pass
    assert path.read_text() == "x"


def refused(path: Path) -> bool:
    """Whether a server cannot listen at the path because another may."""
    try:
        with bound_sockets(f"unix:{path}", 0):
            return False
    except CannotListen as error:
        return "another server listens on it" in str(error)


def test_a_socket_is_in_use_while_its_server_loads(tmp_path: Path) -> None:
    path = tmp_path / "hearth.sock"
    with bound_sockets(f"unix:{path}", 0):
        assert refused(path)
        assert path.exists()
    assert not path.exists()


def test_a_socket_with_a_full_queue_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "hearth.sock"
    with socket.socket(socket.AF_UNIX) as busy, contextlib.ExitStack() as clients:
        busy.bind(str(path))
        busy.listen(0)
        result = 0
        while result != errno.EAGAIN:
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            result = client.connect_ex(str(path))
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(refused(path)), daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert answers == [True]


def test_a_server_keeps_the_socket_of_a_later_one(tmp_path: Path) -> None:
    path = tmp_path / "hearth.sock"
    with socket.socket(socket.AF_UNIX) as later:
        with bound_sockets(f"unix:{path}", 0):
            path.unlink()
            later.bind(str(path))
        assert path.exists()


def test_addresses_of_both_kinds(tmp_path: Path) -> None:
    with bound_sockets(f"unix:{tmp_path}/a.sock, 127.0.0.1", 0) as (first, second):
        assert url(first, prefix="/llm") == f"unix:{tmp_path}/a.sock"
        assert url(second, prefix="/llm").endswith(f":{second.getsockname()[1]}/llm")
        assert second.getsockname()[0] == "127.0.0.1"


def test_a_prefix_of_every_path() -> None:
    with fakes.running(chatty(), prefix="/a/llm") as client:
        for path in ("/health", "/v1/models", "/models", "/api/tags", "/", "/web/main.js"):
            assert client.get(f"/a/llm{path}").status_code == 200, path
        for path in ("/health", "/a/llmx/health", "/a", "/"):
            missing = client.get(path)
            assert missing.status_code == 404
            assert "paths begin with /a/llm/" in missing.json()["error"]["message"]
        slash = client.get("/a/llm")
        assert (slash.status_code, slash.headers["location"]) == (307, "/a/llm/")
        # Errors have the form of the route behind the prefix.
        assert set(client.post("/a/llm/api/show", json={}).json()) == {"error"}
        assert client.post("/a/llm/v1/messages", json={}).json()["type"] == "error"
        metrics = client.get("/a/llm/metrics").text
        assert 'route="/api/tags",status="200"' in metrics


@pytest.mark.parametrize(
    ("trusted", "shown"), [((), True), (("10.0.0.0/8",), False), (("*",), True)]
)
def test_a_trusted_proxy_names_the_client(
    trusted: tuple[str, ...], shown: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    service = fakes.fake_service(LIBRARY)
    with fakes.running(service, trusted_proxies=trusted) as client:
        client.get("/v1/models", headers={"X-Forwarded-For": "203.0.113.9"})
    (record,) = (r for r in caplog.records if r.getMessage() == "GET /v1/models")
    assert json.dumps(vars(record)["fields"]["client"]) == (
        '"203.0.113.9"' if shown else '"127.0.0.1"'
    )
