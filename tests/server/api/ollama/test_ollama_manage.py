"""/api/pull, /api/copy and /api/delete, with a fake `hearth pull`."""

from __future__ import annotations

import errno
import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hearthd import child_command
from hearthd.bundle import MANIFEST
from hearthd.server.api.ollama import manage
from hearthd.server.app import Guards
from hearthd.server.services.pulls import pull_command
from tests.patience import wait_until
from tests.server import fakes
from tests.server.api.ollama.ask import HELLO, lines, refusal, whole
from tests.server.api.ollama.test_ollama_models import KEY, TEMPLATE, listed
from tests.server.fake_models import FakeModel, pool
from tests.server.openai_servers import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from hearthd.server.services.deployment import Deployment

GUARDS = Guards(api_keys=(KEY,))
REFERENCE = "hf.co/ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"
PULLED = "hf.co-ggml-org-gemma-3-1b-it-GGUF-Q4_K_M"
COPY = {"source": "first", "destination": "third"}
HUB = "hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).write_text('{"format": 1}')
        (tmp_path / name / "weights").write_bytes(bytes(1000))
    return tmp_path


@pytest.fixture
def client(home: Path) -> Iterator[httpx.Client]:
    def find() -> dict[str, Callable[[], Deployment]]:
        folders = (path.parent for path in sorted(home.glob(f"*/{MANIFEST}")))
        return {folder.name: functools.partial(deployment, folder) for folder in folders}

    models = pool(fake("first"), fake("second"), find=find)
    for model in models:
        model.folder = home / model.name
    with fakes.running(models, guards=GUARDS, home=home) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        yield client


def fake(name: str) -> FakeModel:
    return FakeModel(name=name, tokenizer=LIBRARY, fields=dict(TEMPLATE))


def deployment(folder: Path) -> Deployment:
    created = fake(folder.name).deployment()
    created.folder = folder
    return created


def fails(code: int) -> Callable[..., None]:
    """A function of the system that the disk refuses."""

    def refuse(*_arguments: object, ignore_errors: bool = False, **_options: object) -> None:
        if not ignore_errors:
            raise OSError(code, os.strerror(code))

    return refuse


