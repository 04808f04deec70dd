"""The chat template comes from the file of a folder in which transformers finds it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.tokenizer.folder_template import folder_template
from hearthd.baker.weights.source import BadFile

if TYPE_CHECKING:
    from pathlib import Path

OF_PROCESSOR = ["processor_config.json", "chat_template.json"]
OF_TOKENIZER = ["chat_template.jinja", "tokenizer_config.json"]


def write(folder: Path, name: str) -> None:
    text = name if name.endswith(".jinja") else json.dumps({"chat_template": name})
    (folder / name).write_text(text)


@pytest.mark.parametrize("name", [*OF_PROCESSOR, *OF_TOKENIZER])
def test_each_file_can_have_the_template(tmp_path: Path, name: str) -> None:
    assert folder_template(tmp_path) is None
    write(tmp_path, name)
    assert folder_template(tmp_path) == name


def test_a_tokenizer_prefers_its_own_files(tmp_path: Path) -> None:
    for name in ("chat_template.json", *reversed(OF_TOKENIZER)):
        write(tmp_path, name)
    assert folder_template(tmp_path) == "chat_template.jinja"
    (tmp_path / "chat_template.jinja").unlink()
    assert folder_template(tmp_path) == "tokenizer_config.json"


def test_a_processor_prefers_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text("{}")
    for name in reversed([*OF_PROCESSOR, *OF_TOKENIZER]):
        write(tmp_path, name)
        assert folder_template(tmp_path) == name


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text("{% for")
    with pytest.raises(BadFile, match=r"chat_template\.json"):
        folder_template(tmp_path)
