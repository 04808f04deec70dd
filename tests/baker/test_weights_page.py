"""`hearth inspect` of weights that are not baked says what they are."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from examples.train_tiny_gemma import CONFIG
from hearthd.baker.checks.inspect_cli import app
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.pipeline.bake_options import bake_options
from hearthd.bundle import NotABundle, bundle_home
from hearthd.model_requirement import require_weights
from tests.baker.pipeline.test_tokenizer_first import UntilCompiled
from tests.baker.small_gemma import SMALL, small_gemma
from tests.baker.small_whisper import small_whisper
from tests.models.families.encoders.encoder_cases import recorded_encoder
from tests.models.families.gguf_files import write_gguf
from tests.models.families.split_gguf import split_gguf

if TYPE_CHECKING:
    from pathlib import Path


# With a token for each byte, a vocabulary of the size of SMALL.
SPECIAL = ("<bos>",)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(bundle_home.ENVIRONMENT, str(tmp_path / "home"))
    return small_gemma(tmp_path / "tiny gemma")


def rows(model: Path, weights: Path | None = None) -> dict[str, str]:
    """The page of weights, or of a Modelfile that names them: the texts by their names."""
    result = CliRunner().invoke(app, [str(model)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    path, *lines = result.output.splitlines()
    assert path == str(weights or model)
    return dict(re.split(r"  +|(?<=^next): ", line.strip(), maxsplit=1) for line in lines if line)


def test_a_folder_says_what_it_is(folder: Path) -> None:
    page = rows(folder)
    assert page | {"kind": "", "size": "", "tensors": ""} == {
        "kind": "",
        "family": "gemma3",
        "architecture": "gemma3",
        "size": "",
        "layers": f"{SMALL.layers} of width {SMALL.hidden}",
        "vocabulary": f"{SMALL.vocab_size} tokens",
        "tensors": "",
        "context": f"{SMALL.max_context:,} tokens",
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


def test_a_modelfile_says_what_it_sets(folder: Path, tmp_path: Path) -> None:
    modelfile = tmp_path / "Modelfile"
    modelfile.write_text(f"FROM {folder.name}\nPARAMETER top_k 3\nSYSTEM Be terse.")
    page = rows(modelfile, folder)
    assert (page["parameters"], page["system"]) == ("top_k 3", "Be terse.")
    assert page["next"] == f'hearth generate {modelfile} "Once upon a time"'


def test_a_file_says_what_it_is(folder: Path) -> None:
    page, of_folder = rows(write_gguf(folder, "gemma3", SMALL, SPECIAL)), rows(folder)
    assert page["kind"].startswith("GGUF file of ")
    same = ("family", "layers", "vocabulary", "chat", "size")
    assert [page[name] for name in same] == [of_folder[name] for name in same]


def test_a_split_file_says_in_how_many_shards_it_is(folder: Path) -> None:
    file = write_gguf(folder, "gemma3", SMALL, SPECIAL)
    shards, of_file = split_gguf(file, tensors=20), rows(file)
    page = rows(shards[1])
    assert re.fullmatch(r"GGUF file of \d+\.\d MB in 2 shards, not baked yet", page["kind"])
    changed = {"kind": "", "next": f"hearth generate '{shards[1]}' \"Once upon a time\""}
    assert page | {"kind": ""} == of_file | changed


def encoder(folder: Path, width: int) -> Path:
    """A BERT with matrices of this width, beside a folder with a tokenizer."""
    recorded = recorded_encoder("bert")
    config = {"hidden_size": width, "intermediate_size": width}
    files = {"config.json": recorded.files["config.json"] | config}
    shapes = {
        name: tuple(width if size in (48, 56) else size for size in shape)
        for name, shape in recorded.shapes.items()
    }
    path = folder.parent / "encoder"
    path.mkdir()
    replace(recorded, files=files, shapes=shapes).write(path)
    (folder / "tokenizer.json").rename(path / "tokenizer.json")
    return path


def test_an_encoder_says_what_it_is(folder: Path) -> None:
    model = encoder(folder, 64)
    page = rows(model)
    assert (page["family"], page["next"]) == ("bert", f"hearth serve {model}")
    assert "chat" not in page


def test_an_encoder_whose_matrices_have_no_groups_is_refused(folder: Path) -> None:
    model = encoder(folder, 56)
    refused = assert_refused(model)
    assert refused.startswith("--precision int8-g32 does not support this model: ")
    assert refused.endswith("; --precision bf16 supports every size")


def test_a_model_of_speech_is_served_and_not_run(folder: Path) -> None:
    whisper = small_whisper(folder.parent / "whisper")
    page = rows(whisper)
    assert (page["family"], page["next"]) == ("whisper", f"hearth serve {whisper}")
    assert "chat" not in page
    with pytest.raises(NotABundle, match="not a language model, which a chat needs: use `hearth s"):
        require_weights(whisper, "whisper", "chat")


def without_key(file: Path, key: str) -> None:
    """Give a key of a GGUF file another name of its length, which is unknown."""
    content = file.read_bytes()
    assert content.count(key.encode()) == 1
    file.write_bytes(content.replace(key.encode(), b"?" * len(key)))


@pytest.mark.parametrize(
    "key", ["tokenizer.ggml.tokens", "tokenizer.ggml.model", "tokenizer.ggml.scores"]
)
def test_no_command_is_named_for_a_file_that_a_bake_refuses(folder: Path, key: str) -> None:
    file = write_gguf(folder, "gemma3", SMALL, SPECIAL)
    without_key(file, key)
    refused = assert_refused(file)
    assert refused == f"{file}: {key} is missing; convert the model again with llama.cpp"


def assert_refused(model: Path) -> str:
    """Why `hearth inspect` and a bake refuse a model, which is the same."""
    result = CliRunner().invoke(app, [str(model)])
    assert isinstance(result.exception, NotABundle)
    assert "next:" not in result.output
    with pytest.raises(BAKE_ERRORS) as refused:
        bake(bake_options({"weights": model, "out": model.parent / "out"}), UntilCompiled())
    assert str(result.exception) == str(refused.value)
    return str(refused.value)


def test_what_a_bake_finds_in_the_tensors_is_found(folder: Path) -> None:
    file = write_gguf(folder, "gemma3", CONFIG, SPECIAL)  # of narrower heads
    message = f"{file}: tensor blk.0.attn_q.weight has shape (256, 64), the configuration says "
    assert assert_refused(file) == f"{message}(64, 64)"


def test_what_a_bake_finds_in_the_tokenizer_is_found(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% if %}")
    assert assert_refused(folder).startswith(f"{folder}: the chat template is not valid Jinja")


@pytest.mark.parametrize("key", ["gemma3.block_count", "gemma3.embedding_length"])
def test_a_missing_key_is_named_with_its_file(folder: Path, key: str) -> None:
    file = write_gguf(folder, "gemma3", SMALL, SPECIAL)
    without_key(file, key)
    assert assert_refused(file) == f"{file}: {key} is missing"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": "64"}))
    assert assert_refused(folder).startswith(
        f"{folder}: as gemma3: config.json: hidden_size: expected "
    )


def test_weights_that_cannot_be_read_say_why(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "gemma9"}')
    with pytest.raises(NotABundle, match=r"got 'gemma9', .*; similar supported names: gemma"):
        rows(folder)
