"""Keys of blocks of KV rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hearthd.runtime.kv_blocks import block_keys


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=6), st.data())
def test_a_key_identifies_all_chunks_up_to_its_end(
    chunks: list[bytes], data: st.DataObject
) -> None:
    keys = block_keys(chunks)
    assert len(set(keys)) == len(keys) == len(chunks)
    where = data.draw(st.integers(0, len(chunks) - 1))
    changed = [*chunks[:where], chunks[where] + b"!", *chunks[where + 1 :]]
    others = block_keys(changed)
    assert others[:where] == keys[:where]
    assert not set(others[where:]) & set(keys)


def test_keys_depend_on_the_adapter_and_on_no_later_chunk() -> None:
    assert block_keys([b"a", b"b"])[:1] == block_keys([b"a"])
    assert block_keys([b"a"]) != block_keys([b"a"], b"adapter")
