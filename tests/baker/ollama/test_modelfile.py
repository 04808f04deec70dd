"""What a Modelfile says, and its errors with their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.baker.ollama.modelfile import BadModelfile, described, is_modelfile, read_modelfile
from hearthd.bundle import Preset, PresetMessage
from hearthd.bundle.modelfile_text import modelfile
from tests.baker.ollama.test_ollama_store import store_model

if TYPE_CHECKING:
    from pathlib import Path

PRESET = Preset(
    sampling={"temperature": 0.5, "top_k": 20},
    stop=("<|end|>", "A\nB"),
    seed=7,
    max_tokens=64,
    context=4096,
    system='You are "Mario".\n\nBe brief.',
    messages=(
        PresetMessage(role="user", content="Hi"),
        PresetMessage(role="assistant", content="It's-a me:\nMario"),
    ),
    license="MIT",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    for name in ("model", "mmproj", "adapter"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF")
    return tmp_path


def write(folder: Path, text: str, name: str = "Modelfile") -> Path:
    path = folder / name
    path.write_text(text, newline="")
    return path


def test_the_modelfile_of_a_preset_is_read_as_the_preset(folder: Path) -> None:
    described_ = read_modelfile(write(folder, modelfile("./model.gguf", PRESET)))
    assert described_.base == str(folder / "model.gguf")
    assert described_.preset == PRESET


def test_a_modelfile_is_read_as_ollama_reads_it(folder: Path) -> None:
    text = '''# A comment
from ./model.gguf

  Parameter TEMPERATURE 1
PARAMETER top_k 20.0
PARAMETER stop "<|a|>"
PARAMETER stop <|b|>
PARAMETER stop ""
PARAMETER num_gpu 99
PARAMETER num_predict -1
SYSTEM """
  Be # terse.
"""
SYSTEM """Be "kind"
and "brief"."""
MESSAGE user "Hi
there"
LICENSE A
LICENSE B
'''.replace("\n", "\r\n")
    assert read_modelfile(write(folder, text)).preset == Preset(
        sampling={"temperature": 1, "top_k": 20},
        stop=("<|a|>", "<|b|>"),
        system='Be "kind"\nand "brief".',
        messages=(PresetMessage(role="user", content="Hi\nthere"),),
        license="A\n\nB",
    )


def test_files_are_beside_the_modelfile(folder: Path) -> None:
    text = "FROM model.gguf\nFROM ./mmproj.gguf\nADAPTER ./adapter.gguf\n"
    files = read_modelfile(write(folder, text)).files
    assert files == {"mmproj": folder / "mmproj.gguf", "adapter": folder / "adapter.gguf"}


def test_a_model_of_ollama_lends_its_settings(folder: Path) -> None:
    params = b'{"temperature": 0.6, "top_k": 20, "stop": ["a"]}'
    blob = store_model(
        folder / "ollama", "library/qwen3/4b", b"GGUF", params=params, system=b"S", license=b"MIT"
    )
    text = "FROM qwen3:4b\nPARAMETER temperature 1\nPARAMETER stop b\n"
    found = described(str(write(folder, text)))
    assert found is not None
    assert found.base == str(blob)
    assert found.preset == Preset(
        sampling={"temperature": 1, "top_k": 20}, stop=("b",), system="S", license="MIT"
    )


def test_a_model_of_the_hub_is_named(folder: Path) -> None:
    for base in ("hf.co/org/repo:Q4_K_M", "hf:org/repo"):
        assert read_modelfile(write(folder, f"FROM {base}")).base == base


def test_a_template_is_not_used(folder: Path) -> None:
    text = 'FROM model.gguf\nTEMPLATE """{{ .Prompt }}\n{{ .Response }}"""\nPARSER qwen3\n'
    notes = read_modelfile(write(folder, text)).notes
    assert [note.partition(": ")[2][:40] for note in notes] == [
        "TEMPLATE is in Go's template language, a",
        "PARSER is not used: it names code of Oll",
    ]
    assert [note.partition(": ")[0][-2:] for note in notes] == [":2", ":4"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Modelfile", "{}"), ("Modelfile.mario", "mario"), ("mario.modelfile", "mario"), ("a", "a")],
)
def test_a_bundle_is_named_after_the_modelfile(folder: Path, name: str, expected: str) -> None:
    described_ = read_modelfile(write(folder, "FROM model.gguf", name))
    assert described_.name == expected.format(folder.name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PARAMETER top_k 1", "Modelfile: it has no line FROM"),
        ("FROM ./x.gguf", r"Modelfile:1: FROM: .*x\.gguf does not exist"),
        ("FROM llama3.2", "Modelfile:1: FROM ollama:llama3.2: Ollama has no models in"),
        ("FROM ./Modelfile", "Modelfile:1: FROM: .*Modelfile is a Modelfile, expected a model"),
        ("{}\nRUN pip", "Modelfile:2: got RUN, expected one of FROM, PARAMETER, SYSTEM, "),
        ("{}\n\nPARAMETER top_k x", "Modelfile:3: PARAMETER top_k: got 'x', expected a number"),
        ("{}\nPARAMETER top_p 2", "Modelfile:2: PARAMETER top_p: got 2, expected less than or"),
        ("{}\nPARAMETER seed 1.5", "Modelfile:2: PARAMETER seed: got 1.5, expected an integer"),
        ("{}\nPARAMETER temprature 1", "2: PARAMETER temprature: unknown .*mean temperature?"),
        ("{}\nPARAMETER top_k", "Modelfile:2: PARAMETER top_k: the value is missing"),
        ("{}\nSYSTEM", "Modelfile:2: SYSTEM: the value is missing"),
        (f"{{}}\nPARAMETER stop {'x' * 257}", "Modelfile:2: PARAMETER stop: got .*, expected at "),
        ('{}\nSYSTEM """a\nb', "Modelfile:2: SYSTEM: its quotes do not end"),
        ("{}\nMESSAGE bot Hi", "Modelfile:2: MESSAGE role: got .bot., expected 'system', 'user'"),
        ("{}\nADAPTER ./x", "Modelfile:2: ADAPTER: .*x does not exist"),
        ("{}\nADAPTER model.gguf\nADAPTER model.gguf", "Modelfile:3: ADAPTER: got another one"),
    ],
)
def test_an_error_names_the_line(folder: Path, text: str, message: str) -> None:
    path = write(folder, text.replace("{}", "FROM model.gguf"))
    with pytest.raises(BadModelfile, match=message):
        read_modelfile(path)


def test_a_second_adapter_is_refused(folder: Path) -> None:
    store_model(folder / "ollama", "library/tuned/latest", b"GGUF", adapter=b"LoRA")
    path = write(folder, "FROM tuned\nADAPTER adapter.gguf")
    with pytest.raises(BadModelfile, match=r"Modelfile:2: ADAPTER: .* has an adapter already"):
        read_modelfile(path)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (b"# Made by hand\n\nfrom x\n", True),
        (b"PARAMETER top_k 1\nFROM x\n", True),
        (b"License\n\nCopyright\n", False),
        (b"# Read me\nFROM x\nto y", True),
        (b"Read me\nFROM x", False),
        (b"FROM x\0", False),
        (b"", False),
    ],
)
def test_a_modelfile_is_recognized_by_its_first_line(
    folder: Path, contents: bytes, *, expected: bool
) -> None:
    path = folder / "file"
    path.write_bytes(contents)
    assert is_modelfile(path) is expected
    assert not is_modelfile(folder)
