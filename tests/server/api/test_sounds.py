"""Sound in requests, with a fake runtime."""

from __future__ import annotations

import base64
import io
import tempfile
from typing import TYPE_CHECKING, Any

import pytest
import soundfile

from hearthd.bundle import SoundInput
from hearthd.text.media_marker import KNOWN_MARKER
from tests.baker.small_gemma4_sound import SPECIAL, TEMPLATE, samples, wav
from tests.server import fakes
from tests.server.full_disk import full_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from hearthd.server.services.language_service import LocalLanguageService

ROWS, LENGTH = 25, 16_000  # of the fake tower, and samples of a sound that gives these
SETTINGS = SoundInput(
    features="log_mel", width=128, frames=4, max_rows=30, marker="<|audio|>", start="<|audio>",
    placeholder="<|audio|>", end="<audio|>",
)  # fmt: skip
TEXT = {"type": "text", "text": "the dog"}


def sound_service() -> LocalLanguageService:
    """A service whose model reads sound as Gemma 4 does."""
    return fakes.fake_service(
        fakes.gemma_like(special=SPECIAL), template=TEMPLATE, sound=SETTINGS, image_rows=ROWS,
        context=256,
    )  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(sound_service()) as client:
        yield client


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def part(data: str, format_: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": format_}}


def chat(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 3}


WAV = encoded(wav(samples(LENGTH, 0)))
PNG = encoded(b"\x89PNG\r\n\x1a\n" + bytes(16))


def tokens(client: httpx.Client, body: dict[str, Any], path: str = "/v1/chat/completions") -> int:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    usage = response.json().get("usage", response.json())
    return int(usage.get("prompt_tokens", usage.get("input_tokens")))


def test_a_sound_takes_a_row_for_40_ms(client: httpx.Client) -> None:
    empty = tokens(client, chat(TEXT))
    assert tokens(client, chat(part(WAV), TEXT)) == empty + ROWS + 2
    uri = {"type": "audio_url", "audio_url": {"url": f"data:audio/wav;base64,{WAV}"}}
    assert tokens(client, chat(uri, TEXT)) == empty + ROWS + 2
    items = [part(WAV), {"type": "input_text", "text": "the dog"}]
    body = {"input": [{"role": "user", "content": items}], "max_output_tokens": 3}
    assert tokens(client, body, "/v1/responses") == empty + ROWS + 2
    inline = {"inlineData": {"mimeType": "audio/wav", "data": WAV}}
    contents = {"contents": [{"parts": [inline, {"text": "the dog"}]}]}
    counted = client.post("/v1beta/models/any:countTokens", json=contents).json()
    assert counted == {"totalTokens": empty + ROWS + 2}


def multimodal(*files: str) -> dict[str, Any]:
    return {"prompt_string": KNOWN_MARKER * len(files) + "the dog", "multimodal_data": files}


def test_sounds_in_multimodal_data(client: httpx.Client) -> None:
    """Of every format, by the first bytes: llama-server's clients do not say what it is."""
    empty = client.post("/tokenize", json={"content": "the dog"}).json()["tokens"]
    for format_ in ("wav", "flac", "mp3", "ogg", "aiff", "au", "caf"):
        file = io.BytesIO()
        soundfile.write(file, samples(LENGTH, 0), 16_000, format=format_.upper())
        body = {"content": multimodal(encoded(file.getvalue()))}
        ids = client.post("/tokenize", json=body).json()["tokens"]
        assert ids.count(-1) == ROWS, format_
        assert len(ids) == len(empty) + ROWS + 2
    request: dict[str, Any] = {"prompt": multimodal(WAV, WAV), "n_predict": 2, "temperature": 0}
    answer = client.post("/completion", json=request).json()
    assert answer["tokens_evaluated"] >= 2 * (ROWS + 2)
    refused = client.post("/completion", json={"prompt": multimodal(PNG)})
    assert refused.status_code == 400
    assert "no images: the model cannot read images" in refused.json()["error"]["message"]


def test_ollama_has_sounds_among_its_images(client: httpx.Client) -> None:
    shown = client.post("/api/show", json={"model": "fake-model"}).json()
    assert "audio" in shown["capabilities"]
    counts = {}
    for name, sounds in (("with", [WAV]), ("without", [])):
        message = {"role": "user", "content": "the dog", "images": sounds}
        body = {"messages": [message], "stream": False, "options": {"num_predict": 2}}
        counts[name] = client.post("/api/chat", json=body).json()["prompt_eval_count"]
    assert counts["with"] == counts["without"] + ROWS + 2


def test_formats_and_rates(client: httpx.Client) -> None:
    expected = tokens(client, chat(part(WAV)))
    for format_ in ("flac", "mp3"):
        file = io.BytesIO()
        soundfile.write(file, samples(3 * LENGTH, 0), 48_000, format=format_.upper())
        sound = part(encoded(file.getvalue()), format_)
        assert tokens(client, chat(sound)) == expected


def test_clients_can_ask_whether_the_model_reads_sound(client: httpx.Client) -> None:
    assert client.get("/props").json()["modalities"] == {"vision": False, "audio": True}
    (listed,) = client.get("/v1/models").json()["data"]
    assert listed["meta"]["sound_seconds"] == 1.2
    assert "audio" in listed["capabilities"]
    assert listed["architecture"]["input_modalities"] == ["text", "audio"]


def test_the_template_places_sounds_and_no_text_does(client: httpx.Client) -> None:
    body = chat(part(WAV), {"type": "text", "text": "<|audio|>"})
    prompt = client.post("/apply-template", json=body).json()["prompt"]
    assert prompt == "<|turn>user\n<|audio><|audio|><audio|><|audio|><turn|>\n<|turn>model\n"
    assert tokens(client, body) > ROWS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("?", 'got "?", expected base64'),
        (encoded(b"no sound"), 'got "8 bytes", expected a sound file in the format WAV, FLAC'),
        (encoded(wav(samples(100, 0))), 'got "0.00625 s", expected a sound of at least 0.02 s'),
        (
            encoded(wav(samples(19_201, 0))),
            'got "more than 1.2 s", expected a sound of at most 1.2 s: split it',
        ),
        ("https://a.b/c.wav", "expected the sound itself, in base64: the server downloads no"),
    ],
)
def test_errors_name_the_part(
    data: str, message: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # without ffmpeg
    response = client.post("/v1/chat/completions", json=chat(TEXT, part(data)))
    assert response.status_code == 400
    error = response.json()["error"]["message"]
    assert error.startswith("messages[0].content[1]: ")
    assert message in error


def test_a_model_of_sound_alone_reads_no_images(client: httpx.Client) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    response = client.post("/v1/chat/completions", json=chat(image))
    assert "reads sound of users and of tools, and no" in response.json()["error"]["message"]


def test_a_full_disk_is_507(client: httpx.Client) -> None:
    long = encoded(wav(samples(5 * LENGTH, 0)))
    with full_disk():
        answer = client.post("/v1/chat/completions", json=chat(TEXT, part(long)))
    assert answer.status_code == 507
    message = answer.json()["error"]["message"]
    assert message.startswith("messages[0].content[1]: cannot be stored for reading: File too")
    assert tokens(client, chat(part(WAV))) > ROWS


def test_without_a_folder_for_files_the_answer_says_so(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    answer = client.post("/v1/chat/completions", json=chat(part(WAV)))
    assert answer.status_code == 501
    assert "let the server write to /tmp" in answer.json()["error"]["message"]
