"""Keys of the blocks of prompts."""

from __future__ import annotations

import hashlib
from array import array

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hearthd.runtime.kv_blocks import block_keys
from hearthd.server.engine.prompt import EmbeddingRows, Prompt


def keys_of(prompt: Prompt, chunk: int, adapter: bytes = b"") -> tuple[bytes, ...]:
    return block_keys((part.content for part in prompt.chunks(chunk)), adapter)


tokens_of_chunks = st.lists(st.integers(0, 2**31), max_size=20)


def image(digest: int, rows: int = 5) -> EmbeddingRows:
    return EmbeddingRows(rows=np.ones((rows, 3), np.float32), digest=bytes([digest]) * 32)


@given(tokens_of_chunks, st.integers(1, 6), st.data())
def test_a_key_identifies_all_tokens_up_to_its_end(
    tokens: list[int], chunk: int, data: st.DataObject
) -> None:
    keys = keys_of(Prompt(tuple(tokens)), chunk)
    assert len(keys) == -(-len(tokens) // chunk)
    assert len(set(keys)) == len(keys)
    if tokens:
        where = data.draw(st.integers(0, len(tokens) - 1))
        changed = (*tokens[:where], tokens[where] + 1, *tokens[where + 1 :])
        others = keys_of(Prompt(changed), chunk)
        assert others[: where // chunk] == keys[: where // chunk]
        assert not set(others[where // chunk :]) & set(keys)


def test_keys_do_not_depend_on_later_tokens() -> None:
    five, four = Prompt((1, 2, 3, 4, 5)), Prompt((1, 2, 3, 4))
    assert keys_of(five, 2)[:2] == keys_of(four, 2)
    assert keys_of(four, 2) != keys_of(four, 4)


@given(tokens_of_chunks, st.integers(1, 6))
def test_keys_of_tokens_are_digests_of_64_bit_integers(tokens: list[int], chunk: int) -> None:
    """Blocks that older versions stored are found again."""
    before, keys = b"adapter", []
    for start in range(0, len(tokens), chunk):
        read = array("q", tokens[start : start + chunk]).tobytes()
        keys.append(before := hashlib.sha256(before + read).digest())
    assert keys_of(Prompt(tuple(tokens)), chunk, b"adapter") == tuple(keys)


def test_keys_depend_on_the_digest_of_rows_and_where_it_begins() -> None:
    prompts = [
        Prompt((7, 7), image(1), (8, 9)),
        Prompt((7, 7), image(2), (8, 9)),
        Prompt((7, 7), image(1)[:3], image(1)[:2], (8, 9)),
        Prompt((7, 7), image(1)[:3], image(2)[3:], (8, 9)),
        Prompt((7, 7), image(1, 6)[1:], (8, 9)),
        Prompt((7, 7, 0, 0, 0, 0, 0, 8, 9)),
    ]
    keys = [keys_of(prompt, 2) for prompt in prompts]
    assert {len(one) for one in keys} == {5}
    assert {one[0] for one in keys} == {keys[0][0]}
    assert keys[0][1] == keys[2][1]
    last = [one[-1] for one in keys]
    assert len(set(last)) == len(last)


def test_keys_do_not_depend_on_the_borders_of_token_segments() -> None:
    assert keys_of(Prompt((1, 2), (), (3,)), 2) == keys_of(Prompt((1, 2, 3)), 2)
