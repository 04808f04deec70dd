"""The shares of workgroups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hearthd.models.dsl.ops.record import equal_share


@given(st.integers(1, 5000), st.integers(1, 64), st.integers(1, 64))
def test_no_smaller_share_has_as_few_workgroups(count: int, workgroups: int, largest: int) -> None:
    share = equal_share(count, workgroups=workgroups, largest=largest)
    shares = -(-count // share)
    assert 1 <= share <= largest
    assert shares >= min(count, workgroups) // 2
    assert share == 1 or -(-count // (share - 1)) > shares


def test_shares_of_published_widths_are_equal() -> None:
    """Queries, keys and values, gates, and the last matrix of Gemma 3 1B; the head of Qwen3."""
    for outputs, expected in ((1536, (48, 48)), (13824, (62, 58)), (1152, (36, 36))):
        blocks = outputs // 16
        share = equal_share(blocks, workgroups=1, largest=64)
        assert (share, (blocks - 1) % share + 1) == expected
    assert equal_share(151936 // 16, workgroups=8, largest=64) == 64
