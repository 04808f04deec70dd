"""Which of a bundle's programs computes an answer: in system_fingerprint, /health and /props."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import FileRecord, LanguageManifest, ProgramFile, Target, digest
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.server.services.service import fingerprint
from hearthd.text.tokenizer import Tokenizer
from tests.fake_runtime import FakeRuntime
from tests.server import adapter_folders, fakes
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

OTHER = ProgramFile(
    file="model.x86_64-amx.vmfb",
    target=Target(name="x86_64-amx", triple="x86_64-linux-gnu", cpu="x86-64", features=()),
    instructions="amx",
)


def with_other(manifest: Any) -> Any:
    """The manifest of a bundle that also has the program OTHER."""
    record = FileRecord(name=OTHER.file, bytes=9, sha256="ef")
    return replace(manifest, other_programs=(OTHER,), files=(*manifest.files, record))


@pytest.fixture
def runtime() -> FakeRuntime:
    size = LIBRARY.get_vocab_size()
    return FakeRuntime(vocab_size=size, context=64, adapters=adapter_folders.PLACES)


@pytest.fixture
def manifest(runtime: FakeRuntime) -> LanguageManifest:
    both: LanguageManifest = with_other(fakes.manifest_of(runtime))
    return both


def test_a_fingerprint_names_one_program_of_several(manifest: LanguageManifest) -> None:
    first, other = (fingerprint(manifest, program) for program in manifest.programs)
    assert other == f"{fingerprint(manifest)}-x86_64-amx"
    assert first == f"{fingerprint(manifest)}-{manifest.target.name}"
    assert fingerprint(manifest, OTHER, b"sql").endswith("-x86_64-amx")
    assert fingerprint(manifest, OTHER, b"sql") != other
    single = replace(manifest, other_programs=())
    assert fingerprint(single, single.programs[0]) == fingerprint(single)


def test_a_comparison_after_the_bake_changes_no_fingerprint(manifest: LanguageManifest) -> None:
    """It writes golden values and their tolerance; answers are the same before and after it."""
    assert manifest.golden
    compared = replace(manifest, golden=manifest.golden[:0], tolerance=2 * manifest.tolerance)
    assert fingerprint(compared) == fingerprint(manifest)
    assert digest(compared) != digest(manifest)
    longer = replace(manifest, context=manifest.context + 1)
    first, *others = manifest.files
    files = replace(manifest, files=(replace(first, sha256="0" * 64), *others))
    assert len({fingerprint(changed) for changed in (manifest, longer, files)}) == 3


def test_answers_name_the_program_that_computed_them(
    runtime: FakeRuntime, manifest: LanguageManifest, tmp_path: Path
) -> None:
    adapter_folders.write(tmp_path / "sql", adapter_folders.tensors(0))
    service = LocalLanguageService(
        runtime,
        Tokenizer(LIBRARY, bos=None, context=64),
        manifest,
        EngineOptions(lora_dir=tmp_path),
        name="fake-model",
        program=OTHER,
    )
    with fakes.running(service) as client:
        client.post("/lora-adapters/load", json={"path": "sql"}).raise_for_status()
        expected = fingerprint(manifest, OTHER)
        assert answered(client, "fake-model") == client.get("/health").json()["bundle"] == expected
        adapted = answered(client, "fake-model:sql")
        assert adapted != expected
        assert adapted.endswith("-x86_64-amx")
        props = client.get("/props").json()
        assert (props["target"], props["kernels"]["instructions"]) == ("x86_64-amx", "amx")
        assert client.get("/health").json()["model"]["target"] == "x86_64-amx"


def answered(client: httpx.Client, model: str) -> str:
    """The system_fingerprint of an answer."""
    fields = {"model": model, "prompt": [5, 6], "max_tokens": 1, "temperature": 0}
    response = client.post("/v1/completions", json=fields)
    response.raise_for_status()
    value: str = response.json()["system_fingerprint"]
    return value


def test_an_unloaded_model_has_the_fingerprint_of_the_program_that_a_load_would_choose(
    manifest: LanguageManifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Deployment("fake-model", _never_opened, manifest=manifest)
    monkeypatch.setattr("hearthd.runtime.system.cpu_features.this_machine", lambda: "x86_64")
    assert model.fingerprint == fingerprint(manifest, OTHER)
    monkeypatch.setattr("hearthd.runtime.system.cpu_features.this_machine", lambda: "riscv64")
    assert model.fingerprint == fingerprint(manifest, manifest.programs[0])


def _never_opened(_reserved: int) -> Any:
    raise AssertionError("nothing asks for it")
