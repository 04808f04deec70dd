"""A hub that is not one, or a mirror that lies: one sentence, bounded memory and disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.hub.bounded_answers import MAX_BYTES
from hearthd.baker.hub.download import download
from hearthd.baker.hub.hub_errors import HubError
from tests.baker.hub.local_hub import COMMIT, Faults
from tests.conftest import Silent

if TYPE_CHECKING:
    from tests.baker.hub.conftest import Files
    from tests.baker.hub.local_hub import LocalHub

MORE = 32 << 20  # bytes beyond the end of a file


def listing(*files: object, sha: object = COMMIT, **fields: Any) -> bytes:
    return json.dumps({"id": "a/b", "sha": sha, "siblings": files, **fields}).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[" * 200_000, id="deep"),
        pytest.param(listing(lastModified=5), id="a date that is a number"),
        pytest.param(listing({"rfilename": 5}), id="a path that is a number"),
        pytest.param(listing({"rfilename": "m.gguf", "size": "5"}), id="a size that is a text"),
        pytest.param(listing({"rfilename": "m.gguf", "size": -5}), id="a negative size"),
        pytest.param(listing({"rfilename": "m.gguf", "size": 1e400}), id="an infinite size"),
    ],
)
def test_a_list_of_wrong_types_is_not_a_hub(body: bytes, hub: LocalHub) -> None:
    hub.faults.listing = body
    with pytest.raises(HubError, match=r"^hf:a/gguf: http://[^ ]* is not a hub: [^\n]*$"):
        download("hf:a/gguf", Silent())


@pytest.mark.parametrize("sha", [5, None, "main", ["a" * 40]])
def test_a_commit_that_is_none_is_said(sha: object, hub: LocalHub) -> None:
    hub.faults.listing = listing(sha=sha)
    with pytest.raises(HubError, match="says no commit of the repository"):
        download("hf:a/gguf", Silent())


@pytest.mark.parametrize("path", ["a\0b.gguf", "a\x1b]0;x\x07.gguf", "a\nb.gguf", "a\ud800.gguf"])
def test_a_path_with_invisible_characters_is_refused(path: str, hub: LocalHub) -> None:
    hub.faults.listing = listing({"rfilename": path, "size": 5})
    with pytest.raises(HubError, match=r"the path '.*' has invisible characters$") as raised:
        download("hf:a/gguf", Silent())
    assert str(raised.value).isprintable()


def test_an_endless_list_is_not_read_to_its_end(hub: LocalHub) -> None:
    hub.faults.listing = b" " * (MAX_BYTES + 1)
    with pytest.raises(HubError, match=r"an answer has more than 16\.8 MB"):
        download("hf:a/gguf", Silent())


@pytest.mark.parametrize("commit", ["f" * 40, "../../../../escaped", ""])
def test_a_file_of_another_commit_is_refused(commit: str, hub: LocalHub) -> None:
    hub.faults.commit = commit
    with pytest.raises(HubError, match=rf"sends .* of the commit '{commit}', expected 0123"):
        download("hf:a/folder", Silent())


def test_what_follows_the_end_of_a_file_is_not_received(hub: LocalHub, small: Files) -> None:
    hub.faults = Faults(content=small.gguf + bytes(MORE), ranges=False)
    with pytest.raises(HubError, match=r"does not have the digest"):
        download("hf:a/gguf", Silent())
    assert hub.sent < MORE


def test_what_follows_a_range_is_not_received(hub: LocalHub, small: Files) -> None:
    hub.faults = Faults(content=small.gguf + bytes(MORE), overlong=True)
    with pytest.raises(HubError, match=r"does not have the digest"):
        download("hf:a/gguf", Silent())
    assert hub.sent < MORE


def test_another_range_than_the_missing_one_is_not_taken(hub: LocalHub) -> None:
    hub.faults = Faults(breaks=[MORE, 1000], shift=1)
    with pytest.raises(HubError, match=r"5 times .*another range than the request"):
        download("hf:a/gguf", Silent(), force=True)
