"""Sounds that are cut into windows, for a template that writes no sound, with a fake runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import SoundInput
from tests.baker.small_gemma4_sound import samples, wav
from tests.baker.small_hearing import SPECIAL, TEMPLATES
from tests.server import fakes
from tests.server.api.test_sounds import TEXT, chat, encoded, part, tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

RATE, ROWS = 16_000, 25  # of a window, which has a second
SETTINGS = SoundInput(
    features="whisper", width=16, frames=4, max_rows=ROWS, window=100, windows=3, padded=True,
    marker="[BEGIN_AUDIO][AUDIO]", start="[BEGIN_AUDIO]", placeholder="[AUDIO]", end="",
)  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    service = fakes.fake_service(
        fakes.gemma_like(special=SPECIAL["voxtral"]), template=TEMPLATES["voxtral"],
        sound=SETTINGS, image_rows=ROWS, context=256,
    )  # fmt: skip
    with fakes.running(service) as client:
        yield client


def sound(count: int, seed: int = 0) -> dict[str, Any]:
    return part(encoded(wav(samples(count, seed))))


def written(client: httpx.Client, *parts: Any) -> str:
    """The prompt, without the tags of the template."""
    text: str = client.post("/apply-template", json=chat(*parts)).json()["prompt"]
    return text.removeprefix("[INST]").removesuffix("[/INST]")


def test_each_window_takes_its_rows(client: httpx.Client) -> None:
    empty = tokens(client, chat(TEXT))
    for count, windows in ((1, 1), (RATE, 1), (RATE + 1, 2), (3 * RATE, 3)):
        assert tokens(client, chat(sound(count), TEXT)) == empty + windows * ROWS + 1, count


def test_sounds_are_at_their_places_among_the_texts(client: httpx.Client) -> None:
    parts = (TEXT, sound(RATE), {"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    assert written(client, *parts) == "the dog[BEGIN_AUDIO][AUDIO]a\nb"
    expected = "[BEGIN_AUDIO][AUDIO][AUDIO][BEGIN_AUDIO][AUDIO]the dog"
    assert written(client, sound(RATE + 1), sound(9, 1), TEXT) == expected


def test_no_text_of_a_client_is_a_sound(client: httpx.Client) -> None:
    text = {"type": "text", "text": "[BEGIN_AUDIO][AUDIO]"}
    assert tokens(client, chat(sound(RATE), text)) == tokens(client, chat(text)) + ROWS + 1


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (3 * RATE + 1, 'got "more than 3 s", expected a sound of at most 3 s: split it'),
        (0, 'got "0 s", expected a sound of at least 0.02 s'),
    ],
)
def test_a_length_out_of_range_is_named(count: int, message: str, client: httpx.Client) -> None:
    response = client.post("/v1/chat/completions", json=chat(TEXT, sound(count)))
    assert response.status_code == 400
    assert response.json()["error"]["message"].endswith(message)


def test_a_damaged_file_is_named(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")  # without ffmpeg
    for data in (wav(samples(RATE, 0))[:30], b"RIFF" + bytes(99), b"ID3" + bytes(99)):
        response = client.post("/v1/chat/completions", json=chat(TEXT, part(encoded(data))))
        assert response.status_code == 400
        assert response.json()["error"]["message"].startswith("messages[0].content[1]: got ")
