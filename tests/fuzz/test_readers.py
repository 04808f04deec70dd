"""A short run of the fuzzer of tools/fuzz, and every file that once revealed a defect."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
import tracemalloc
import warnings
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.baker.compare.sides.recording import RecordingError, read_recording
from hearthd.baker.parameters.irpa import ArchiveWriter, BadArchive, open_archive
from hearthd.baker.reference.numpy_runtime import open_reference, stored_parameters
from hearthd.baker.weights.safetensors import read_json
from hearthd.baker.weights.source import BadFile
from hearthd.bundle import Corrupt, FileRecord, NotABundle, read_manifest, verify_files
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.models.config import ConfigError
from hearthd.models.dsl.types import DType, TensorType
from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from hearthd.text.templates import template_budget
from tests.bundle.example_manifests import EXAMPLE
from tests.conftest import few
from tools.fuzz.bundle_readers import BUNDLE, KEY, stored_block
from tools.fuzz.reader import Reader, attempt, read
from tools.fuzz.readers import READERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_BYTES = 64 << 20
each_reader = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


@each_reader
def test_valid_files_are_accepted(reader: Reader) -> None:
    assert read(reader, reader.files())


@each_reader
@few(10)
@given(seed=st.integers(0, 2**32))
def test_damage_is_a_named_error_or_harmless(reader: Reader, seed: int) -> None:
    """`python -m tools.fuzz --reader NAME --seed SEED --runs 1` does the same."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")  # of NumPy, on NaN values
        patch.setattr(template_budget, "MAX_SECONDS", 0.02)
        patch.setattr(template_budget, "MAX_BYTES", 4 << 20)
        read(reader, reader.files())  # what is made once does not count
        tracemalloc.start()
        try:
            attempt(reader, Random(seed))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < MAX_BYTES


# --- what was found


def with_config(name: str, **changes: Any) -> dict[str, bytes]:
    config = json.loads(READERS[f"config-{name}"].files()["config.json"])
    return {"config.json": json.dumps(config | changes).encode()}


def with_metadata(name: str, **changes: Any) -> dict[str, bytes]:
    metadata = json.loads(READERS[f"gguf-{name}"].files()["metadata.json"])
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {"metadata.json": json.dumps(metadata | changed).encode()}


def with_tokenizer(**changes: Any) -> dict[str, bytes]:
    files = dict(READERS["tokenizer-folder"].files())
    for name, value in changes.items():
        file = f"{name}.json"
        files[file] = json.dumps(json.loads(files[file]) | value).encode()
    return files


def with_manifest(text: str, other: str) -> dict[str, bytes]:
    files = dict(READERS["manifest-language"].files())
    manifest = files["manifest.json"].decode()
    assert text in manifest
    return {**files, "manifest.json": manifest.replace(text, other).encode()}


def safetensors(**tensors: Any) -> dict[str, bytes]:
    header = json.dumps(tensors).encode()
    return {"model.safetensors": struct.pack("<Q", len(header)) + header}


def with_setting(line: str) -> dict[str, bytes]:
    return {"serve.toml": line.encode()}


def template(source: str) -> dict[str, bytes]:
    return {"chat_template.jinja": source.encode()}


def with_adapter(**changes: Any) -> dict[str, bytes]:
    config = json.loads(READERS["adapter"].files()[CONFIG])
    return {CONFIG: json.dumps(config | changes).encode()}


