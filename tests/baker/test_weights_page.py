"""`hearth inspect` of weights that are not baked says what they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from examples.train_tiny_gemma import CONFIG
from hearthd.baker.checks.inspect_cli import app
from hearthd.bundle import NotABundle, bundle_home
from tests.baker.small_gemma import small_gemma
from tests.models.families.encoders.encoder_cases import recorded_encoder
from tests.models.families.gguf_files import write_gguf
from tests.models.families.split_gguf import split_gguf

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    return small_gemma(tmp_path / "tiny gemma")


def rows(model: Path) -> dict[str, str]:
    """The page of weights: the texts by their names."""
    result = CliRunner().invoke(app, [str(model)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    path, *lines = result.output.splitlines()
    assert path == str(model)
    return dict(re.split(r"  +|(?<=^next): ", line.strip(), maxsplit=1) for line in lines if line)


def test_a_folder_says_what_it_is(folder: Path) -> None:
    page = rows(folder)
    assert page | {"kind": "", "size": "", "tensors": ""} == {
        "kind": "",
        "family": "gemma3",
        "architecture": "gemma3",
        "size": "",
        "layers": f"{CONFIG.layers} of width {CONFIG.hidden}",
        "vocabulary": f"{CONFIG.vocab_size} tokens",
        "tensors": "",
        "context": f"{CONFIG.max_context:,} tokens",
        "chat": "a base model: no chat template",
        "next": f"hearth generate '{folder}' \"Once upon a time\"",
    }
    assert re.fullmatch(r"Hugging Face folder of \d+\.\d MB, not baked yet", page["kind"])
    assert re.fullmatch(r"\d+ million parameters in \d+ tensors", page["size"])
    assert re.fullmatch(r"\d+ in f32", page["tensors"])


def test_a_template_is_seen(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    page = rows(folder)
    assert page["chat"] == "it has a chat template"
    assert page["next"] == f"hearth run '{folder}'"


def test_a_file_says_what_it_is(folder: Path) -> None:
    page, of_folder = rows(write_gguf(folder, "gemma3", CONFIG)), rows(folder)
    assert page["kind"].startswith("GGUF file of ")
    same = ("family", "layers", "vocabulary", "chat", "size")
    assert [page[name] for name in same] == [of_folder[name] for name in same]


def test_a_split_file_says_in_how_many_shards_it_is(folder: Path) -> None:
    file = write_gguf(folder, "gemma3", CONFIG)
    shards, of_file = split_gguf(file, tensors=20), rows(file)
    page = rows(shards[1])
    assert re.fullmatch(r"GGUF file of \d+\.\d MB in 2 shards, not baked yet", page["kind"])
    changed = {"kind": "", "next": f"hearth generate '{shards[1]}' \"Once upon a time\""}
    assert page | {"kind": ""} == of_file | changed


def test_an_encoder_says_what_it_is(folder: Path) -> None:
    encoder = folder.parent / "encoder"
    encoder.mkdir()
    recorded_encoder("bert").write(encoder)
    (encoder / "tokenizer.json").touch()
    page = rows(encoder)
    assert (page["family"], page["next"]) == ("bert", f"hearth serve {encoder}")
    assert "chat" not in page


def test_weights_that_cannot_be_read_say_why(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "gemma9"}')
    with pytest.raises(NotABundle, match=r"got 'gemma9', expected one of .*; the nearest is gemma"):
        rows(folder)
