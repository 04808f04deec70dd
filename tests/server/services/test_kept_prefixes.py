"""What the prefix cache of a recurrent model keeps while the model is unloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server import fakes
from tests.server.fake_models import FakeModel, complete, pool, statuses

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

CHUNK = 8
TURN = [*range(10, 50)]
NEXT_TURN = [*TURN, *range(60, 70)]


def cached(client: httpx.Client, prompt: list[int]) -> int:
    answer = complete(client, "recurrent", prompt=prompt)
    tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


@pytest.mark.parametrize("on_disk", [False, True])
def test_only_the_disk_keeps_a_chat_whose_model_was_unloaded(tmp_path: Path, on_disk: bool) -> None:
    fields = {"chunk": CHUNK, "state_bytes": 256, "cache_dir": tmp_path if on_disk else None}
    models = (FakeModel(name="recurrent", fields=fields), FakeModel(name="other", spread=2.0))
    with fakes.running(pool(*models, room=1)) as client:
        assert cached(client, TURN) == 0
        assert len(TURN) - cached(client, TURN) <= CHUNK
        complete(client, "other")
        assert statuses(client)["recurrent"] == "unloaded"
        again = len(TURN) - cached(client, NEXT_TURN)
        assert again <= CHUNK if on_disk else again == len(TURN)
