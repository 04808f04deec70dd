"""What a hybrid reads again of a chat of 15,000 tokens, over HTTP.

Its states take as much memory as 1,700 rows of its cache, about as in Qwen3.5 4B.
"""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hearthd.baker.pipeline.bake import bake
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from hearthd.server.services.model_pool import ModelPool
from tests.conftest import Silent, few_entry_points, options_for
from tests.models.families.hybrid_models import write_model
from tests.server import fakes
from tests.server.fake_models import complete

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import httpx

    from hearthd.server.services.service import Service

    Messages = Sequence[tuple[int, ...]]

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

CONTEXT, TOKENS = 32_768, 15_000
END = 256  # the token after each message
GOAL = 256  # tokens that are read again, at most


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hybrid")
    heads = {"linear_key_head_dim": 64, "linear_value_head_dim": 64}
    weights = write_model(folder / "w", "qwen35", max_position_embeddings=CONTEXT, **heads)
    shape = {"context": CONTEXT, "slots": 1, "precision": "int8-g32"}
    with few_entry_points():
        return bake(options_for(folder / "b", model=None, weights=weights, **shape), Silent())


@contextmanager
def serving(
    bundle: Path, cache_dir: Path | None, contexts: int | None = 1, *, disk: int = 8
) -> Iterator[httpx.Client]:
    """A server with one slot, whose prefix cache has room for some whole contexts, or its default.

    Those in memory, and those on `disk`, where Qwen3.5 4B has one by default.
    """
    manifest = read_manifest_of(bundle, LanguageManifest)
    context = manifest.memory_of(CONTEXT).context_blocks
    options = EngineOptions(
        cache_ram=None if contexts is None else contexts * context,
        cache_dir=cache_dir,
        cache_disk=disk * context,
    )

    def opened(_reserved: int) -> Service:
        return open_language_service(bundle, threads=2, name="hybrid", options=options)

    pool = ModelPool([Deployment("hybrid", opened, manifest=manifest)])
    pool.open()
    with fakes.running(pool) as client:
        yield client


def chat(seed: int, tokens: int = TOKENS) -> Messages:
    """Messages of at least `tokens` tokens; the first and the last one are a user's."""
    rng, messages = random.Random(seed), list[tuple[int, ...]]()
    while sum(map(len, messages)) < tokens or len(messages) % 2 == 0:
        messages.append((*rng.choices(range(256), k=rng.randrange(50, 900)), END))
    return messages


def prompt_of(messages: Messages) -> list[int]:
    """Messages, and what a template writes before an answer: not how an answer begins later."""
    return [*itertools.chain(*messages), 1, 2, 3]


def read(client: httpx.Client, messages: Messages) -> int:
    """Have the model answer; returns how many tokens of the prompt were cached."""
    answer = complete(client, "hybrid", tokens=2, prompt=prompt_of(messages))
    cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return cached


def read_turns(client: httpx.Client, messages: Messages) -> None:
    for count in range(1, len(messages) + 1, 2):
        read(client, messages[:count])


def read_again(client: httpx.Client, earlier: Messages, later: Messages) -> int:
    """How many tokens are read of those that both chats begin with."""
    pairs = zip(prompt_of(earlier), prompt_of(later), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return same - read(client, later)


FIRST, OTHER = chat(1), chat(2)
LONGER = [*FIRST, *chat(3, 200)[:2]]


@pytest.mark.parametrize("on_disk", [False, True])
def test_only_the_disk_keeps_a_chat_whose_model_was_unloaded(
    bundle: Path, tmp_path: Path, on_disk: bool
) -> None:
    with serving(bundle, tmp_path if on_disk else None, disk=1) as client:
        read_turns(client, FIRST)
        assert 0 <= read_again(client, FIRST, LONGER) <= GOAL
        assert client.post("/models/unload", json={"model": "hybrid"}).status_code == 200
        again = read_again(client, FIRST, LONGER)
        assert again <= GOAL if on_disk else again > TOKENS
    with serving(bundle, tmp_path, disk=1) as client:  # after a restart
        again = read_again(client, FIRST, LONGER)
        assert again <= GOAL if on_disk else again > TOKENS


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_chat_goes_on_after_another_one_used_the_only_slot(
    bundle: Path, tmp_path: Path, on_disk: bool
) -> None:
    """The memory holds both, or the disk the first one."""
    with serving(bundle, *((tmp_path, 1) if on_disk else (None, None))) as client:
        read(client, FIRST)
        assert read(client, OTHER) == 0
        assert read_again(client, FIRST, LONGER) <= GOAL


def test_two_chats_in_turns_keep_what_their_next_turns_need(bundle: Path) -> None:
    """The memory holds the rows of both and few snapshots, which edits would need."""
    latest: dict[int, Messages] = {}
    with serving(bundle, None) as client:
        for count in range(1, min(len(FIRST), len(OTHER)) + 1, 2):
            for chat in (FIRST, OTHER):
                messages = chat[:count]
                again = read_again(client, latest.get(id(chat), ()), messages)
                assert again <= GOAL or id(chat) not in latest
                latest[id(chat)] = messages


@pytest.mark.parametrize("edited", [2, len(FIRST) // 2, len(FIRST) - 3])
@pytest.mark.parametrize("on_disk", [False, True])
def test_an_edited_chat_is_read_from_the_message_before_the_edit(
    bundle: Path, tmp_path: Path, on_disk: bool, edited: int
) -> None:
    """Of a chat that was read turn by turn, with the default memory or a small one and a disk."""
    with serving(bundle, *((tmp_path, 1) if on_disk else (None, None))) as client:
        read_turns(client, FIRST)
        changed = [*FIRST[:edited], (7, 8, END), *FIRST[edited + 1 :]]
        assert read_again(client, FIRST, changed) <= GOAL
