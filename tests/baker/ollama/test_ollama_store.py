"""Models in a folder that has the layout of Ollama's."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.ollama import ollama_store
from hearthd.baker.ollama.ollama_store import find_stored
from hearthd.baker.weights.source import NoWeights
from hearthd.bundle import NotABundle, Preset, PresetMessage
from hearthd.find_or_bake import find

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "application/vnd.ollama.image.model"


def write_blob(store: Path, data: bytes) -> tuple[str, Path]:
    """Write a file under its digest, unless it is there; returns the digest and the path."""
    digest = hashlib.sha256(data).hexdigest()
    path = store / "blobs" / f"sha256-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(data)
    return f"sha256:{digest}", path


def write_manifest(store: Path, name: str, layers: Any, host: str = "registry.ollama.ai") -> Path:
    path = store / "manifests" / host / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return path


def store_model(
    store: Path, name: str, data: bytes, host: str = "registry.ollama.ai", **layers: bytes
) -> Path:
    """Write a model and its manifest; `layers` are others, by kind. Returns the model's file."""
    digest, path = write_blob(store, data)
    written = [{"mediaType": MODEL, "digest": digest, "size": len(data)}]
    for kind, other in layers.items():
        media = f"application/vnd.ollama.image.{kind}"
        written.append({"mediaType": media, "digest": write_blob(store, other)[0], "size": 1})
    write_manifest(store, name, written, host)
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("reference", "host", "name", "expected"),
    [
        ("ollama:gemma3", "registry.ollama.ai", "library/gemma3/latest", "gemma3"),
        ("ollama:gemma3:270m", "registry.ollama.ai", "library/gemma3/270m", "gemma3-270m"),
        ("ollama:someone/tiny", "registry.ollama.ai", "someone/tiny/latest", "tiny"),
        ("ollama:hf.co/org/repo:Q4_K_M", "hf.co", "org/repo/Q4_K_M", "repo-Q4_K_M"),
    ],
)
def test_a_name_is_that_of_ollama(
    reference: str, host: str, name: str, expected: str, store: Path
) -> None:
    path = store_model(store, name, b"GGUF", host, template=b"{{ .Prompt }}", params=b"{}")
    found = find_stored(reference)
    assert (found.base, found.name) == (str(path), expected)


def test_the_folder_of_the_service_is_searched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(ollama_store, "_SERVICE", tmp_path / "service")
    path = store_model(tmp_path / "service", "library/qwen3/0.6b", b"GGUF")
    assert find_stored("ollama:qwen3:0.6b").base == str(path)
    with pytest.raises(NoWeights, match=r"expected one of: ollama:qwen3:0\.6b$"):
        find_stored("ollama:qwen3")


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("name", ["", "../x", "a/b/c/d", "a:b/c", "a:..", "/a"])
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(NoWeights, match="expected ollama:NAME or ollama:NAME:TAG"):
        find_stored(f"ollama:{name}")


def test_an_empty_folder_says_how_to_name_another(store: Path) -> None:
    with pytest.raises(NoWeights, match=f"no models in {store}; set OLLAMA_MODELS .* hf:ORG/REPO"):
        find_stored("ollama:gemma3")


def test_a_model_that_is_no_gguf_file_is_refused(store: Path) -> None:
    tensors = [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "sha256:" + "a" * 64}]
    write_manifest(store, "library/flux/latest", tensors)
    with pytest.raises(NoWeights, match="it has 0 GGUF files, expected 1"):
        find_stored("ollama:flux")


def test_a_digest_is_no_path(store: Path) -> None:
    write_manifest(store, "library/bad/latest", [{"mediaType": MODEL, "digest": "../../etc/x"}])
    with pytest.raises(NoWeights, match="it has 0 GGUF files, expected 1"):
        find_stored("ollama:bad")


def test_an_adapter_and_a_projector_are_options_of_the_bake(store: Path) -> None:
    store_model(store, "library/tuned/latest", b"GGUF", adapter=b"LoRA", projector=b"CLIP")
    files = find_stored("ollama:tuned").files
    assert {name: path.read_bytes() for name, path in files.items()} == {
        "adapter": b"LoRA",
        "mmproj": b"CLIP",
    }


def test_the_settings_beside_a_model_are_its_preset(store: Path) -> None:
    params = {"temperature": 0.6, "top_k": 20.0, "stop": ["<|end|>"], "num_ctx": 4096, "num_gpu": 9}
    messages = [{"role": "user", "content": "Hi"}]
    store_model(
        store,
        "library/qwen3/latest",
        b"GGUF",
        params=json.dumps(params).encode(),
        messages=json.dumps(messages).encode(),
        system=b"Be terse.",
        license=b"MIT",
        template=b"{{ .System }} {{ .Prompt }}",
    )
    found = find_stored("ollama:qwen3")
    assert found.preset == Preset(
        sampling={"temperature": 0.6, "top_k": 20},
        stop=("<|end|>",),
        context=4096,
        system="Be terse.",
        messages=(PresetMessage(role="user", content="Hi"),),
        license="MIT",
    )
    (note,) = found.notes
    assert note.startswith("ollama:qwen3: its template is in Go's template language, and not used")


def test_a_setting_that_is_not_known_is_left_out(store: Path) -> None:
    params = b'{"temperature": -1, "top_k": 20, "new": true}'
    store_model(store, "library/a/latest", b"GGUF", params=params, messages=b"{")
    found = find_stored("ollama:a")
    assert found.preset == Preset(sampling={"top_k": 20})
    assert [note.partition(" not used: ")[2].partition(":")[0] for note in found.notes] == [
        "not JSON", "temperature", "new"
    ]  # fmt: skip


def test_a_damaged_folder_is_one_sentence(store: Path) -> None:
    path = store_model(store, "library/a/latest", b"GGUF")
    path.unlink()
    with pytest.raises(NoWeights, match="is missing; pull it with `ollama pull` again"):
        find_stored("ollama:a")
    manifest = write_manifest(store, "library/b/latest", [])
    for text in ("{", "[]", '{"layers": 1}', '{"layers": [{"mediaType": 1}]}'):
        manifest.write_text(text)
        with pytest.raises(NoWeights, match=r"cannot read .*; pull it with `ollama pull` again"):
            find_stored("ollama:b")


def test_a_name_without_the_prefix_is_suggested_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    store_model(tmp_path / "ollama", "library/gemma3/270m", b"GGUF")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Gemma3-270m").mkdir()  # a similar name
    store_model(tmp_path / "ollama", "library/llama3.2/latest", b"GGUF")
    for name in ("gemma3:270m", "llama3.2"):
        with pytest.raises(NotABundle, match=rf"such path; did you mean ollama:{name}\?$"):
            find(name, tmp_path, {})
