"""Split GGUF files: any shard opens all of them, and each wrong shard is named."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest

from hearthd.baker.checks.reproduction import compare, reproduce
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.pipeline.bill_of_materials import BILL
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import BadFile
from hearthd.bundle import MANIFEST, read_manifest
from tests.baker.adapters.places_case import write_model
from tests.conftest import Silent, few_entry_points, options_for
from tests.models.families.split_gguf import split_gguf

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"split.no", "split.count", "split.tensors.count"}


def write_gguf(path: Path, names: str, key: str = "a") -> Path:
    """A file with a small tensor of each name."""
    writer = gguf.GGUFWriter(path, "test")
    writer.add_string("a.key", key)
    for number, name in enumerate(names):
        writer.add_tensor(name, np.full((2, 32), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", "badec")


@pytest.fixture
def shards(file: Path) -> list[Path]:
    """Three shards: b and a, d and e, c."""
    return split_gguf(file, tensors=2)


@pytest.mark.parametrize("empty_first", [False, True])
def test_any_shard_opens_the_file(file: Path, *, empty_first: bool) -> None:
    expected = GgufSource(file)
    shards = split_gguf(file, tensors=2, empty_first=empty_first)
    assert len(shards) == 3 + empty_first
    for shard in shards:
        source = GgufSource(shard)
        assert source.files() == tuple(shards)
        assert source.names() == expected.names() == tuple("badec")
        assert {**source.metadata(), **dict.fromkeys(KEYS)} == {
            **expected.metadata(),
            **dict.fromkeys(KEYS),
        }
        for name in source.names():
            np.testing.assert_array_equal(source.read(name), expected.read(name))


def test_a_joined_file_is_not_split(tmp_path: Path) -> None:
    """`llama-gguf-split --merge` leaves a count of 0."""
    writer = gguf.GGUFWriter(tmp_path / "joined.gguf", "test")
    writer.add_uint16("split.no", 0)
    writer.add_uint16("split.count", 0)
    writer.add_int32("split.tensors.count", 1)
    writer.add_tensor("a", np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert GgufSource(tmp_path / "joined.gguf").names() == ("a",)


@pytest.mark.parametrize("given", [0, 1, 2])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_shard_is_named(shards: list[Path], missing: int, given: int) -> None:
    shards[missing].unlink()
    named = rf"^{shards[missing]} does not exist: it is shard {missing + 1} of 3 of a split GGUF "
    with pytest.raises(BadFile, match=named):
        GgufSource(shards[given])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_truncated_shard_is_named(shards: list[Path], at: int) -> None:
    content = shards[at].read_bytes()
    for size in (0, 30, 100, len(content) - 40):
        shards[at].write_bytes(content[:size])
        with pytest.raises(BadFile, match=rf"^{shards[at]} is (truncated|not a GGUF file)"):
            GgufSource(shards[0])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_copy_of_another_shard_is_named(shards: list[Path], at: int) -> None:
    other = (at + 1) % 3
    shutil.copy(shards[other], shards[at])
    named = (
        rf"^{shards[at]} is shard {other + 1} of 3 of a split GGUF file, whose name ends in "
        rf"-0000{other + 1}-of-00003\.gguf; give each shard its name"
    )
    with pytest.raises(BadFile, match=named):
        GgufSource(shards[0])


def test_shards_that_changed_places_are_named(shards: list[Path]) -> None:
    content = shards[1].read_bytes()
    shutil.copy(shards[2], shards[1])
    shards[2].write_bytes(content)
    with pytest.raises(BadFile, match=rf"^{shards[1]} is shard 3 of 3"):
        GgufSource(shards[0])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("vwxyz_", "{shard} and {first} are not shards of the same file: .* is 6 and 5; download"),
        ("vwabx", "tensor a is in both {first} and {shard}"),
    ],
)
def test_a_shard_of_another_file_is_named(
    tmp_path: Path, shards: list[Path], names: str, message: str
) -> None:
    (tmp_path / "other").mkdir()
    foreign = split_gguf(write_gguf(tmp_path / "other/model.gguf", names), tensors=2)
    shutil.copy(foreign[1], shards[1])
    with pytest.raises(BadFile, match=message.format(shard=shards[1], first=shards[0])):
        GgufSource(shards[0])


def test_a_shard_with_too_few_tensors_is_an_error(tmp_path: Path, shards: list[Path]) -> None:
    (tmp_path / "other").mkdir()
    foreign = split_gguf(write_gguf(tmp_path / "other/model.gguf", "vwxyz"), tensors=2)
    # The third shard of five tensors that are split by size, after one in the second.
    content = foreign[2].read_bytes()
    shards[1].write_bytes(content.replace(b"split.no\x02\0\0\0\x02", b"split.no\x02\0\0\0\x01"))
    counts = r"split\.tensors\.count is 5, but its 3 shards have 4 tensors; download or copy them"
    with pytest.raises(BadFile, match=rf"^{shards[0]}: {counts}"):
        GgufSource(shards[0])


def test_names_and_contents_must_agree(file: Path, shards: list[Path]) -> None:
    alone = shards[0].rename(file.with_name("renamed.gguf"))
    with pytest.raises(BadFile, match=r"renamed\.gguf is shard 1 of 3 .* -00001-of-00003\.gguf;"):
        GgufSource(alone)
    shutil.copy(file, shards[0])
    with pytest.raises(BadFile, match=rf"^{shards[0]} is not .* named as shard 1 of 3; rename"):
        GgufSource(shards[0])


@pytest.mark.nightly
@pytest.mark.slow
def test_a_split_file_gives_the_bundle_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    write_model(file)
    shards = split_gguf(file, tensors=7, empty_first=True)
    bundles = []
    with few_entry_points():
        for weights in (file, shards[2]):
            options = options_for(tmp_path / weights.stem, weights=weights, precision="native")
            bundles.append(bake(options, Silent()))
        assert reproduce(bundles[1], shards[0], Silent()) == []
    # These two have the names and digests of the files of the weights.
    differences = {difference.file for difference in compare(*bundles)}
    assert differences == {MANIFEST, BILL}
    sources = [read_manifest(bundle).provenance.sources for bundle in bundles]
    assert [len(records) for records in sources] == [1, len(shards)]
    assert [record.name for record in sources[1]] == [shard.name for shard in shards]
