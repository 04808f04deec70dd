"""Sounds that are attached or recorded on the chat page: read by the model, or transcribed."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.server import fakes
from tests.server.api.test_sounds import sound_service
from tests.server.web.test_attached_images import DROP, give

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from tests.server.web.browser import Page
    from tests.server.web.doorman import Doorman

RATE = 44_100
TONE = np.sin(np.arange(RATE) * 2 * np.pi * 440 / RATE) / 2
# Keep the files of requests.
UPLOADS = """const send = window.fetch;
    window.uploaded = [];
    window.fetch = (url, options) => {
        if (options?.body instanceof FormData) uploaded.push(options.body.get("file"));
        return send(url, options);
    }"""
# A recorder that is stopped before it has any sound.
NOTHING = """window.MediaRecorder = class {
        start() {}
        stop() { this.ondataavailable({ data: new Blob() }); this.onstop(); }
    }"""
PLAYED = "return [...document.querySelectorAll(arguments[0])].map((a) => [a.title, a.duration])"


@pytest.fixture
def hearing(page: Page, doorman: Doorman) -> Iterator[Page]:
    """The page of a model that reads sound."""
    with fakes.running(sound_service(), before=doorman.before) as client:
        page.open(str(client.base_url))
        yield page


@pytest.fixture
def listening(chat: Page, doorman: Doorman) -> Page:
    """The page of a model that reads texts alone, beside one that transcribes speech."""
    doorman.answered["/v1/models"] = {
        "object": "list",
        "data": [
            {"id": "writer", "meta": {"n_ctx": 100}, "capabilities": ["completion", "chat"]},
            {"id": "ears", "meta": None, "capabilities": ["transcription"]},
        ],
    }
    doorman.answered["/v1/audio/transcriptions"] = {"text": "hello there"}
    chat.driver.refresh()
    chat.find("#record")
    return chat


def sound_file(format_: str, samples: NDArray[np.float64]) -> str:
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=format_.upper())
    return base64.b64encode(file.getvalue()).decode()


def sent(part: dict[str, Any]) -> NDArray[np.int16]:
    """The samples of a part of a request, which has one channel of 16 kHz."""
    assert part["type"] == "input_audio"
    assert part["input_audio"]["format"] == "wav"
    samples: NDArray[np.int16]
    samples, rate = soundfile.read(
        io.BytesIO(base64.b64decode(part["input_audio"]["data"])), dtype="int16"
    )
    assert (rate, samples.ndim) == (16_000, 1)
    return samples


def test_sounds_are_resampled_played_and_stored(hearing: Page, doorman: Doorman) -> None:
    stereo = np.stack([2 * TONE, 0 * TONE], axis=1) * 0.99  # their mean is the tone
    give(hearing, DROP, ("a.flac", "audio/flac", sound_file("flac", stereo)))
    hearing.until(lambda: hearing.find(".chip").text.endswith(" tokens"), "its size in tokens")
    hearing.ask("the dog")
    part, text = doorman.bodies[-1]["messages"][0]["content"]
    samples = sent(part)
    assert text == {"type": "text", "text": "the dog"}
    assert abs(len(samples) - 16_000) < 20
    frequencies = np.abs(np.fft.rfft(samples[:16_000]))
    assert frequencies.argmax() == 440
    assert np.abs(samples).max() == pytest.approx(0.99 * 32767 / 2, rel=0.02)
    for _ in range(2):
        shown = hearing.until(lambda: hearing.run(PLAYED, ".user audio"), "the player")
        assert shown == [["a.flac", pytest.approx(1, abs=0.01)]]
        hearing.driver.refresh()


def record(page: Page, recorded: Callable[[], bool]) -> None:
    """Record until something is recorded: a busy machine takes its time to begin."""
    while not recorded():
        page.click("[aria-label='Record sound']")
        page.click("[aria-label='Stop recording']")
        page.until(lambda: recorded() or page.all("#notice:not([hidden])"), "what became of it")


def test_sound_of_the_microphone_is_attached(hearing: Page, doorman: Doorman) -> None:
    record(hearing, lambda: any("recording.wav" in chip.text for chip in hearing.all(".chip")))
    hearing.ask("the dog")
    assert sent(doorman.bodies[-1]["messages"][0]["content"][0]).ndim == 1
    hearing.find("[aria-label='Record sound']")


def test_an_empty_recording_is_said(hearing: Page) -> None:
    hearing.run(NOTHING)
    hearing.click("[aria-label='Record sound']")
    hearing.click("[aria-label='Stop recording']")
    hearing.shows("#notice", "Nothing was recorded.")
    assert hearing.all(".chip") == []


@pytest.mark.nightly
def test_bad_and_long_sounds_are_refused(hearing: Page) -> None:
    give(hearing, DROP, ("broken.wav", "audio/wav", "AAAA"))
    hearing.shows("#notice", "broken.wav: the browser cannot read this sound.")
    long = sound_file("flac", np.zeros(2 * RATE))
    give(hearing, DROP, ("long.flac", "audio/flac", long))
    hearing.shows("#notice", "long.flac: the sound is longer than 1.2 s.")
    assert hearing.all(".chip") == []


def test_speech_is_typed_for_a_model_without_sound(listening: Page) -> None:
    listening.run(UPLOADS)
    listening.type("Well, ")
    record(
        listening,
        lambda: (
            listening.run("return document.getElementById('input').value") == "Well, hello there"
        ),
    )
    assert listening.run("return uploaded[0].slice(0, 4).text()") == "RIFF"
    give(listening, DROP, ("a.wav", "audio/wav", sound_file("wav", TONE)))
    listening.shows(".chip", "a.wav.txt")


@pytest.mark.nightly
def test_a_model_without_sound_refuses_it(chat: Page) -> None:
    give(chat, DROP, ("a.wav", "audio/wav", sound_file("wav", TONE)))
    chat.shows("#notice", "a.wav: this model cannot read sound.")
    assert chat.all(".chip, #record") == []
