"""A flipped bit, in any file of a bundle: found before the program runs, and the file is named."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.bundle import (
    CHAT_TEMPLATE,
    MANIFEST,
    PARAMETERS,
    TOKENIZER,
    BundleError,
    LanguageManifest,
    read_manifest,
    record_file,
    write_manifest,
)
from hearthd.runtime.open_bundle import check_and_load
from hearthd.server.services.language_service import open_language_service
from tests.conftest import few
from tests.server import fakes, templates, tiny

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.runtime.checks.self_test import Level

FILES = (MANIFEST, "model.vmfb", PARAMETERS, TOKENIZER, CHAT_TEMPLATE)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny program with every file that a bundle of a language model may have."""
    path = tmp_path_factory.mktemp("bundles") / "tiny"
    manifest = tiny.write_bundle(path)
    fakes.gemma_like(special=templates.GEMMA_SPECIAL).save(str(path / TOKENIZER))
    (path / CHAT_TEMPLATE).write_text(templates.GEMMA, encoding="utf-8")
    files = tuple(record_file(path / name) for name in FILES if name != MANIFEST)
    write_manifest(path, replace(manifest, files=files))
    return path


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """A file with one bit changed, for as long as the block runs."""
    data = bytearray(path.read_bytes())
    whole = bytes(data)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    yield
    path.write_bytes(whole)


def loads(bundle: Path, level: Level) -> bool:
    return check_and_load(bundle, read_manifest(bundle), lambda _: True, level=level)


@few(5)
@given(st.sampled_from(FILES), st.floats(0, 1, exclude_max=True))
def test_any_flipped_bit_is_detected(bundle: Path, name: str, place: float) -> None:
    assert loads(bundle, "full")
    file = bundle / name
    with flipped(file, int(place * 8 * file.stat().st_size)):
        with pytest.raises(BundleError, match=name):
            loads(bundle, "full")
        if name == PARAMETERS:
            assert loads(bundle, "quick")  # as its help says
        else:
            with pytest.raises(BundleError, match=name):
                loads(bundle, "quick")
        if name != MANIFEST:
            assert loads(bundle, "off")


@pytest.mark.parametrize("level", ["quick", "full", "off"])
@pytest.mark.parametrize("name", FILES[1:])
def test_a_file_that_is_cut_short_is_named_at_every_level(
    bundle: Path, tmp_path: Path, name: str, level: Level
) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:-1])
    with pytest.raises(BundleError, match=f"{name}: wrong size: got {len(data) - 1} bytes"):
        loads(copy, level)


def test_a_template_that_the_manifest_does_not_name_is_not_used(
    bundle: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
    manifest = read_manifest(copy)
    assert isinstance(manifest, LanguageManifest)
    kept = tuple(file for file in manifest.files if file.name != CHAT_TEMPLATE)
    write_manifest(copy, replace(manifest, files=kept))
    assert open_language_service(copy).description.chat_template == ""
