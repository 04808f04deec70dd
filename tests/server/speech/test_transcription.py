"""Windows, segments, second attempts and languages."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from hearthd.runtime.media.log_mel import log_mel
from hearthd.server.speech import window_decoding
from hearthd.server.speech.sound import Sound
from hearthd.server.speech.token_rules import TokenRules
from hearthd.server.speech.transcription import SpeechOptions, TranscribedWindow, Transcriber
from hearthd.server.speech.window_decoding import Stopped, WindowDecoder, temperatures
from tests.baker.small_whisper import (
    CONTEXT,
    GOLDEN,
    GOLDEN_SECONDS,
    IDS,
    LANGUAGES,
    MELS,
    RATE,
    STATES,
    noise,
    tokenizer,
)
from tests.server.speech.listeners import (
    END,
    FIRST_TIME,
    NumpyListener,
    ScriptedListener,
    script,
    time,
    tokens,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.bundle import SpeechManifest
    from hearthd.runtime.speech_model import Listener

MANIFEST = cast(
    "SpeechManifest",
    SimpleNamespace(tokens=tokens(), states=STATES, mels=MELS, context=CONTEXT),
)
LIBRARY = tokenizer()


def heard(
    listener: Listener,
    seconds: float = 0.0,
    *,
    sound: Any = None,
    language: str | None = "en",
    prompt: Sequence[int] = (),
    temperature: float = 0.0,
    stopped: threading.Event | None = None,
    windows: int | None = None,
) -> list[TranscribedWindow]:
    options = SpeechOptions(
        language=language, translate=False, prompt=tuple(prompt), temperature=temperature
    )
    transcriber = Transcriber(MANIFEST, lambda ids: LIBRARY.decode(list(ids)))
    blocks = iter([noise(seconds) if sound is None else sound])
    event = stopped or threading.Event()
    steps = transcriber.transcribe(Sound(blocks), options, listener, event)
    return list(itertools.islice(steps, windows))


def segments(windows: Sequence[TranscribedWindow]) -> list[tuple[float, str, float]]:
    return [
        (round(each.start, 3), each.text, round(each.end, 3))
        for window in windows
        for each in window.segments
    ]


def test_segments_are_those_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four windows, each with the text of those before; transformers tried each once."""
    monkeypatch.setattr(window_decoding, "_MIN_LOGPROB", -100.0)
    windows = heard(NumpyListener(tmp_path, prefill=16), GOLDEN_SECONDS, windows=4)
    found = [segment for window in windows for segment in window.segments]
    with np.load(GOLDEN) as golden:
        times = golden["times"]
        texts = [golden[f"segment_{index}"].tolist() for index in range(len(times))]
    assert len(found) >= len(times) > 3
    for segment, (start, end), text in zip(found, times, texts, strict=False):
        assert (segment.start, segment.end) == pytest.approx((start, end), abs=1e-6)
        # transformers keeps the begin of the next segment, too.
        assert list(segment.tokens) == text[: len(segment.tokens)]
        assert len(text) - len(segment.tokens) <= 1


def test_languages_are_those_of_transformers(tmp_path: Path) -> None:
    listener = NumpyListener(tmp_path)
    rules = TokenRules(tokens())
    decoder = WindowDecoder(listener, MANIFEST, rules, lambda _: "", threading.Event())
    found = []
    for second in range(GOLDEN_SECONDS):
        lead = 200 if second else 0
        part = noise(GOLDEN_SECONDS)[second * RATE - lead :]
        listener.hear(log_mel(part, mels=MELS, frames=2 * STATES, lead=lead))
        found.append(decoder.language())
    with np.load(GOLDEN) as golden:
        assert found == [LANGUAGES[index] for index in golden["languages"]]


def test_a_window_begins_where_the_last_complete_segment_ends() -> None:
    first = (*script((0.0, "one", 0.4)), time(0.4), *LIBRARY.encode("cut").ids)
    listener = ScriptedListener([first, script((0.0, "two", 0.5))])
    assert segments(heard(listener, 1.2)) == [(0.0, "one", 0.4), (0.4, "two", 0.9)]
    assert len(listener.heard) == 2


def test_a_single_time_at_the_end_ends_the_window() -> None:
    said = script((0.0, "one", 0.4), (0.4, "two", 0.8))
    listener = ScriptedListener([said, script((0.0, "three", 0.2))])
    assert segments(heard(listener, 1.5)) == [
        (0.0, "one", 0.4),
        (0.4, "two", 0.8),
        (1.0, "three", 1.2),
    ]


def test_a_text_without_an_end_has_the_length_of_the_sound() -> None:
    listener = ScriptedListener([(time(0.0), *LIBRARY.encode("cut").ids)])
    assert segments(heard(listener, 0.7)) == [(0.0, "cut", 0.7)]


def test_silence_has_no_text_and_is_one_attempt_for_each_window() -> None:
    listener = ScriptedListener([script((0.0, "you", 0.5))], doubt=0.9, no_speech=1.0)
    assert segments(heard(listener, 2.0)) == []
    starts = [read for read in listener.read_tokens if IDS["<|startoftranscript|>"] in read]
    assert len(starts) == len(listener.heard) == 2