def pulls(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let a program take the place of `hearth pull`; `name` and `home` are its arguments."""

    def command(reference: str, name: str, home: Path) -> list[str]:
        assert reference == HUB
        prelude = "import json, os, pathlib, sys, time; name, home = sys.argv[1:]\n"
        return [sys.executable, "-c", prelude + code, name, str(home)]

    monkeypatch.setattr(manage, "pull_command", command)


BAKED = """
for completed in (0, 500, 1000):
    print(json.dumps({"stage": "download a.gguf", "total": 1000, "completed": completed}))
print(json.dumps({"note": "takes 100 MB"}))
folder = pathlib.Path(home, name)
folder.mkdir()
(folder / "manifest.json").write_text("{}")
print(json.dumps({"path": str(folder)}))
"""


def test_a_model_is_pulled_and_offered(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls(monkeypatch, BAKED)
    progress = lines(client, "/api/pull", model=REFERENCE)
    assert [line["status"] for line in progress] == [
        "pulling manifest", *["download a.gguf"] * 3, "takes 100 MB", "success"
    ]  # fmt: skip
    counts = [(line["total"], line["completed"]) for line in progress if "digest" in line]
    assert counts == [(1000, 0), (1000, 500), (1000, 1000)]
    assert f"{PULLED}:latest" in listed(client, "/api/tags")
    answer = whole(client, "/api/chat", model=REFERENCE, messages=HELLO, options={"num_predict": 1})
    assert answer["model"] == f"{PULLED}:latest"
    assert client.post("/api/show", json={"model": REFERENCE}).status_code == 200
    assert whole(client, "/api/pull", name="first:latest") == {"status": "success"}


def test_weights_that_were_baked_before_get_the_name(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls(monkeypatch, 'print(json.dumps({"path": str(pathlib.Path(home, "second"))}))')
    assert whole(client, "/api/pull", model=f"{REFERENCE}:latest") == {"status": "success"}
    assert f"{PULLED}:latest" in listed(client, "/api/tags")


def test_a_pull_that_fails_says_why(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pulls(monkeypatch, 'sys.exit("hearth pull: hf:a/b: there is no such model")')
    *_, last = lines(client, "/api/pull", model=REFERENCE)
    assert last == {"error": "hf:a/b: there is no such model"}
    assert refusal(client, "/api/pull", model=REFERENCE, stream=False) == (500, last["error"])
    status, reason = refusal(client, "/api/pull", model="llama3.2:1b")
    assert (status, "expected hf.co/ORG/REPO" in reason) == (400, True)


def test_a_client_that_leaves_ends_the_pull(
    client: httpx.Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process_id = home / "process_id"
    code = f"""
pathlib.Path({str(process_id)!r}).write_text(str(os.getpid()))
print(json.dumps({{"stage": "download", "total": 9, "completed": 0}}), flush=True)
time.sleep(600)
"""
    pulls(monkeypatch, code)

    def has_ended() -> bool:
        return not Path(f"/proc/{process_id.read_text()}").exists()

    with client.stream("POST", "/api/pull", json={"model": REFERENCE}) as response:
        received = response.iter_lines()
        assert [next(received) for _ in range(2)][1].startswith('{"status":"download"')
        assert not has_ended()
    wait_until(has_ended)


def test_the_command_of_a_pull(tmp_path: Path) -> None:
    command = pull_command("hf:a/b", "a-b", tmp_path)
    assert command[0] == sys.executable
    assert command[2:6] == ["-m", child_command.__name__, str(os.getpid()), "pull"]
    assert command[-2:] == ["--", "hf:a/b"]


def test_a_pull_ends_with_the_server(tmp_path: Path) -> None:
    command = pull_command("hf:a/b", "a-b", tmp_path)
    command[4] = "1"  # not the parent
    ended = subprocess.run(command, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"")


def test_a_model_is_copied_and_deleted(client: httpx.Client, home: Path) -> None:
    def copy(source: str, destination: str) -> int:
        sent = {"source": source, "destination": destination}
        return client.post("/api/copy", json=sent).status_code

    def delete(**body: str) -> int:
        return client.request("DELETE", "/api/delete", json=body).status_code

    assert copy("first:latest", "third:latest") == 200
    assert (home / "third/weights").samefile(home / "first/weights")
    assert "third:latest" in listed(client, "/api/tags")
    whole(client, "/api/chat", model="third", messages=HELLO, options={"num_predict": 1})
    assert copy("nothing", "x") == 404
    assert copy("first", "second") == copy("first", "..") == 400
    (home / "third" / "notes").mkdir()
    assert delete(model="third") == 400
    (home / "third" / "notes").rmdir()
    assert delete(model="third") == 200
    assert not (home / "third").exists()
    assert listed(client, "/api/tags") == ["first:latest", "second:latest"]
    assert delete(model="third") == 404
    assert delete(name="second:latest") == 200
    assert delete(model="first") == 400  # the last one
    assert [path.name for path in home.iterdir()] == ["first"]


def test_a_model_is_copied_where_files_have_one_name(
    client: httpx.Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", fails(errno.EPERM))
    assert client.post("/api/copy", json=COPY).status_code == 200
    copied, original = home / "third/weights", home / "first/weights"
    assert copied.read_bytes() == original.read_bytes()
    assert not copied.samefile(original)


def test_a_change_that_the_disk_refuses_leaves_the_models_as_they_are(
    client: httpx.Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", fails(errno.ENOSPC))
    status, reason = refusal(client, "/api/copy", **COPY)
    assert (status, reason.startswith("third: cannot be changed on disk: No space")) == (507, True)
    monkeypatch.setattr(shutil, "rmtree", fails(errno.EROFS))
    refused = client.request("DELETE", "/api/delete", json={"model": "second"})
    assert (refused.status_code, "Read-only" in refused.json()["error"]) == (507, True)
    assert sorted(path.name for path in home.iterdir()) == ["first", "second"]
    assert listed(client, "/api/tags") == ["first:latest", "second:latest"]


@pytest.mark.parametrize(
    ("path", "instead"),
    [
        ("/api/push", "copy the bundle's folder"),
        ("/api/blobs/sha256:ab", "bake a GGUF file with `hearth bake`"),
    ],
)
def test_what_is_not_supported_says_what_to_do(
    client: httpx.Client, path: str, instead: str
) -> None:
    status, reason = refusal(client, path, model="first")
    assert (status, instead in reason) == (501, True)


@pytest.mark.parametrize("has_key", [False, True])
def test_models_change_only_with_keys_and_a_home(home: Path, has_key: bool) -> None:
    options: dict[str, Any] = {"guards": GUARDS} if has_key else {"home": home}
    with fakes.running(pool(fake("first")), **options) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        for method, path, body in (
            ("POST", "/api/pull", {"model": REFERENCE}),
            ("POST", "/api/copy", {"source": "first", "destination": "x"}),
            ("POST", "/api/create", {"model": "x", "from": "first"}),
            ("DELETE", "/api/delete", {"model": "first"}),
        ):
            refused = client.request(method, path, content=json.dumps(body))
            assert refused.status_code == 403
            words = "without MODEL" if has_key else "set --api-key"
            assert words in refused.json()["error"]
