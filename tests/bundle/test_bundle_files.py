"""The files of a bundle against the sizes and digests in its manifest."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from hearthd.bundle import Corrupt, FileRecord, LanguageManifest, record_file, verify_files
from tests.bundle.example_manifests import EXAMPLE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def bundle(tmp_path: Path) -> tuple[Path, LanguageManifest]:
    (tmp_path / "model.vmfb").write_bytes(bytes(range(200)))
    (tmp_path / "params.irpa").write_bytes(b"weights")
    files = tuple(record_file(tmp_path / name) for name in ("model.vmfb", "params.irpa"))
    return tmp_path, dataclasses.replace(EXAMPLE, files=files)


def test_complete_files_are_accepted(bundle: tuple[Path, LanguageManifest]) -> None:
    verify_files(*bundle)
    # sha256sum of the seven bytes "weights"
    assert bundle[1].files[1] == FileRecord(
        name="params.irpa",
        bytes=7,
        sha256="9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c",
    )


def test_a_missing_file_is_corrupt(bundle: tuple[Path, LanguageManifest]) -> None:
    (bundle[0] / "params.irpa").unlink()
    with pytest.raises(Corrupt, match=r"params.irpa: missing file"):
        verify_files(*bundle)


@pytest.mark.parametrize("size", [0, 199, 201])
def test_a_file_of_another_size_is_corrupt(
    bundle: tuple[Path, LanguageManifest], size: int
) -> None:
    (bundle[0] / "model.vmfb").write_bytes(bytes(size))
    with pytest.raises(Corrupt, match=f"wrong size: got {size} bytes, expected 200"):
        verify_files(*bundle)


@pytest.mark.parametrize("place", [0, 100, 199])
def test_one_flipped_bit_is_corrupt(bundle: tuple[Path, LanguageManifest], place: int) -> None:
    data = bytearray(range(200))
    data[place] ^= 1
    (bundle[0] / "model.vmfb").write_bytes(data)
    with pytest.raises(Corrupt, match=r"model.vmfb: wrong sha256"):
        verify_files(*bundle)


@pytest.mark.parametrize("name", ["{parent}/other", "../other", "sub/other", "./other"])
def test_a_file_outside_the_bundle_is_corrupt(
    bundle: tuple[Path, LanguageManifest], name: str
) -> None:
    """Even if it exists and has the size and digest of its record."""
    folder, manifest = bundle
    inside = folder / "inside"
    (inside / "sub").mkdir(parents=True)
    name = name.format(parent=folder)
    (inside / name).write_bytes(b"weights")
    record = dataclasses.replace(record_file(inside / name), name=name)
    with pytest.raises(Corrupt, match="is a file outside the bundle"):
        verify_files(inside, dataclasses.replace(manifest, files=(record,)))


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_folder_is_not_a_file_of_a_bundle(
    bundle: tuple[Path, LanguageManifest], name: str
) -> None:
    record = FileRecord(name=name, bytes=0, sha256="")
    with pytest.raises(Corrupt):
        verify_files(bundle[0], dataclasses.replace(bundle[1], files=(record,)))
