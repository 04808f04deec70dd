"""Paths as a user types them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.bundle import MANIFEST, NotABundle
from hearthd.bundle.bundle_home import similar_names, typed_path

if TYPE_CHECKING:
    from pathlib import Path


def test_a_path_can_begin_with_a_tilde_or_be_a_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "my model.gguf"
    file.touch()
    for text in ("~/my model.gguf", file.as_uri(), f"file://localhost{tmp_path}/my%20model.gguf"):
        assert typed_path(text) == file


def test_a_folder_that_is_named_with_a_tilde_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~").mkdir()
    assert str(typed_path("~")) == "~"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "^MODEL is empty; specify "),
        ("x" * 300, r"^x{40}\.\.\.: not a bundle: 300 characters are too long for a path; give "),
        ("x/" * 2048, "not a bundle: 4096 characters are too long for a path; give "),
    ],
)
def test_a_text_that_cannot_be_a_path_is_refused(text: str, message: str) -> None:
    with pytest.raises(NotABundle, match=message):
        typed_path(text)


def test_a_name_of_which_only_the_start_was_typed_is_suggested(tmp_path: Path) -> None:
    for name in ("gemma-3-270m-q4_k_m", "smollm2", "smollm3-q4"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MANIFEST).touch()
    assert similar_names("Gemma-3", tmp_path) == ["gemma-3-270m-q4_k_m"]
    assert similar_names("smollm", tmp_path) == ["smollm2", "smollm3-q4"]
    assert len(similar_names("other", tmp_path)) == 3