DEEP = b"[" * 50_000 + b"]" * 50_000
KNOWN_DAMAGE = {
    "a rank beyond all memory": ("adapter", with_adapter(r=10**12)),
    "a rank beyond an index": ("adapter", with_adapter(r=2**62)),
    "deep JSON": ("config-gemma3", {"config.json": DEEP}),
    "a key twice": (
        "config-llama",
        {"config.json": with_config("llama")["config.json"].replace(b"{", b'{"vocab_size":1,', 1)},
    ),
    "heads of text": ("config-llama", with_config("llama", num_attention_heads="9")),
    "no heads": ("config-llama", with_config("llama", num_attention_heads=0)),
    "no key/value heads": ("config-gemma3", with_config("gemma3", num_key_value_heads=0)),
    "a negative scale": ("config-gemma3", with_config("gemma3", query_pre_attn_scalar=-1)),
    "a billion layers": ("config-gemma3", with_config("gemma3", num_hidden_layers=10**9)),
    "a pattern of text": ("config-gemma3", with_config("gemma3", _sliding_window_pattern="6")),
    "rope that is a list": ("config-gemma3-rope", with_config("gemma3-rope", rope_parameters=[1])),
    "rope of lists": (
        "config-gemma3-rope",
        with_config(
            "gemma3-rope", rope_parameters={"full_attention": [], "sliding_attention": []}
        ),
    ),
    "scaling of text": ("config-llama", with_config("llama", rope_scaling="linear")),
    "a factor of text": (
        "config-llama",
        with_config("llama", rope_scaling={"type": "linear", "factor": "x"}),
    ),
    "a text model of text": ("config-gemma3-text", with_config("gemma3-text", text_config="x")),
    "tokens of numbers": ("gguf-gemma3", with_metadata("gemma3", tokens=[*range(8)])),
    "types of text": ("gguf-gemma3", with_metadata("gemma3", token_type=["1"] * 8)),
    "scores of text": ("gguf-gemma3", with_metadata("gemma3", scores=["1"] * 8)),
    "a score that is NaN": (
        "gguf-gemma3",
        with_metadata("gemma3", scores=[float("nan")] * 8),
    ),
    "merges of numbers": ("gguf-llama", with_metadata("llama", merges=[1])),
    "a token of a megabyte": (
        "gguf-gemma3",
        with_metadata("gemma3", tokens=[*"abcdefg", "a" * 10**6]),
    ),
    "a start token that is not a valid name": (
        "gguf-gemma3",
        with_metadata("gemma3", tokens=["<unk>", "$A:x", *"abcdef"]),
    ),
    "a hundred axes": (
        "safetensors",
        safetensors(a={"dtype": "F32", "shape": [1] * 100 + [0], "data_offsets": [0, 0]}),
    ),
    "4e18 rows of nothing": (
        "safetensors",
        safetensors(a={"dtype": "F32", "shape": [2**62, 0], "data_offsets": [0, 0]}),
    ),
    "a shard with a long name": (
        "safetensors-index",
        {
            "config.json": b"{}",
            "model.safetensors.index.json": json.dumps({"weight_map": {"a": "x" * 999}}).encode(),
        },
    ),
    "a vocabulary of nothing": (
        "tokenizer-folder",
        with_tokenizer(tokenizer={"model": {"type": "BPE", "vocab": {}, "merges": []},
                                  "added_tokens": []}),
    ),
    "infinite tolerance": (
        "manifest-language",
        with_manifest('"tolerance": 0.05', '"tolerance": 1e999'),
    ),
    "a tolerance of 400 digits": (
        "manifest-language",
        with_manifest('"tolerance": 0.05', f'"tolerance": 1{"0" * 400}'),
    ),
    "half a character": ("manifest-language", with_manifest('"0.1.0"', '"\\ud800"')),
    "no slots": ("manifest-language", with_manifest('"slots": 2', '"slots": 0')),
    "a trillion slots": ("manifest-language", with_manifest('"slots": 2', f'"slots": {10**12}')),
    "rows of nothing": ("manifest-language", with_manifest('"rows": 640', '"rows": 0')),
    "a count of text": (
        "manifest-language",
        with_manifest('"parameters": 1', '"parameters": "many"'),
    ),
    "no count": ("manifest-language", with_manifest('"parameters": 1', '"parameter": 1')),
    "a long name": ("manifest-language", with_manifest('"model.vmfb"', f'"{"x" * 5000}"')),
    "an infinite size": ("settings", with_setting("cache_ram = inf")),
    "a size of 400 digits": ("settings", with_setting(f'cache_ram = "{"9" * 400}.0GB"')),
    "a number of 5000 digits": ("settings", with_setting(f"port = {'9' * 5000}")),
    "deep TOML": ("settings", with_setting(f"port = {'[' * 3000}{']' * 3000}")),
    "a recording of infinities": (
        "recording",
        {
            "recording.json": READERS["recording"]
            .files()["recording.json"]
            .replace(b"-2.5", b"-1e999")
        },
    ),
    "a template that is not valid UTF-8": ("template-gemma", {"chat_template.jinja": b"\xff"}),
    "a deep template": ("template-gemma", template("{{ " + "(" * 5000 + ")" * 5000 + " }}")),
    "60 loops in one another": (
        "template-gemma",
        template("{% for i in [1] %}" * 60 + "{% endfor %}" * 60),
    ),
    "a template's number of 5000 digits": ("template-gemma", template("{{ " + "9" * 5000 + " }}")),
}  # fmt: skip


