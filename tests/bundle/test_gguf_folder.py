"""A folder with the GGUF file of one model names the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.bundle import NotABundle
from hearthd.bundle.gguf_folder import gguf_file_in
from hearthd.find_or_bake import find
from hearthd.model_weights import Weights

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ("a.gguf", "a.gguf"),
        ("a.gguf config.json README.md", "a.gguf"),
        ("a.gguf mmproj-a-f16.gguf b.gguf.part", "a.gguf"),
        ("a-00001-of-00002.gguf a-00002-of-00002.gguf", "a-00001-of-00002.gguf"),
        ("a-Q4_0.gguf a-Q8_0.gguf", None),
        ("mmproj-a-f16.gguf", None),
        ("a.gguf config.json model.safetensors", None),
        ("a.gguf manifest.json", None),
        ("a.txt", None),
    ],
)
def test_a_folder_with_one_model_is_its_file(files: str, found: str | None, tmp_path: Path) -> None:
    for name in files.split():
        (tmp_path / name).touch()
    assert gguf_file_in(tmp_path) == (tmp_path / found if found else tmp_path)


def test_every_command_takes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "publisher"
    folder.mkdir()
    file = folder / "a.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    assert find(str(folder), tmp_path / "home", {}) == Weights(str(file), file, "a")
    (folder / "b.gguf").touch()
    with pytest.raises(NotABundle, match=r"specify one of its GGUF files, such as .*a\.gguf$"):
        find(str(folder), tmp_path / "home", {})


def test_weights_and_drafters_can_be_folders(tmp_path: Path) -> None:
    (file := tmp_path / "a.gguf").touch()
    options = bake_options({"weights": str(tmp_path), "drafter": str(tmp_path)})
    assert (options.weights, options.drafter) == (file, file)
