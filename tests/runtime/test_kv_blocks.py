"""Keys of blocks of KV rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hearthd.runtime.kv_blocks import block_keys


@given(st.lists(st.integers(0, 2**31), max_size=20), st.integers(1, 6), st.data())
def test_a_key_identifies_all_tokens_up_to_its_end(
    tokens: list[int], chunk: int, data: st.DataObject
) -> None:
    keys = block_keys(tokens, chunk)
    assert len(keys) == len(tokens) // chunk
    assert len(set(keys)) == len(keys)
    if tokens:
        where = data.draw(st.integers(0, len(tokens) - 1))
        changed = [*tokens[:where], tokens[where] + 1, *tokens[where + 1 :]]
        others = block_keys(changed, chunk)
        assert others[: where // chunk] == keys[: where // chunk]
        assert not set(others[where // chunk :]) & set(keys)


def test_keys_do_not_depend_on_later_tokens() -> None:
    assert block_keys([1, 2, 3, 4, 5], 2) == block_keys([1, 2, 3, 4], 2)
    assert block_keys([1, 2, 3, 4], 2) != block_keys([1, 2, 3, 4], 4)
