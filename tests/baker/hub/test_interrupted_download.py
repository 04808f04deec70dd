"""Downloads that break, run out of disk space, are killed, or arrive wrong."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from huggingface_hub import constants

from hearthd.baker.hub import repository
from hearthd.baker.hub.download import download
from hearthd.baker.hub.hub_errors import HubError
from tests.baker.hub.local_hub import Faults
from tests.by_day import first_by_day
from tests.conftest import Silent
from tests.patience import PATIENCE, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.baker.hub.conftest import Files
    from tests.baker.hub.local_hub import LocalHub


def blobs() -> list[str]:
    """The names of complete and incomplete large files in the cache."""
    folder = Path(constants.HF_HUB_CACHE) / "models--a--gguf/blobs"
    return sorted(path.name[64:] for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture(autouse=True)
def _no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only downloads are tested here, and counted."""
    monkeypatch.setattr("hearthd.baker.hub.fit_check.FitCheck.require", lambda *_: None)


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_download_continues_where_each_tenth_breaks(
    hub: LocalHub, small: Files, reset: bool
) -> None:
    tenth = len(small.gguf) // 10
    hub.faults = Faults(breaks=[tenth] * 9, reset=reset)
    assert download("hf:a/gguf", Silent()).read_bytes() == small.gguf
    starts = [int((range_ or "=0-").partition("=")[2].rstrip("-")) for range_ in hub.ranges()]
    assert starts == [tenth * done for done in range(10)]


def test_a_connection_that_breaks_at_once_is_given_up_and_continued_later(
    hub: LocalHub, small: Files
) -> None:
    hub.faults.breaks = [1000, 0, 0, 0, 0, 0]
    with pytest.raises(HubError, match=r"^hf:a/gguf: the connection broke 5 times at .*pull again"):
        download("hf:a/gguf", Silent())
    assert blobs() == [".incomplete"]
    hub.requests.clear()
    hub.faults = Faults()
    assert download("hf:a/gguf", Silent()).read_bytes() == small.gguf
    assert hub.ranges() == ["bytes=1000-"]


def test_a_server_without_ranges_sends_everything_again(hub: LocalHub, small: Files) -> None:
    hub.faults = Faults(ranges=False, breaks=[1000])
    assert download("hf:a/gguf", Silent()).read_bytes() == small.gguf


@pytest.mark.parametrize(
    "fault",
    [
        lambda content: Faults(content=b"X" + content[1:]),
        lambda content: Faults(content=content[:-1]),
        lambda content: Faults(content=content + b"X"),
        lambda content: Faults(size=len(content) - 1),
        lambda content: Faults(size=len(content) + 1),
    ],
    ids=["other bytes", "too short", "too long", "size too small", "size too large"],
)
def test_a_wrong_digest_or_size_leaves_no_file(
    fault: Callable[[bytes], Faults], hub: LocalHub, small: Files
) -> None:
    hub.faults = fault(small.gguf)
    with pytest.raises(HubError, match=r"^hf:a/gguf: .* of model-Q4_K_M\.gguf does not have the d"):
        download("hf:a/gguf", Silent())
    assert blobs() == []
    hub.faults = Faults()
    assert download("hf:a/gguf", Silent()).read_bytes() == small.gguf


def test_a_wrong_small_file_is_not_kept(hub: LocalHub) -> None:
    hub.repositories["a/folder"]["config.json"] = b"{}"
    hub.digests["config.json"] = "0" * 40
    with pytest.raises(HubError, match=r"of config\.json does not have the digest 0000"):
        download("hf:a/folder", Silent())


def test_a_full_disk_is_said_and_the_download_continues_later(
    hub: LocalHub, small: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = repository._Download._count

    def count(self: repository._Download, chunk: bytes) -> None:
        take(self, chunk)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(repository._Download, "_count", count)
        with pytest.raises(HubError, match=r"^hf:a/gguf: the disk of /.* is full.* to continue$"):
            download("hf:a/gguf", Silent())
    hub.requests.clear()
    assert download("hf:a/gguf", Silent()).read_bytes() == small.gguf
    (range_,) = hub.ranges()
    assert range_ is not None


def test_a_disk_that_is_too_small_is_said_before_the_download(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage())
    with pytest.raises(HubError, match=r"model-Q4_K_M\.gguf needs 0\.\d MB, and the disk of /.*"):
        download("hf:a/gguf", Silent())
    assert hub.sent == 0


class Usage:
    free = 1000


def pull(hub: LocalHub) -> subprocess.Popen[str]:
    """Start `hearth pull` in a process of its own, with the cache of this test."""
    environment = {
        **os.environ,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": constants.HF_HUB_CACHE,
        "HF_TOKEN_PATH": constants.HF_TOKEN_PATH,
        "HF_HUB_OFFLINE": "0",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "hearthd", "pull", "hf:a/gguf"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def partial_size() -> int:
    folder = Path(constants.HF_HUB_CACHE) / "models--a--gguf/blobs"
    return sum(path.stat().st_size for path in folder.glob("*.incomplete"))


@pytest.mark.parametrize("number", first_by_day([signal.SIGKILL, signal.SIGINT]))
def test_a_killed_pull_continues(hub: LocalHub, small: Files, number: signal.Signals) -> None:
    hub.faults.pace = 0.05
    with pull(hub) as killed:
        wait_until(lambda: partial_size() > 0)
        killed.send_signal(number)
        _, stderr = killed.communicate(timeout=PATIENCE)
    assert killed.returncode == {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130}[number]
    message = "hearth pull: interrupted; the same command continues the download\n"
    assert number == signal.SIGKILL or stderr.endswith(message)
    received = partial_size()
    hub.requests.clear()
    hub.faults.pace = 0
    assert download("hf:a/gguf", Silent()).read_bytes() == small.gguf
    assert hub.ranges() == [f"bytes={received}-"]


@pytest.mark.nightly
def test_two_pulls_at_once_download_once(hub: LocalHub, small: Files) -> None:
    hub.faults.pace = 0.05
    paths: list[Path] = []
    with pull(hub) as other:
        wait_until(lambda: partial_size() > 0)
        thread = threading.Thread(target=lambda: paths.append(download("hf:a/gguf", Silent())))
        thread.start()
        stdout, stderr = other.communicate(timeout=PATIENCE)
        thread.join()
    assert other.returncode == 0, stderr
    assert paths == [Path(stdout.strip())]
    assert paths[0].read_bytes() == small.gguf
    assert [range_ for range_ in hub.ranges() if range_ is None] == [None]
