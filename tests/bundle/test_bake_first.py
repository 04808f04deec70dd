"""Weights in place of a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.bundle import NotABundle, read_manifest

if TYPE_CHECKING:
    from pathlib import Path


def test_the_error_says_how_to_bake_them(tmp_path: Path) -> None:
    folder, file = tmp_path / "tiny llama", tmp_path / "model.gguf"
    folder.mkdir()
    (folder / "config.json").touch()
    file.touch()
    for path, quoted in ((folder, f"'{folder}'"), (file, str(file))):
        message = (
            f"; it has weights: .* `hearth list` .*, or bake them with `hearth bake {quoted}`$"
        )
        with pytest.raises(NotABundle, match=message):
            read_manifest(path)
    with pytest.raises(NotABundle, match=rf"^{file}: not a bundle: got a file, expected a folder"):
        read_manifest(file)


def test_a_path_that_cannot_be_read_is_not_a_bundle(tmp_path: Path) -> None:
    """Path.exists and Path.is_file raise for it, up to Python 3.13."""
    with pytest.raises(NotABundle, match=r"cannot read manifest\.json: File name too long$"):
        read_manifest(tmp_path / ("x" * 300))
