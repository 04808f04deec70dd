"""POST /api/create: models with the weights of another one."""

from __future__ import annotations

import errno
import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import (
    MANIFEST,
    SIGNATURE,
    LanguageManifest,
    Preset,
    PresetMessage,
    digest,
    known_bundles,
    read_manifest,
    read_manifest_of,
    record_file,
    write_manifest,
)
from hearthd.server.app import Guards
from hearthd.server.services import bundle_files
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from tests.bundle.example_manifests import ENCODER
from tests.server import fakes
from tests.server.api.ollama.ask import HELLO, lines, refusal, whole
from tests.server.api.ollama.test_ollama_models import KEY, TEMPLATE, listed
from tests.server.openai_servers import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from hearthd.server.services.language_service import LocalLanguageService

SHORT = {"num_predict": 2, "temperature": 0.0}
FIELDS: dict[str, Any] = dict(TEMPLATE)
PRESET = Preset(sampling={"temperature": 0.0}, max_tokens=2, system="Be brief.")


def service_of(folder: Path, reserved: int = 0) -> LocalLanguageService:
    """A service with the preset in a folder."""
    assert reserved >= 0
    preset = read_manifest_of(folder, LanguageManifest).preset
    return fakes.fake_service(LIBRARY, name=folder.name, preset=preset, **FIELDS)


