"""A model of Ollama or a Modelfile becomes a bundle, which is found again."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from hearthd.bundle import NotABundle, bundle_home
from hearthd.find_or_bake import find, find_or_bake
from tests.baker.ollama.test_ollama_store import store_model
from tests.fake_bakes import Bakes

if TYPE_CHECKING:
    from pathlib import Path

GGUF = b"GGUF" + bytes(100)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    return tmp_path / "home"


@pytest.fixture
def bakes(monkeypatch: pytest.MonkeyPatch) -> Bakes:
    bakes = Bakes()
    monkeypatch.setattr(subprocess, "Popen", bakes)
    return bakes


def test_a_model_of_ollama_is_baked_with_what_is_beside_it(
    home: Path, bakes: Bakes, tmp_path: Path
) -> None:
    beside: dict[str, bytes]
    for beside in ({}, {"system": b"S"}, {"system": b"S", "adapter": b"LoRA"}):
        store_model(
            tmp_path / "ollama", "library/gemma3/270m", GGUF, "registry.ollama.ai", **beside
        )
        for _ in range(2):
            assert find_or_bake("ollama:gemma3:270m", None, {}) == home / "gemma3-270m"
    assert bakes.arguments == [["--", "ollama:gemma3:270m"]] * 3
    with pytest.raises(NotABundle, match=r"^ollama:qwen3: Ollama did not .*: ollama:gemma3:270m$"):
        find("ollama:qwen3", None, {})


def test_a_modelfile_is_baked_again_when_it_changes(
    home: Path, bakes: Bakes, tmp_path: Path
) -> None:
    weights, modelfile = tmp_path / "my model.gguf", tmp_path / "mario.modelfile"
    weights.write_bytes(GGUF)
    for text in (f'FROM "{weights}"', f"FROM ./{weights.name}\nSYSTEM Be terse."):
        modelfile.write_text(text)
        for name in (str(modelfile), f"file://{modelfile}"):
            assert find_or_bake(name, None, {}) == home / "mario"
    assert bakes.arguments == [["--", str(modelfile)]] * 2
    assert find_or_bake(str(weights), None, {}) == home / "my-model"
    modelfile.write_text("FROM ./missing.gguf\n")
    with pytest.raises(NotABundle, match=f"^{modelfile}:1: FROM: .*missing.gguf does not exist$"):
        find(str(modelfile), None, {})
