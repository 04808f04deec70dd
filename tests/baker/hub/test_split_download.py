"""Split GGUF files on the hub: all shards arrive, wherever a download breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants

from hearthd.baker.hub import header_copy
from hearthd.baker.hub.download import download
from hearthd.baker.hub.hub_errors import DoesNotFit, HubError
from hearthd.baker.weights.gguf import GgufSource
from tests.baker.hub.local_hub import Faults
from tests.baker.hub.test_download import TOO_LITTLE, Notes
from tests.conftest import Silent
from tests.models.families.split_gguf import split_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from tests.baker.hub.conftest import Files
    from tests.baker.hub.local_hub import LocalHub

NAME = "m-Q4_K_M"


@pytest.fixture
def shards(hub: LocalHub, small: Files, tmp_path: Path) -> dict[str, bytes]:
    """Three shards by path, which are the repository `a/split`."""
    (tmp_path / "split").mkdir()
    file = tmp_path / "split" / f"{NAME}.gguf"
    file.write_bytes(small.gguf)
    shards = {path.name: path.read_bytes() for path in split_gguf(file, tensors=10)}
    hub.repositories["a/split"] = dict(shards)
    return shards


def contents(first: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in GgufSource(first).files()}


@pytest.mark.parametrize("reference", ["hf:a/split", f"hf:a/split/{NAME}-00002-of-00003.gguf"])
def test_all_shards_arrive_after_the_verdict_on_the_model(
    reference: str, shards: dict[str, bytes]
) -> None:
    notes, single = Notes(), Notes()
    first = download(reference, notes)
    assert first.name == f"{NAME}-00001-of-00003.gguf"
    assert contents(first) == shards
    download("hf:a/gguf", single)
    assert notes.lines[0] == f"{reference}: 3 files, 0.4 MB"
    assert notes.lines[1:] == single.lines[1:]


@pytest.mark.usefixtures("shards")
def test_the_headers_of_all_shards_are_read_and_nothing_else(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_copy, "_FIRST_GGUF", 1 << 15)
    monkeypatch.setattr(header_copy, "_FIRST_TABLE", 1 << 10)
    with pytest.raises(DoesNotFit):
        download("hf:a/split", Silent(), max_memory=TOO_LITTLE)
    assert hub.ranges() == ["bytes=0-32767", "bytes=0-1023", "bytes=0-1023"]


def test_a_broken_header_of_any_shard_is_refused_before_the_download(
    hub: LocalHub, shards: dict[str, bytes]
) -> None:
    for name, content in shards.items():
        hub.repositories["a/split"] = shards | {name: b"GGML" + content[4:]}
        with pytest.raises(DoesNotFit, match=rf"^hf:a/split: not supported: {name} is not a GGUF"):
            download("hf:a/split", Silent())


@pytest.fixture
def _no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearthd.baker.hub.fit_check.FitCheck.require", lambda *_: None)


@pytest.mark.usefixtures("_no_verdict")
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_download_continues_in_the_shard_that_broke(
    hub: LocalHub, shards: dict[str, bytes], broken: int
) -> None:
    name, content = list(shards.items())[broken]
    sizes = [len(content) for content in shards.values()]
    hub.faults.breaks = [*sizes[:broken], 1000, 0, 0, 0, 0, 0]
    with pytest.raises(HubError, match=rf"broke 5 times .* of {name} \("):
        download("hf:a/split", Silent())
    hub.requests.clear()
    hub.faults = Faults(content=content[:-1] + b"X")
    with pytest.raises(HubError, match=rf"of {name} does not have the digest .* was removed"):
        download("hf:a/split", Silent())
    hub.faults = Faults()
    assert contents(download("hf:a/split", Silent())) == shards
    assert hub.ranges() == ["bytes=1000-", *[None] * (3 - broken)]


def test_a_smaller_split_file_is_named_when_the_chosen_file_does_not_fit(
    hub: LocalHub, shards: dict[str, bytes], larger: bytes
) -> None:
    notes = Notes()
    download("hf:a/split", notes)
    needed = float(notes.lines[2].partition(" MB")[0].removeprefix("memory: "))
    limit = int((needed + 1) * 1e6)
    incomplete = {"m-Q5_0-00001-of-00002.gguf": larger[:-64]}
    hub.repositories["a/gguf"] = {"m-Q8_0.gguf": larger, **shards, **incomplete}
    with pytest.raises(DoesNotFit, match=r"what fits: hf:a/gguf:Q4_K_M$"):
        download("hf:a/gguf:Q8_0", Silent(), max_memory=limit)


@pytest.mark.usefixtures("shards")
def test_a_shard_that_is_not_in_the_cache_is_said_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    first = download("hf:a/split", Silent())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert download("hf:a/split", Silent()) == first
    GgufSource(first).files()[1].unlink()
    with pytest.raises(HubError, match=rf"there is no {NAME}-00002-of-00003\.gguf, which is sha"):
        download("hf:a/split", Silent())
