"""Prompts of token ids and rows of embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hearthd.runtime.interface import NO_TOKEN
from hearthd.server.engine.prompt import EmbeddingRows, ImageRows, Prompt

DIGEST = bytes(range(32))
ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
SEGMENTS = st.lists(
    st.lists(st.integers(0, 9), max_size=4).map(tuple)
    | st.integers(1, 6).map(lambda count: EmbeddingRows(rows=ROWS[:count], digest=DIGEST)),
    max_size=4,
)


@given(SEGMENTS, st.integers(0, 20), st.integers(0, 20))
@example([EmbeddingRows(rows=ROWS, digest=DIGEST)], 4, 2)
def test_a_slice_has_the_tokens_and_rows_of_its_positions(
    segments: list[tuple[int, ...] | EmbeddingRows], start: int, stop: int
) -> None:
    prompt = Prompt(*segments)
    whole = [*prompt.tokens]
    assert len(prompt) == len(whole) == sum(map(len, segments))
    part = prompt[start:stop]
    assert [*part.tokens] == whole[start:stop]
    assert len(part) == len(part.tokens)
    rows, all_rows = part.rows({}), prompt.rows({})
    skipped, count = (tokens.count(NO_TOKEN) for tokens in (whole[:start], whole[start:stop]))
    if rows is None or all_rows is None:
        assert count == 0
    else:
        assert np.array_equal(rows, all_rows[skipped : skipped + count])
    for segment in part.row_segments:
        assert isinstance(segment, EmbeddingRows)
        assert np.array_equal(segment.rows, ROWS[segment.offset : segment.offset + len(segment)])


def test_rows_that_see_each_other_are_a_chunk() -> None:
    pixels = np.zeros((1, 1, 3), np.uint8)
    image = ImageRows(media=pixels, digest=DIGEST, count=3, both_ways=True)
    assert Prompt((1,) * 5, image, image, (2, 3)).chunk_ends(2) == [2, 4, 5, 8, 11, 13]
    assert Prompt(image, (1,) * 5).chunk_ends(4) == [3, 7, 8]
    assert Prompt((1,) * 8, image).chunk_ends(4) == [4, 8, 11]
    chunks = [*Prompt((1,) * 5, image, image, (2, 3)).chunks(2)]
    assert [chunk.both_ways for chunk in chunks] == [False] * 3 + [True] * 2 + [False]
    causal = ImageRows(media=pixels, digest=DIGEST, count=3)
    assert Prompt((1,) * 5, causal, (2, 3)).chunk_ends(4) == [4, 8, 10]


def test_rows_cannot_be_written() -> None:
    segment = EmbeddingRows(rows=ROWS.copy(), digest=DIGEST)
    with pytest.raises(ValueError, match="read-only"):
        segment.rows[0, 0] = 1


@pytest.mark.parametrize(
    "rows", [ROWS[0], ROWS[:0], ROWS.astype(np.float64)], ids=["vector", "empty", "f64"]
)
def test_rows_are_a_matrix_of_f32(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"expected f32 \(n, E\)"):
        EmbeddingRows(rows=rows, digest=DIGEST)


def test_a_digest_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="got 31 bytes, expected 32"):
        EmbeddingRows(rows=ROWS, digest=DIGEST[1:])