def test_a_window_without_sound_is_not_heard() -> None:
    """Whisper writes "you" there. The next window is a sound."""
    quiet = np.where(np.arange(2 * RATE) < 1.5 * RATE, 4e-4, noise(2.0)).astype(np.float32)
    listener = ScriptedListener([script((0.5, "heard", 0.9))])
    silent, loud = heard(listener, sound=quiet)
    assert (silent.segments, silent.language, silent.seconds) == ((), "en", 1.0)
    assert segments([silent, loud]) == [(1.0, "heard", 1.9)]
    assert len(listener.heard) == 1


def test_probable_speech_is_no_silence() -> None:
    listener = ScriptedListener([script((0.0, "you", 0.5))], no_speech=1.0)
    assert segments(heard(listener, 0.9)) == [(0.0, "you", 0.5)]


def test_an_improbable_text_is_sampled_at_higher_temperatures() -> None:
    listener = ScriptedListener([script((0.0, "you", 0.5))], doubt=0.9)
    (window,) = heard(listener, 0.9)
    assert {segment.window.temperature for segment in window.segments} <= {1.0}
    assert temperatures(0.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert temperatures(0.5) == [0.5, 0.7, 0.9]


def test_a_text_that_repeats_itself_is_sampled_again_and_is_no_example() -> None:
    repeated = script((0.0, "ha " * 20, 0.5))
    listener = ScriptedListener([repeated, script((0.0, "new", 0.3))])
    first, second = heard(listener, 1.9)
    assert first.segments[0].window.temperature == 1.0
    assert second.segments[0].window.temperature == 0.0
    assert not any(IDS["<|startofprev|>"] in read for read in listener.read_tokens)


def test_earlier_text_and_the_prompt_come_first() -> None:
    one = script((0.0, "one", 0.5))
    listener = ScriptedListener([one, script((0.0, "two", 0.5))])
    prompt = LIBRARY.encode("names").ids
    heard(listener, 1.9, prompt=prompt)
    previous, start = IDS["<|startofprev|>"], IDS["<|startoftranscript|>"]
    begins = [read for read in listener.read_tokens if start in read]
    assert begins == [[previous, *prompt, start], [previous, *prompt, *one, start]]


def test_a_long_prompt_keeps_its_end() -> None:
    listener = ScriptedListener([script((0.0, "one", 0.5))])
    heard(listener, 0.9, prompt=[1] * 1000 + [2])
    assert listener.read_tokens[0][1:-1] == [1] * (CONTEXT // 2 - 2) + [2]


def test_the_language_is_detected_once() -> None:
    listener = ScriptedListener([script((0.0, "one", 0.5))])
    windows = heard(listener, 1.9, language=None)
    assert {window.language for window in windows} == {"de"}
    begin = [IDS["<|de|>"], IDS["<|transcribe|>"]]
    assert listener.read_tokens.count(begin) == 2
    assert listener.read_tokens.count([IDS["<|startoftranscript|>"]]) == 2


def test_a_stopped_transcription_ends_at_the_next_token() -> None:
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(Stopped):
        heard(ScriptedListener([script((0.0, "one", 0.5))]), 0.9, stopped=stopped)


def allowed(*written: int) -> set[str]:
    """The tokens that may follow: "text", "end" and the times in hundredths of a second."""
    logits = np.zeros(FIRST_TIME + STATES + 1, np.float32)
    logits[: END + 1] = 10.0  # times together are not more probable than a text
    TokenRules(tokens()).apply(logits, written)
    names: dict[int, Any] = {END: "end"} | dict.fromkeys(range(256), "text")
    return {
        str(names.get(id_, 2 * (id_ - FIRST_TIME)))
        for id_ in np.flatnonzero(np.isfinite(logits)).tolist()
    }


def times(first: int, last: int) -> set[str]:
    return {str(each) for each in range(first, last + 1, 2)}


def test_times_come_in_pairs_and_never_go_back() -> None:
    """By the rules of the paper's decoder."""
    text = LIBRARY.encode("a").ids[0]
    assert allowed() == times(0, 100)
    assert allowed(time(0.2)) == {"text", "end"}
    assert allowed(time(0.2), text) == {"text", "end"} | times(22, 100)
    assert allowed(time(0.2), text, time(0.6)) == {"end"} | times(60, 100)
    assert allowed(time(0.2), text, time(0.6), time(0.6)) == {"text", "end"}
    assert allowed(time(0.2), text, time(0.6), time(0.8), text) == {"text", "end"} | times(82, 100)


def test_probable_times_leave_no_text() -> None:
    logits = np.zeros(FIRST_TIME + STATES + 1, np.float32)
    TokenRules(tokens()).apply(logits, [time(0.2), 5])
    assert not np.isfinite(logits[:FIRST_TIME]).any()


def test_suppressed_tokens_are_never_sampled() -> None:
    logits = np.zeros(FIRST_TIME + STATES + 1, np.float32)
    logits[:256] = 10.0
    TokenRules(tokens()).apply(logits, [time(0.2), 5])
    assert set(np.flatnonzero(~np.isfinite(logits[:FIRST_TIME]))) == {
        1, 2, 7, *range(END + 1, FIRST_TIME),
    }  # fmt: skip
