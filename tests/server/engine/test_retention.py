"""What the prefix cache keeps of several chats: two in turns, edits, and other requests."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.server.engine.prefixes.prefix_cache import PrefixCache
from tests.server.engine.chats import ANSWER, END, HEAD, common, messages_of, prompt_of, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.server.engine.chats import Tokens

CHUNK, BLOCK = 16, 100  # tokens and bytes of a block
# Bytes of a snapshot: of a model without states; of Qwen3.5 0.8B, Granite 4 H 1B, Nemotron 3 Nano.
SNAPSHOTS = [0, 1284, 5537, 4054]


@dataclass
class Server:
    """A cache that reads prompts, and what it read again of those that chats had before."""

    limit: int
    snapshot: int
    latest: dict[int, Tokens] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cache = PrefixCache(limit_bytes=self.limit)

    def read_again(self, chat: int, prompt: Tokens) -> int:
        """Read the next prompt of a chat."""
        cached = read(self.cache, prompt, chunk=CHUNK, block_bytes=BLOCK, state_bytes=self.snapshot)
        assert self.cache.state().bytes <= self.limit
        before = self.latest.get(chat, ())
        self.latest[chat] = prompt
        return common(before, prompt) - cached


def bytes_of(prompt: Tokens, snapshot: int) -> int:
    """Of the blocks that the next turn needs, and the snapshot after them."""
    return len(prompt) // CHUNK * BLOCK + snapshot


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 99),
    st.sampled_from(SNAPSHOTS),
    st.integers(2, 4),
    st.lists(st.integers(1, 6), min_size=2, max_size=8),
)
def test_chats_in_turns_keep_what_their_next_turn_needs_if_it_fits(
    seed: int, snapshot: int, chats: int, requests: list[int]
) -> None:
    """Each turn, of some requests, reads less than a block again."""
    rng = random.Random(seed)
    messages = [messages_of(rng, 91, 6, 112) for _ in range(chats)]
    read_before = [9] * chats
    prompts: list[tuple[int, Tokens]] = []
    for turn, count in enumerate([1] * chats + requests):
        for _ in range(count):
            chat = turn % chats
            read_before[chat] += 2
            prompts.append((chat, prompt_of(messages[chat][: read_before[chat]])))
    ends = dict(prompts)
    server = Server(sum(bytes_of(end, snapshot) for end in ends.values()), snapshot)
    for chat, prompt in prompts:
        is_known = chat in server.latest
        again = server.read_again(chat, prompt)
        assert not is_known or again <= CHUNK  # the head of the answer is common, too


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_two_chats_that_do_not_fit_read_a_part_again(snapshot: int) -> None:
    rng = random.Random(0)
    messages = [messages_of(rng, 40, 6, 112) for _ in range(2)]
    ends = [prompt_of(each) for each in messages]
    server = Server(sum(bytes_of(end, snapshot) for end in ends) * 9 // 10, snapshot)
    again = [
        server.read_again(chat, prompt_of(messages[chat][:count]))
        for count in range(11, 41, 2)
        for chat in range(2)
    ][2:]
    assert sum(again) / len(again) < len(ends[0]) / 2
    assert max(again) <= len(ends[0])


@pytest.mark.parametrize("snapshot", SNAPSHOTS[1:])
def test_edits_read_little_again_with_a_snapshot_for_each_1024_tokens(snapshot: int) -> None:
    """The default memory of a context of 32,768 tokens, and a chat of 15,000 read turn by turn."""
    messages, limit = messages_of(random.Random(1), 31, 6, 112), 256 * BLOCK + 40 * snapshot
    turns = [prompt_of(messages[:count]) for count in range(1, 32, 2)]
    assert len(turns[-1]) > 14_000 * CHUNK // 128
    for edited in range(1, 31, 5):
        server = Server(limit, snapshot)
        for turn in turns:
            server.read_again(0, turn)
        changed = [*messages[:edited], (60, 61), *messages[edited + 1 :]]
        assert server.read_again(0, prompt_of(changed)) <= 2 * CHUNK


def test_an_edit_reads_no_more_again_after_edits_later_in_the_chat() -> None:
    """A chat of 4,830 tokens in the default memory of Qwen3.5 0.8B for a context of 5,120 tokens.

    It has 13 snapshots, for 38 blocks.
    """
    rng, chunk, block, snapshot = random.Random(1), 128, 1572, 20201
    lengths = (188, 849, 770, 720, 303, 525, 528, 860, 84)
    messages = [(*rng.choices(range(4, 60), k=length - 1), END) for length in lengths]

    def prompt_with(messages: Sequence[Tokens]) -> Tokens:
        return (*itertools.chain(*messages), HEAD, ANSWER, ANSWER)

    def read_again(edited: Sequence[int]) -> list[int]:
        cache = PrefixCache(limit_bytes=40 * block + 13 * snapshot)
        turns = [prompt_with(messages[:count]) for count in range(1, 10, 2)]
        edits = [prompt_with([*messages[:at], (7, 8, END), messages[at + 1]]) for at in edited]
        counts = [
            read(cache, prompt, chunk=chunk, block_bytes=block, state_bytes=snapshot)
            for prompt in (*turns, *edits)
        ]
        pairs = zip(edits, counts[len(turns) :], strict=True)
        return [common(turns[-1], prompt) - count for prompt, count in pairs]

    edited = [6, 4, 2, 0]
    after_others = read_again(edited)
    assert after_others == [read_again([at])[0] for at in edited]
    assert max(after_others) < chunk


def test_a_long_chat_outlives_short_prompts_that_are_read_once() -> None:
    """Their snapshots take as much memory, and save less."""
    rng = random.Random(0)
    messages = messages_of(rng, 31, 6, 112)
    chat = prompt_of(messages[:29])
    server = Server(bytes_of(chat, 0) + 3 * SNAPSHOTS[2], SNAPSHOTS[2])
    server.read_again(0, chat)
    for other in range(1, 11):
        server.read_again(other, prompt_of(messages_of(rng, 1, 38, 50)))
    assert server.read_again(0, prompt_of(messages)) < CHUNK


def test_an_old_chat_is_forgotten_before_a_new_one() -> None:
    rng = random.Random(0)
    chats = [messages_of(rng, 11, 38, 62) for _ in range(4)]
    prompts = [prompt_of(messages[:9]) for messages in chats]
    server = Server(3 * max(bytes_of(p, SNAPSHOTS[1]) for p in prompts), SNAPSHOTS[1])
    for chat, prompt in enumerate(prompts):
        server.read_again(chat, prompt)
    longer = [prompt_of([*messages[:9], (7, 8), (9,)]) for messages in chats]
    again = [server.read_again(chat, longer[chat]) for chat in (3, 2, 1)]
    assert max(again) < CHUNK
    assert server.read_again(0, longer[0]) > 8 * CHUNK


def test_the_other_end_of_an_edited_chat_gives_way_to_other_chats() -> None:
    rng = random.Random(0)
    first, second = (messages_of(rng, 21, 38, 62) for _ in range(2))
    edited = [*first[:10], *messages_of(rng, 11, 38, 62)]
    prompts = [prompt_of(second), prompt_of(first), prompt_of(edited)]
    limit = 2 * max(bytes_of(p, SNAPSHOTS[1]) for p in prompts)
    server = Server(limit, SNAPSHOTS[1])
    for chat, prompt in enumerate(prompts):
        server.read_again(chat, prompt)
    assert server.read_again(0, prompt_of([*second, (7, 8), (9,)])) < CHUNK
