"""The readers of bundles, caches, recordings and settings."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from hearthd.baker.checks import inspection
from hearthd.baker.compare.sides.recording import RecordingError, read_recording, write_recording
from hearthd.baker.parameters.irpa import ArchiveWriter, BadArchive, open_archive
from hearthd.bundle import (
    MANIFEST,
    BundleError,
    Corrupt,
    FileRecord,
    digest,
    parse_manifest,
    read_manifest,
    verify_files,
    write_manifest,
)
from hearthd.server.engine.prefixes.prefix_store import PrefixStore
from hearthd.server.setting_files import read_keys
from hearthd.server.settings import BadSettings, load
from hearthd.server.settings_as_toml import as_toml
from hearthd.text.errors import InvalidRequest
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.baker.compare.test_compare_recording import small
from tests.bundle.example_manifests import ARRAYS, EXAMPLE
from tests.server import fakes, templates
from tools.fuzz.mutations import damaged_bytes, damaged_json, damaged_toml, hostile_template
from tools.fuzz.reader import Reader, in_json, written

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from hearthd.bundle import Manifest
    from tools.fuzz.reader import Files

KEY, BUNDLE = hashlib.sha256(b"key").digest(), hashlib.sha256(b"bundle").digest()
_ROWS = np.arange(96, dtype=np.uint8)
_TALK = [{"role": "user", "content": "Hello <b> & 'you'.\n" * 9}]
_SETTINGS = b"""\
host = "127.0.0.1"
port = 8080
max_body_bytes = "10MiB"
shutdown_timeout = 30.0
api_key = ["a long key"]
cors_origins = ["*"]
threads = 2
cache_ram = 268435456
cache_dir = "cache"
log_level = "info"
"""


def _read_manifest(folder: Path) -> None:
    """Read the manifest; if its digest does not match, parse it, write it again and continue."""
    try:
        manifest = read_manifest(folder)
    except Corrupt:
        manifest = parse_manifest((folder / MANIFEST).read_text(encoding="utf-8"))
        write_manifest(folder, manifest)
    digest(manifest)
    for show in (inspection.show_summary, inspection.show):
        show(folder, Console(file=io.StringIO()))
    verify_files(folder, manifest)


def _bundle(manifest: Manifest) -> Files:
    """A manifest of a file that is there, with what `hearth inspect` prints."""
    program = b"program"
    record = FileRecord(
        name="model.vmfb", bytes=len(program), sha256=hashlib.sha256(program).hexdigest()
    )
    names = ("weights_bytes", "parameters", "cache_bytes_per_slot", "ops.prefill_16")
    counts = dict.fromkeys((*names, "ops.decode_1", "ops.step", "ops.run"), 1)
    complete = dataclasses.replace(manifest, files=(record,), statistics=counts)
    return {"manifest.json": complete.to_json().encode(), "model.vmfb": program}


def _archive() -> Files:
    def write(path: Path) -> None:
        with ArchiveWriter(path, {"a": 5, "b": 70, "": 0}) as archive:
            archive.write("a", np.arange(5, dtype=np.uint8))
            archive.write("b", np.arange(70, dtype=np.uint8))

    return {"params.irpa": written(write)}


def _read_archive(folder: Path) -> None:
    for values in open_archive(folder / "params.irpa").values():
        values.sum()


def stored_block(folder: Path) -> Path:
    """Where a store keeps the block of KEY."""
    return folder / BUNDLE.hex() / f"{KEY.hex()}.kv"


def _stored() -> Files:
    def write(path: Path) -> None:
        store = PrefixStore(path, bundle=BUNDLE, limit_bytes=2**20)
        store.save(KEY, _ROWS)
        store.close()
        (block,) = path.rglob("*.kv")
        path.rename(path.with_name("store"))
        path.write_bytes((path.with_name("store") / block.relative_to(path)).read_bytes())

    return {f"{BUNDLE.hex()}/{KEY.hex()}.kv": written(write)}


def _read_stored(folder: Path) -> None:
    store = PrefixStore(folder, bundle=BUNDLE, limit_bytes=2**20)
    rows = store.load(KEY)
    store.close()
    if rows is not None:
        np.testing.assert_array_equal(rows, _ROWS)


def _read_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(folder / "tokenizer.json", bos=fakes.BOS)
    ids = tokenizer.encode("the quick <start_of_turn>fox\n\u00e9")
    tokenizer.decode(ids)
    tokenizer.decode(ids, special=True)
    assert len(tokenizer.words) < 10**6


def _damaged_template(data: bytes, random: Random) -> bytes:
    return damaged_bytes(data, random) if random.randrange(2) else hostile_template(random).encode()


@functools.cache
def _library() -> Tokenizer:
    return Tokenizer(fakes.gemma_like(special=templates.GEMMA_SPECIAL), bos=fakes.BOS)


def _read_template(folder: Path) -> None:
    template = ChatTemplate.from_bundle(folder, _library(), EXAMPLE.special_tokens)
    assert template is not None
    try:
        template.render(_TALK, tools=[], add_generation_prompt=True)
    except InvalidRequest as error:
        if isinstance(error.__cause__, MemoryError):  # it should not have come to that
            raise error.__cause__ from None
        raise


def _read_recording(folder: Path) -> None:
    recording = read_recording(folder / "recording.json")
    write_recording(folder / "again.json", recording)
    assert read_recording(folder / "again.json") is not None


def _read_settings(folder: Path) -> None:
    loaded = load({"bundle": str(folder), "config": folder / "serve.toml"})
    read_keys(loaded.settings)
    as_toml(loaded)


BUNDLES = (
    *(
        Reader(
            name=f"manifest-{manifest.kind}",
            files=functools.partial(_bundle, manifest),
            damage={"manifest.json": damaged_json},
            read=_read_manifest,
            refusals=(BundleError,),
        )
        for manifest in (EXAMPLE, ARRAYS)
    ),
    Reader(
        name="params.irpa",
        files=functools.cache(_archive),
        damage={"params.irpa": damaged_bytes},
        read=_read_archive,
        refusals=(BadArchive,),
    ),
    Reader(
        name="prefix-store",
        files=functools.cache(_stored),
        damage={next(iter(_stored())): damaged_bytes},
        read=_read_stored,
        refusals=(),
    ),
    *(
        Reader(
            name=f"tokenizer-{name}",
            files=functools.partial(dict, {"tokenizer.json": library.to_str().encode()}),
            damage={"tokenizer.json": damaged_json},
            read=_read_tokenizer,
            refusals=(BundleError,),
        )
        for name, library in (
            ("sentencepiece", fakes.gemma_like(special=templates.GEMMA_SPECIAL)),
            ("bytes", fakes.byte_level(special=templates.CHATML_SPECIAL)),
        )
    ),
    *(
        Reader(
            name=f"template-{name}",
            files=functools.partial(dict, {"chat_template.jinja": source.encode()}),
            damage={"chat_template.jinja": _damaged_template},
            read=_read_template,
            refusals=(BundleError, InvalidRequest),
        )
        for name, source in (("gemma", templates.GEMMA), ("chatml", templates.CHATML))
    ),
    Reader(
        name="recording",
        files=functools.partial(dict, {"recording.json": in_json(small())}),
        damage={"recording.json": damaged_json},
        read=_read_recording,
        refusals=(RecordingError,),
    ),
    Reader(
        name="settings",
        files=functools.partial(dict, {"serve.toml": _SETTINGS}),
        damage={"serve.toml": damaged_toml},
        read=_read_settings,
        refusals=(BadSettings,),
    ),
)
