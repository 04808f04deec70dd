"""Words of tokens, and limits on their length."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typing_extensions import override

from hearthd.baker.pipeline.kinds.bake_speech import alignment_heads
from hearthd.models.config import ConfigError
from hearthd.server.speech.transcription import Segment
from hearthd.server.speech.window_decoding import WindowText
from hearthd.server.speech.word_splitting import join_punctuation, words_of
from hearthd.server.speech.word_times import WordTimer
from tests.baker.small_whisper import tokenizer
from tests.server.speech.listeners import ScriptedListener, script, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LIBRARY = tokenizer()
WINDOW = WindowText(tokens=(), temperature=0.0, logprob=0.0, compression=1.0, no_speech=0.0)


def text_of(ids: Sequence[int]) -> str:
    return LIBRARY.decode(list(ids))


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        (" Go, now!", "en", [" Go,", " now!"]),
        (' He said "yes" (twice).', "en", [" He", " said", ' "yes"', " (twice)."]),
        (" größer", "de", [" größer"]),
        ("你好。", "zh", ["你", "好。"]),
    ],
)
def test_words_are_those_of_whisper(text: str, language: str, expected: list[str]) -> None:
    ids = LIBRARY.encode(text).ids
    words = words_of(ids, text_of, language)
    join_punctuation(words)
    assert [word.text for word in words if word.text] == expected
    assert sum(word.tokens for word in words) == len(ids)


def test_a_character_that_is_cut_stays_in_the_words() -> None:
    ids = LIBRARY.encode(" ä").ids[:-1]
    assert sum(word.tokens for word in words_of(ids, text_of, "en")) == len(ids)


class Slow(ScriptedListener):
    """The attention of each token is at a state of its own."""

    def __init__(self, states: Sequence[int]) -> None:
        super().__init__([()])
        self.states = states

    @override
    def align(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        scores = np.zeros((1, len(tokens), 200), np.float32)
        for token, (first, end) in enumerate(zip(self.states, self.states[1:], strict=False), 1):
            scores[0, token, first:end] = 9.0
        return scores


def timed(states: Sequence[int], start: float, end: float, text: str) -> list[tuple[float, float]]:
    """The times of the words of a segment with a token for each letter."""
    segment = Segment(
        start=start, end=end, text=text, tokens=script((0.0, text, 1.0)), seek=0.0, window=WINDOW
    )
    timer = WordTimer(tokens(), text_of)
    (result,) = timer.timed([segment], Slow(states), [0], states=200, language="en")
    return [(word.start, word.end) for word in result.words]


# States where the three words of " a b c" begin and end, with a token for each character.
SPOKEN = [0, 120, 130, 140, 150, 160, 170, 180]


def test_the_first_word_after_a_pause_is_at_most_two_medians_long() -> None:
    """Its attention begins with the window."""
    expected = [(1.8, 2.6), (2.6, 3.0), (3.0, 3.4)]
    assert np.allclose(timed(SPOKEN, 0.0, 3.4, " a b c"), expected)


def test_a_last_word_far_beyond_its_segment_has_the_median_length() -> None:
    states = [*SPOKEN[:-2], 190, 199]
    assert np.allclose(timed(states, 0.0, 3.2, " a b c")[-1], (3.0, 3.7))


@pytest.mark.parametrize("heads", [[[2, 0]], [[0, 2]], [[0]], "all", [[0, True]]])
def test_heads_outside_the_model_are_refused(heads: Any) -> None:
    with pytest.raises(ConfigError, match="alignment_heads"):
        alignment_heads({"alignment_heads": heads}, 2, 2)


def test_heads_are_those_of_the_upper_half_by_default() -> None:
    assert alignment_heads({}, 4, 2) == ((2, 0), (2, 1), (3, 0), (3, 1))
    assert alignment_heads({"alignment_heads": [[1, 1], [0, 1]]}, 2, 2) == ((0, 1), (1, 1))
