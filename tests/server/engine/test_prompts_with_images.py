"""Prompts with images in the engine: their rows are computed when they are read."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from hearthd.server.engine.prompt import EmbeddingRows, ImageRows, Prompt
from tests.server.engine.test_engine import events_of, fake, request_of, tokens_in, with_engine
from tests.server.engine.test_prompts_with_rows import served

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

    from hearthd.runtime.interface import Rows
    from hearthd.server.engine.engine import Engine
    from hearthd.server.engine.generation import Request
    from tests.fake_runtime import FakeRuntime

ROWS = 3
REQUEST = request_of(3, max_tokens=6)


def image(seed: int) -> ImageRows:
    pixels = np.full((2, 2, 3), seed, np.uint8)
    return ImageRows(media=pixels, digest=hashlib.sha256(pixels.tobytes()).digest(), count=ROWS)


def computed(segment: ImageRows) -> EmbeddingRows:
    *_, rows = runtime().read_media(segment.media)
    assert rows is not None
    return EmbeddingRows(rows=rows, digest=segment.digest)


def runtime(**options: int) -> FakeRuntime:
    return fake(chunk=4, image_rows=ROWS, **options)


def request(*seeds: int) -> Request:
    """Images that reach over the borders of chunks, and one that occurs twice."""
    return replace(REQUEST, prompt=Prompt((3, 4), *map(image, seeds), (5, 6, 7)))


def test_images_are_read_as_rows_of_embeddings() -> None:
    images = request(1, 2, 1)
    rows = [computed(one) for one in images.prompt.images]
    as_rows = replace(REQUEST, prompt=Prompt((3, 4), *rows, (5, 6, 7)))
    with_images, with_rows = served(runtime(), images, as_rows)
    assert tokens_in(with_images) == tokens_in(with_rows)
    (other,) = served(runtime(), request(1, 3, 1))
    assert tokens_in(other) != tokens_in(with_images)


def test_images_whose_rows_see_each_other_are_read_as_blocks() -> None:
    """The fake accepts whole blocks alone; here they are longer than a chunk."""
    causal = request(1, 2, 1)
    blocks = replace(causal, prompt=_as_blocks(causal.prompt))
    cache = PrefixCache(limit_bytes=10**6)
    model = fake(chunk=2, image_rows=ROWS)
    (expected,), first, second = (
        served(runtime(), causal),
        *served(model, blocks, blocks, cache=cache),
    )
    assert tokens_in(first) == tokens_in(second) == tokens_in(expected)
    assert second[0].cached_tokens == len(blocks.prompt) - 1  # type: ignore[union-attr]
    assert model.images_read == 3  # none of them by the second request


def _as_blocks(prompt: Prompt) -> Prompt:
    segments = (
        replace(segment, both_ways=True) if isinstance(segment, ImageRows) else segment
        for segment in prompt.segments
    )
    return Prompt(*segments)


def test_a_second_question_about_an_image_computes_no_rows() -> None:
    model, cache = runtime(), PrefixCache(limit_bytes=10**6)
    first = request(1, 2)
    question = Prompt((3, 4), *first.prompt.images, (8, 9, 9))
    served(model, first, cache=cache)
    assert model.images_read == 2
    (events,) = served(model, replace(first, prompt=question), cache=cache)
    assert model.images_read == 2  # another engine has the prefix cache alone
    assert events[0].cached_tokens == 8  # type: ignore[union-attr]
    (events,) = served(model, request(1, 3), cache=cache)
    assert events[0].cached_tokens == 4  # type: ignore[union-attr]
    assert [tokens_in(events)] == [tokens_in(one) for one in served(runtime(), request(1, 3))]


def test_rows_that_fit_into_memory_are_computed_once() -> None:
    """Without room for an image, its tower runs for every question."""
    for limit, expected in ((4 * ROWS * runtime().row_width, 1), (ROWS, 3)):
        model = runtime()

        async def test(engine: Engine) -> None:
            for question in ((8, 9, 9), (7, 7, 7), (6, 6, 6)):
                prompt = Prompt((3, 4), image(1), question)
                await events_of(engine.submit(replace(REQUEST, prompt=prompt)))

        with_engine(model, test, cache=PrefixCache(limit_bytes=10**6), image_row_bytes=limit)
        assert model.images_read == expected


@dataclass
class Kept:
    """A store in memory, which outlives caches."""

    blocks: dict[bytes, Rows] = field(default_factory=dict)

    def load(self, key: bytes) -> Rows | None:
        return self.blocks.get(key)

    def save(self, key: bytes, rows: Rows, penalty: float = 0.0) -> None:  # noqa: ARG002
        self.blocks[key] = rows.copy()

    def use(self, penalties: Mapping[bytes, float]) -> None:
        """Nothing: it evicts nothing."""


def test_a_second_question_after_a_restart_computes_no_rows() -> None:
    """The last chunk of an image has a part of the question, and is in no block of the store."""
    first = request(1, 2, 3)
    question = replace(first, prompt=Prompt((3, 4), *first.prompt.images, (8, 9, 9)))
    store = Kept()
    served(runtime(), first, cache=PrefixCache(limit_bytes=10**6, store=store))
    restarted = runtime()
    (events,) = served(restarted, question, cache=PrefixCache(limit_bytes=10**6, store=store))
    assert restarted.images_read == 0
    assert events[0].cached_tokens == 8  # type: ignore[union-attr]
    assert [tokens_in(events)] == [tokens_in(one) for one in served(runtime(), question)]
    # The first image ends in the second chunk, which is another one.
    other = request(1, 4)
    (events,) = served(restarted, other, cache=PrefixCache(limit_bytes=10**6, store=store))
    assert restarted.images_read == 1
    assert [tokens_in(events)] == [tokens_in(one) for one in served(runtime(), other)]


def test_a_slot_rotates_by_the_grids_of_its_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """And by the positions of tokens again, for a prompt without images."""
    model, given = runtime(), []
    monkeypatch.setattr(model, "set_rotary_positions", lambda *arguments: given.append(arguments))
    grid = replace(image(1), grid=(1, ROWS))
    with_grid = replace(REQUEST, prompt=Prompt((3, 4), grid, (5, 6, 7)))
    served(model, with_grid, REQUEST)
    (slot, positions), (other, none) = given
    assert {slot, other} <= {*range(model.slots)}
    expected = with_grid.prompt.rotary_positions
    assert expected is not None
    assert np.array_equal(positions, expected)
    assert none is None


def test_other_sequences_go_on_between_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step computes the rows of one image at most, and one token of every other sequence."""
    steps: list[str] = []
    model = runtime(slots=2, batch=2)

    def recorded(name: str) -> None:
        call = getattr(model, name)

        def recording(*args: object) -> object:
            steps.append(name)
            return call(*args)

        monkeypatch.setattr(model, name, recording)

    recorded("decode")
    recorded("read_media")

    async def test(engine: Engine) -> None:
        talking = engine.submit(request_of(3, max_tokens=200))
        looking = engine.submit(request(1, 2, 3, 4))
        await asyncio.gather(events_of(talking), events_of(looking))

    with_engine(model, test)
    assert steps.count("read_media") == 4
    assert "read_media,read_media" not in ",".join(steps)
