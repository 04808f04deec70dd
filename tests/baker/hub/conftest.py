"""A local hub with small models, and the client of the hub set to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

from examples.train_tiny_gemma import CONFIG
from hearthd.baker.hub import repository, verdict
from tests.baker.hub.local_hub import LocalHub, serving
from tests.baker.small_gemma import small_gemma
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# With a token for each byte, a vocabulary of the size of CONFIG.
SPECIAL = ("<bos>",)


@dataclass(frozen=True)
class Files:
    """The bytes of a small model: as GGUF, and as the files of a Hugging Face folder."""

    gguf: bytes
    folder: dict[str, bytes]


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = small_gemma(tmp_path_factory.mktemp("small"), CONFIG)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return Files(write_gguf(folder, "gemma3", CONFIG, SPECIAL).read_bytes(), files)


@pytest.fixture(scope="session")
def larger(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A GGUF file whose weights take 3 MB more."""
    config = replace(CONFIG, ffn=8192)
    folder = small_gemma(tmp_path_factory.mktemp("larger"), config)
    return write_gguf(folder, "gemma3", config, SPECIAL).read_bytes()


@pytest.fixture
def hub(small: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    """The hub: `a/gguf` has quantizations, `a/folder` has safetensors. The cache is empty."""
    with serving() as server:
        server.repositories = {
            "a/gguf": {
                "README.md": b"# A model\n",
                "model-Q4_K_M.gguf": small.gguf,
                "model-Q8_0.gguf": small.gguf + bytes(32),
            },
            "a/folder": {**small.folder, "pytorch_model.bin": b"not read"},
        }
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in (
            ("ENDPOINT", server.url),
            ("HUGGINGFACE_CO_URL_TEMPLATE", template),
            ("HF_HUB_CACHE", str(tmp_path / "cache")),
            ("HF_HUB_OFFLINE", False),
        ):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(repository, "_PAUSE", 0.0)
        monkeypatch.setattr(verdict, "read_bandwidth", lambda *_: 20.0)
        yield server
        close_session()