def deployment(folder: Path) -> Deployment:
    return Deployment(
        folder.name,
        functools.partial(service_of, folder),
        folder=folder,
        manifest=read_manifest(folder),
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of two bundles with different weights, and of an encoder."""
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path))
    manifest = fakes.fake_service(LIBRARY, **FIELDS).manifest
    for name, kind in {"first": manifest, "second": manifest, "vectors": ENCODER}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "weights").write_text(name)
        write_manifest(folder, replace(kind, files=(record_file(folder / "weights"),)))
    return tmp_path


@pytest.fixture
def models(home: Path) -> ModelPool:
    def find() -> dict[str, Callable[[], Deployment]]:
        folders = (path.parent for path in sorted(home.glob(f"*/{MANIFEST}")))
        return {folder.name: functools.partial(deployment, folder) for folder in folders}

    models = ModelPool([make() for make in find().values()], find=find)
    models.open()
    return models


@pytest.fixture
def client(home: Path, models: ModelPool) -> Iterator[httpx.Client]:
    with fakes.running(models, guards=Guards(api_keys=(KEY,)), home=home) as client:
        client.headers["Authorization"] = f"Bearer {KEY}"
        yield client


def create(client: httpx.Client, name: str, base: str = "first", **settings: Any) -> None:
    body = {"model": name, "from": base, **settings}
    assert whole(client, "/api/create", **body) == {"status": "success"}


def preset_of(folder: Path) -> Preset:
    return read_manifest_of(folder, LanguageManifest).preset


def answer(client: httpx.Client, model: str) -> dict[str, Any]:
    return whole(client, "/api/chat", model=model, messages=HELLO)


def test_a_model_is_created_with_settings(client: httpx.Client, home: Path) -> None:
    body = {"model": "mario", "from": "first:latest", "parameters": SHORT, "system": "Be brief."}
    progress = lines(client, "/api/create", **body)
    assert [line["status"] for line in progress] == [
        "using the files of first", "writing manifest", "success"
    ]  # fmt: skip
    assert (home / "mario/weights").samefile(home / "first/weights")
    assert preset_of(home / "mario") == PRESET
    assert preset_of(home / "first") == Preset()
    assert sorted(path.name for path in home.iterdir()) == ["first", "mario", "second", "vectors"]
    assert "mario:latest" in listed(client, "/api/tags")
    longer = answer(client, "first")
    brief = answer(client, "mario")
    assert brief["eval_count"] == 2 < longer["eval_count"]
    assert brief["prompt_eval_count"] > longer["prompt_eval_count"]


def test_settings_are_added_to_those_of_the_other_model(client: httpx.Client, home: Path) -> None:
    message = {"role": "user", "content": "Hi"}
    options = {**SHORT, "stop": ["x"], "num_gpu": 9}
    create(client, "a", parameters=options, system="S", license=["A", "B"])
    create(client, "b", "a", parameters={"top_k": 3}, system="", messages=[message])
    assert preset_of(home / "b") == Preset(
        sampling={"temperature": 0.0, "top_k": 3},
        stop=("x",),
        max_tokens=2,
        messages=(PresetMessage(role="user", content="Hi"),),
        license="A\n\nB",
    )


def test_a_model_with_the_same_weights_gets_new_settings(client: httpx.Client, home: Path) -> None:
    create(client, "mario", parameters={"num_predict": 2})
    assert answer(client, "mario")["eval_count"] == 2
    create(client, "mario", parameters={"num_predict": 3})
    assert client.post("/api/show", json={"model": "mario"}).json()["parameters"] == "num_predict 3"
    assert answer(client, "mario")["eval_count"] == 3
    create(client, "first", system="Be brief.")
    assert preset_of(home / "first").system == "Be brief."
    assert preset_of(home / "mario").system == ""


def test_a_model_with_other_weights_is_not_replaced(
    client: httpx.Client, home: Path, models: ModelPool
) -> None:
    before = (home / "second" / MANIFEST).read_bytes()
    expected = "a name that no model has, or a model with the same weights"
    for name, base in (("second", "first"), ("first", "first")):
        models.find("first").pinned = name == "first"
        status, reason = refusal(client, "/api/create", **{"model": name, "from": base})
        assert (status, expected in reason) == (400, True)
    assert (home / "second" / MANIFEST).read_bytes() == before


REFUSED: tuple[tuple[dict[str, Any], int, str], ...] = (
    ({"from": "none"}, 404, "expected one of first, second, vectors"),
    ({"model": ".x"}, 400, 'model: got ".x", expected a name of letters'),
    ({"model": "x:v2"}, 400, 'model: got "x:v2", expected a name of letters'),
    ({"model": ""}, 400, 'model: got "", expected a name of letters'),
    ({"from": ""}, 400, 'from: got "", expected the name of a model'),
    ({"files": {"a": "sha256:1"}}, 501, "files: this server takes no weights"),
    ({"quantize": "q4_K_M"}, 501, "quantize: this server takes no weights"),
    ({"template": "{{ .Prompt }}"}, 400, "--chat-template of `hearth serve`"),
    ({"parameters": {"top_p": 2}}, 400, "parameters.top_p: got 2, expected less than"),
    ({"parameters": {"ignore_eos": True}}, 400, "expected parameters of a Modelfile"),
    ({"messages": [{"role": "tool", "content": ""}]}, 400, "messages[0].role"),
    ({"from": "vectors", "system": "S"}, 400, "from: got .*expected a language model"),
)


def test_a_request_that_cannot_be_done_changes_nothing(client: httpx.Client, home: Path) -> None:
    for body, status, message in REFUSED:
        refused = refusal(client, "/api/create", **{"model": "x", "from": "first", **body})
        assert refused[0] == status
        assert all(part in refused[1] for part in message.split(".*")), refused[1]
    assert sorted(path.name for path in home.iterdir()) == ["first", "second", "vectors"]


def test_a_disk_that_is_full_leaves_nothing_behind(
    client: httpx.Client, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bundle_files, "write_manifest", full)
    body = {"model": "x", "from": "first", "system": "S"}
    status, reason = refusal(client, "/api/create", **body)
    assert (status, reason.startswith("x: cannot be changed on disk: No space")) == (507, True)
    assert sorted(path.name for path in home.iterdir()) == ["first", "second", "vectors"]


def test_a_damaged_bundle_is_named(client: httpx.Client, home: Path) -> None:
    (home / "first" / MANIFEST).write_text("{")
    status, reason = refusal(client, "/api/create", **{"model": "x", "from": "first"})
    assert (status, "manifest.json" in reason) == (503, True)


def test_other_kinds_are_copied_without_settings(client: httpx.Client, home: Path) -> None:
    create(client, "embedder", "vectors")
    assert read_manifest(home / "embedder") == read_manifest(home / "vectors")


def test_a_signed_bundle_gets_no_other_settings(client: httpx.Client, home: Path) -> None:
    (home / "first" / SIGNATURE).write_bytes(b"signature")
    status, reason = refusal(
        client, "/api/create", **{"model": "x", "from": "first", "system": "S"}
    )
    assert (status, "a bundle without a signature" in reason) == (400, True)
    create(client, "x")
    assert (home / "x" / SIGNATURE).exists()


def test_a_model_of_a_known_bundle_is_known(client: httpx.Client, home: Path) -> None:
    create(client, "unknown", system="S")
    known_bundles.remember(read_manifest(home / "first"))
    create(client, "known", system="T")
    known = known_bundles._recorded()
    digests = {name: digest(read_manifest(home / name)) for name in ("known", "unknown")}
    assert digests["known"] in known
    assert digests["unknown"] not in known
