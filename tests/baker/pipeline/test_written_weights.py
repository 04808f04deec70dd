"""How params.irpa is written while compilers are started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from threadpoolctl import threadpool_info, threadpool_limits

from hearthd.baker.pipeline import shared_stages
from tests.conftest import Silent

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Folder:
    """A workspace, and weights of no file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.progress = folder, Silent()

    def files(self) -> tuple[Path, ...]:
        """None."""
        return ()

    def require_unchanged(self) -> None:
        """Nothing can change."""


def test_products_have_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A process that is copied to start a compiler ends the threads of OpenBLAS: a product that has
    # given them work waits for ever.
    threads = set[int]()

    def write(_source: object, _located: object, path: Path, *_: object, **__: object) -> None:
        threads.update(pool["num_threads"] for pool in threadpool_info())
        path.write_bytes(b"")

    monkeypatch.setattr(shared_stages, "write_parameters", write)
    folder = cast("Any", Folder(tmp_path))
    with threadpool_limits(2):
        shared_stages.write_weights(folder, folder, [])
    assert threads == {1}
