"""`hearth serve --require-signature`: only what was signed is loaded."""

from __future__ import annotations

import json
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("cryptography", reason="checks signatures: pip install 'hearthd[verify]'")

from hearthd.bundle import (
    MANIFEST,
    PARAMETERS,
    SIGNATURE,
    LanguageManifest,
    read_manifest_of,
    read_public_key,
)
from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.bundle.lora.adapter_folder import TENSORS
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.bundle.lora.read_adapter import read_adapter
from hearthd.runtime.iree.device import CannotLoad
from tests.bundle.signed_folders import SigningKey
from tests.patience import wait_until
from tests.server import adapter_folders, fakes
from tests.server.generate_client import LIBRARY
from tests.server.process.test_cli import bundle, failure
from tests.server.process.test_cli_models import BODY, ask, served

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

__all__ = ["bundle"]  # a fixture

FIRST = "a-signed"  # the first model, whose reload /health shows


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey(tmp_path / "key")


def refusal(client: httpx.Client, model: str) -> str:
    response = client.post("/generate", json={**BODY, "model": model})
    assert response.status_code == 503
    message: str = response.json()["error"]["message"]
    assert "\n" not in message
    return message


def flip_last_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.nightly
def test_of_several_bundles_only_signed_ones_are_served(
    bundle: Path, key: SigningKey, tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    for name in (FIRST, "unsigned", "other-key", "other-weights", "added"):
        shutil.copytree(bundle, folder / name)
    for name in (FIRST, "other-weights", "added"):
        key.sign(folder / name)
    SigningKey(tmp_path / "other").sign(folder / "other-key")
    flip_last_bit(folder / "other-weights" / PARAMETERS)  # which the self-test does not notice
    (folder / "added" / "chat_template.jinja").write_text("{{ messages }}")
    with served(folder, "--require-signature", key.public) as (client, _, process):
        answer = ask(client, FIRST)
        assert "model.sig: missing file: the folder is not signed" in refusal(client, "unsigned")
        assert "signed with another key" in refusal(client, "other-key")
        assert f"{PARAMETERS}: wrong sha256" in refusal(client, "other-weights")
        assert "jinja: was added after the folder was signed" in refusal(client, "added")
        # A reload keeps the signed bundle where the new one is not signed.
        replaced = tmp_path / "replaced"
        shutil.copytree(bundle, replaced)
        (folder / FIRST).rename(tmp_path / "old")
        replaced.rename(folder / FIRST)
        process.send_signal(signal.SIGHUP)
        reload = last_reload(client)
        assert reload["succeeded"] is False
        assert "the folder is not signed" in reload["message"]
        assert ask(client, FIRST) == answer
        # Another one that is signed by now is served.
        key.sign(folder / "unsigned")
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.post("/generate", json={**BODY, "model": "unsigned"}).is_success)
        assert ask(client, "unsigned") == answer


def last_reload(client: httpx.Client) -> dict[str, Any]:
    reports: list[dict[str, Any]] = []

    def reloaded() -> bool:
        reports.append(client.get("/health").json()["last_reload"])
        return bool(reports[-1])

    wait_until(reloaded)
    return reports[-1]


def test_health_lists_the_weights_as_checked(bundle: Path, key: SigningKey, tmp_path: Path) -> None:
    shutil.copytree(bundle, tmp_path / "signed")
    key.sign(tmp_path / "signed")
    arguments = (tmp_path / "signed", "--self-test", "off", "--require-signature", key.public)
    with served(*arguments) as (client, _, _):
        manifest = read_manifest_of(bundle, LanguageManifest)
        checked = client.get("/health").json()["self_test"]["files"]
        assert checked == [MANIFEST, *(file.name for file in manifest.files)]
        assert PARAMETERS in checked


def test_a_bundle_that_is_not_signed_ends_the_command(bundle: Path, key: SigningKey) -> None:
    code, errors = failure(bundle, "--require-signature", key.public)
    assert code == 1
    assert errors.splitlines()[-1] == (
        f"hearth serve: {bundle / SIGNATURE}: missing file: the folder is not signed; sign it with "
        "hearth sign"
    )


def test_a_key_that_is_not_public_ends_the_command(bundle: Path, key: SigningKey) -> None:
    code, errors = failure(bundle, "--require-signature", key.private)
    assert code == 2
    assert errors.startswith(
        f"hearth serve: require_signature: {key.private}: got a private key, expected a public key"
    )
    assert errors.count("\n") == 1


def test_adapters_that_requests_load_must_be_signed(key: SigningKey, tmp_path: Path) -> None:
    root = tmp_path / "adapters"
    folder = adapter_folders.write(root / "sql", adapter_folders.tensors(0))
    service = fakes.fake_service(
        LIBRARY,
        lora_dir=root,
        adapters=adapter_folders.PLACES,
        slots=2,
        batch=2,
        keys=(read_public_key(key.public),),
    )
    with pytest.raises(CannotLoad, match=r"lora: .*model\.sig: missing file: the folder is not si"):
        service.open_adapters({"sql": folder})
    with fakes.running(service) as client:

        def problem() -> str:
            response = client.post("/lora-adapters/load", json={"path": "sql"})
            assert response.status_code == 400
            message: str = response.json()["error"]["message"]
            assert str(tmp_path) not in message
            return message

        assert "sql/model.sig: missing file: the folder is not signed" in problem()
        SigningKey(tmp_path / "other").sign(folder)
        assert "sql/model.sig: signed with another key" in problem()
        key.sign(folder)
        flip_last_bit(folder / TENSORS)
        assert f"sql/{TENSORS}: was changed after the folder was signed" in problem()
        flip_last_bit(folder / TENSORS)
        assert client.post("/lora-adapters/load", json={"path": "sql"}).json()["id"] == 0


def test_an_adapter_that_changes_while_it_is_read_is_refused(
    key: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = adapter_folders.write(tmp_path / "sql", adapter_folders.tensors(0))
    key.sign(folder)

    def read_changed(*arguments: Any) -> Any:
        config = folder / "adapter_config.json"
        config.write_text(json.dumps({**json.loads(config.read_text()), "lora_alpha": 99.0}))
        return read_adapter(*arguments)

    keys = [read_public_key(key.public)]
    read_factors(folder, adapter_folders.PLACES, keys)
    monkeypatch.setattr("hearthd.bundle.lora.adapter_factors.read_adapter", read_changed)
    with pytest.raises(BadAdapter, match="sql: was changed after it was signed"):
        read_factors(folder, adapter_folders.PLACES, keys)


def test_a_gguf_adapter_is_refused_where_a_signature_is_required(
    key: SigningKey, tmp_path: Path
) -> None:
    path = adapter_folders.write_gguf(tmp_path / "sql.gguf", adapter_folders.tensors(0))
    assert read_factors(path, adapter_folders.PLACES)
    with pytest.raises(BadAdapter, match=r"sql\.gguf: a GGUF file has no signature, and a sig"):
        read_factors(path, adapter_folders.PLACES, [read_public_key(key.public)])