@pytest.mark.parametrize("what", KNOWN_DAMAGE)
def test_known_damage_is_rejected(what: str) -> None:
    name, files = KNOWN_DAMAGE[what]
    assert not read(READERS[name], {**READERS[name].files(), **files})


def test_a_panic_of_the_tokenizer_library_is_caught() -> None:
    """A panic is not a subclass of Exception, so `except Exception` does not catch it."""
    library = json.loads(READERS["tokenizer-sentencepiece"].files()["tokenizer.json"])
    library["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    files = {"tokenizer.json": json.dumps(library).encode()}
    assert not read(READERS["tokenizer-sentencepiece"], files)


def test_many_long_names_in_a_small_archive_are_rejected(tmp_path: Path) -> None:
    """Each entry's name is nearly all of the names: 12 000 x 1 MB out of 2 MB."""
    count, length = 12_000, 1 << 20
    entry = struct.Struct("<QIQ" + "QQ" + "QQ" + "Q" + "QQ")
    table = b"".join(
        entry.pack(76, 2, 0, i, length - count, 0, 0, 64, 0, 0) + bytes(4) for i in range(count)
    )
    header = struct.pack(
        "<4sHHQQQQ6Q", b"IRPA", 0, 0, 88, 0, 0, count,
        96, len(table), 96 + len(table), length, 96 + len(table) + length, 0,
    )  # fmt: skip
    path = tmp_path / "params.irpa"
    path.write_bytes(header.ljust(96, b"\0") + table + bytes(range(1, 128)) * (length // 127 + 1))
    with pytest.raises(BadArchive, match="the names of its records exceed the 1048576 bytes"):
        open_archive(path)


# --- paths that are not regular files


def to_nowhere(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, to_nowhere])
@pytest.mark.parametrize(
    ("name", "reader", "error"),
    [
        ("manifest.json", lambda path: read_manifest(path.parent), NotABundle),
        ("config.json", read_json, BadFile),
        ("recording.json", read_recording, RecordingError),
    ],
)
def test_a_pipe_or_a_device_is_rejected(
    tmp_path: Path,
    make: Callable[[Path], None],
    name: str,
    reader: Callable[[Path], object],
    error: type[Exception],
) -> None:
    make(tmp_path / name)
    with pytest.raises(error, match=r"a (named pipe|device), expected a file"):
        reader(tmp_path / name)


def test_a_link_out_of_the_bundle_is_rejected(tmp_path: Path) -> None:
    """The link is rejected although its target has the size and digest of the manifest."""
    outside, bundle = tmp_path / "outside", tmp_path / "bundle"
    bundle.mkdir()
    outside.write_bytes(b"")
    (bundle / "model.vmfb").symlink_to(outside)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    record = FileRecord(name="model.vmfb", bytes=0, sha256=empty)
    with pytest.raises(Corrupt, match=r"'model\.vmfb' is a file outside the bundle"):
        verify_files(bundle, dataclasses.replace(EXAMPLE, files=(record,)))


@pytest.mark.parametrize("file_type", ["pipe", "link", "sparse"])
def test_a_block_that_is_not_a_regular_file_is_not_loaded(tmp_path: Path, file_type: str) -> None:
    store = PrefixStore(tmp_path, bundle=BUNDLE, limit_bytes=2**20)
    path = stored_block(tmp_path)
    if file_type == "pipe":
        os.mkfifo(path)
    elif file_type == "link":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(2**40)
    assert store.load(KEY) is None
    store.close()


# --- bundles whose digests are right and whose contents are not


def test_a_bundle_with_an_unknown_program_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotABundle, match="architecture 'other', unknown"):
        open_reference(tmp_path, dataclasses.replace(EXAMPLE, architecture="other"))
    with pytest.raises(ConfigError, match="the manifest's config is not of gemma3"):
        open_reference(tmp_path, dataclasses.replace(EXAMPLE, config={"layers": 1}))


@pytest.mark.parametrize("entries", [{}, {"w": 3}])
def test_an_archive_without_the_weights_is_rejected(
    tmp_path: Path, entries: dict[str, int]
) -> None:
    with ArchiveWriter(tmp_path / "a", entries) as archive:
        for name, length in entries.items():
            archive.write(name, np.zeros(length, np.uint8))
    with pytest.raises(BadArchive, match="has no w of 4 bytes"):
        stored_parameters({"w": TensorType((1,), DType.F32)}, tmp_path / "a")
