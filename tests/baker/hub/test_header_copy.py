"""Copies of headers read as the files do, and take little disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from safetensors.numpy import save

from hearthd.baker.hub import header_copy
from hearthd.baker.hub.header_copy import copy_headers
from hearthd.baker.hub.reference import parse_reference
from hearthd.baker.hub.repository import Repository
from hearthd.baker.weights.gguf import GgufSource, tensor_ranges
from hearthd.baker.weights.safetensors import SafetensorsFile
from hearthd.baker.weights.source import BadFile
from tests.conftest import Silent

if TYPE_CHECKING:
    from pathlib import Path

    from tests.baker.hub.local_hub import LocalHub

TABLE = np.ones((1024, 4096), np.float32)  # 16 MiB
FACTORS = np.arange(1, 9, dtype=np.float32)


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A GGUF file whose last tensor is a part of the configuration."""
    path = tmp_path / "stored.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("words", [f"word {number}" for number in range(1000)])
    writer.add_tensor("table", TABLE)
    writer.add_tensor("rope_freqs.weight", FACTORS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def copied(hub: LocalHub, path: str, content: bytes, folder: Path) -> Path:
    """The copy of a file of the hub."""
    hub.repositories["a/one"] = {path: content}
    repository = Repository(parse_reference("hf:a/one"))
    folder.mkdir()
    copy_headers(repository, repository.files, folder, Silent())
    return folder / path


@pytest.mark.parametrize("first", [10, 5000, 1 << 16])
def test_a_gguf_copy_has_the_header_and_the_configuration(
    first: int, stored: Path, hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_copy, "_FIRST_GGUF", first)
    path = copied(hub, "model.gguf", stored.read_bytes(), tmp_path / "copy")
    copy, source = GgufSource(path), GgufSource(stored)
    assert copy.metadata() == source.metadata()
    assert copy.names() == source.names()
    np.testing.assert_array_equal(copy.read("rope_freqs.weight"), FACTORS)
    assert path.stat().st_size == stored.stat().st_size
    assert path.stat().st_blocks * 512 < 1 << 20
    assert hub.sent < 1 << 18


@pytest.mark.parametrize("first", [10, 1 << 16])
def test_a_safetensors_copy_has_the_header(
    first: int, hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_copy, "_FIRST_TABLE", first)
    content = save({"table": TABLE})
    path = copied(hub, "model.safetensors", content, tmp_path / "copy")
    assert SafetensorsFile(path).shape("table") == TABLE.shape
    assert path.stat().st_size == len(content)
    assert path.stat().st_blocks * 512 < 1 << 20
    assert hub.sent < 1 << 18


def test_tensors_are_where_the_source_reads_them(stored: Path, tmp_path: Path) -> None:
    ranges = tensor_ranges(stored)
    assert ranges is not None
    content = stored.read_bytes()
    for name in ("table", "rope_freqs.weight"):
        values = np.frombuffer(content[ranges[name].start : ranges[name].stop], np.float32)
        np.testing.assert_array_equal(values, GgufSource(stored).read(name).reshape(-1))
    part = tmp_path / "part.gguf"
    part.write_bytes(content[:5000])
    assert tensor_ranges(part) is None
    part.write_bytes(b"GGML" + content[4:5000])
    with pytest.raises(BadFile, match="not a GGUF file"):
        tensor_ranges(part)
