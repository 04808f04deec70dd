"""`hearth serve` with several small compiled bundles, as a process."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hearthd.bundle import (
    PARAMETERS,
    VMFB,
    LanguageManifest,
    read_manifest_of,
    write_manifest,
)
from tests.patience import PATIENCE
from tests.server.process.test_cli import address_in, bundle, failure, serve

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["bundle"]  # a fixture

BODY = {"prompt": "one two three four five", "temperature": 0, "max_tokens": 3}


@pytest.fixture
def folder(bundle: Path, tmp_path: Path) -> Path:
    """A folder of bundles: two good ones of different digests, and three damaged ones."""
    for name in ("first", "second", "no-program", "no-manifest", "short-weights"):
        shutil.copytree(bundle, tmp_path / name)
    second = read_manifest_of(tmp_path / "second", LanguageManifest)
    write_manifest(tmp_path / "second", replace(second, statistics={"another": 1}))
    (tmp_path / "no-program" / VMFB).unlink()
    (tmp_path / "no-manifest" / "manifest.json").write_text("{")
    weights = tmp_path / "short-weights" / PARAMETERS
    weights.write_bytes(weights.read_bytes()[:-1])
    return tmp_path


@contextmanager
def served(*arguments: object) -> Iterator[tuple[httpx.Client, str, subprocess.Popen[str]]]:
    """A client of `hearth serve`, the line that it printed, and the process."""
    process = serve(*arguments, "--port", "0", "--threads", "1")
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        with httpx.Client(base_url=address_in(line), timeout=PATIENCE) as client:
            yield client, line, process
        process.terminate()
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


def ask(client: httpx.Client, model: str) -> tuple[str, list[int], Any]:
    response = client.post("/v1/completions", json={**BODY, "model": model, "logprobs": 0})
    assert response.status_code == 200, response.text
    answer = response.json()
    (choice,) = answer["choices"]
    return answer["system_fingerprint"], choice["text"], choice["logprobs"]["token_logprobs"]


def test_good_bundles_are_served_beside_damaged_ones(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "blocks"
    with served(folder, "--cache-dir", cache) as (client, line, _):
        assert " serves 5 models at http://" in line
        answers = {name: ask(client, name) for name in ("first", "second")}
        assert answers["first"][0] != answers["second"][0]
        assert answers["first"][1:] == answers["second"][1:]
        for name, reason in (
            ("no-program", f"{VMFB}: "),
            ("no-manifest", "not JSON"),
            ("short-weights", f"{PARAMETERS}: wrong size"),
        ):
            refused = client.post("/generate", json={**BODY, "model": name})
            assert refused.status_code == 503
            assert f"{name}: the model cannot be loaded: " in refused.json()["error"]["message"]
            assert reason in refused.json()["error"]["message"]
            status = client.get(f"/v1/models/{name}").json()["status"]
            assert status["failed"] is True
            assert reason in status["error"]
            assert str(folder) not in status["error"]  # the list is public
        for name, answer in answers.items():
            assert client.post("/models/unload", json={"model": name}).status_code == 200
            assert ask(client, name) == answer
        assert client.get("/health/ready").status_code == 200
        (folder / "no-manifest").rename(tmp_path.parent / "elsewhere")
        shutil.copytree(folder / "first", folder / "third")
        listed = client.get("/models?reload=1").json()["data"]
        names = ["first", "no-program", "second", "short-weights", "third"]
        assert sorted(model["id"] for model in listed) == names
        assert ask(client, "third") == answers["first"]
        # The prefix cache of each bundle has a folder of its own.
        assert len(list(cache.iterdir())) == 2


@pytest.mark.nightly
def test_a_damaged_bundle_is_served_once_it_is_repaired(folder: Path, bundle: Path) -> None:
    paths = [folder / "first", folder / "no-program"]
    with served(*paths, "--pin", "no-program") as (client, _, __):
        assert client.post("/models/load", json={"model": "no-program"}).status_code == 503
        shutil.copy(bundle / VMFB, folder / "no-program" / VMFB)
        assert client.post("/models/load", json={"model": "no-program"}).status_code == 200
        assert ask(client, "no-program")[1:] == ask(client, "first")[1:]


@pytest.mark.nightly
def test_settings_that_do_not_fit_several_bundles_are_rejected(folder: Path, bundle: Path) -> None:
    code, errors = failure("--port", "0", folder / "first", folder / "second", "--alias", "one")
    assert (code, "alias: only valid with one bundle" in errors) == (2, True)
    code, errors = failure("--port", "0", folder / "first", "--pin", "other")
    assert (code, 'pin: model: got "other"' in errors) == (2, True)
    (folder / "more").mkdir()
    shutil.copytree(bundle, folder / "more" / "first")
    code, errors = failure("--port", "0", folder / "first", folder / "more" / "first")
    assert (code, "several folders have the name 'first'" in errors) == (2, True)
    code, errors = failure("--port", "0", folder / "no-manifest", folder / "no-program")
    assert code == 1
    assert "not JSON" in errors.splitlines()[-1]
