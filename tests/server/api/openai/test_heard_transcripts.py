"""Transcriptions by language models that read sound, over HTTP and with OpenAI's client."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import openai
import pytest
import soundfile

from hearthd.bundle import NO_PRESET, Preset, SoundInput, TranscriptPrompts
from hearthd.models.families import gemma4_sound, qwen2audio, ultravox
from hearthd.server.completions.choices import Choices
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.services.transcripts import TranscriptRequest, begin_transcript
from hearthd.server.speech.language_names import LANGUAGES
from tests.baker.small_gemma4_sound import samples, wav
from tests.baker.small_hearing import SPECIAL, TEMPLATES
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.speech import speech_services
from tests.server.speech.listeners import ScriptedListener

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from hearthd.server.services.language_service import LocalLanguageService
    from hearthd.text.text_request import TextRequest

PATH, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
RATE, ROWS = 16_000, 25  # of a window, which has a second
TOKEN = "[TRANSCRIBE]"
SETTINGS = SoundInput(
    features="whisper", width=16, frames=4, max_rows=ROWS, window=100, windows=3, padded=True,
    marker="[BEGIN_AUDIO][AUDIO]", start="[BEGIN_AUDIO]", placeholder="[AUDIO]", end="",
)  # fmt: skip
TEXT = "the dog jumps over the fox"
LIBRARY = fakes.gemma_like(special=(*SPECIAL["voxtral"], TOKEN))


def ears(
    prompts: TranscriptPrompts | None = None, *, cue: str = "[/INST]", **fields: Any
) -> LocalLanguageService:
    """A service that writes TEXT, among spaces, after a cue."""
    answer = LIBRARY.encode(f"  {TEXT}  ", add_special_tokens=False).ids
    id_: Any = LIBRARY.token_to_id(cue)
    script = fakes.Script(cue=(id_,), answer=tuple(answer), end=fakes.EOS)
    sound = replace(SETTINGS, transcripts=prompts or TranscriptPrompts())
    options = {
        "template": TEMPLATES["voxtral"], "script": script, "sound": sound, "image_rows": ROWS,
        "context": 1024,
    }  # fmt: skip
    return fakes.fake_service(LIBRARY, **{**options, **fields})


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with fakes.running(ears()) as client:
        yield client


WAV = wav(samples(RATE, 0))


def post(client: httpx.Client, path: str = PATH, *, data: bytes = WAV, **fields: Any) -> Any:
    return client.post(path, files={"file": ("sound.wav", data)}, data={"model": "any", **fields})


def test_json_has_the_text_and_the_tokens(client: httpx.Client) -> None:
    answer = post(client)
    assert answer.status_code == 200, answer.text
    assert answer.json()["text"] == TEXT
    usage = answer.json()["usage"]
    assert usage["type"] == "tokens"
    assert usage["input_token_details"]["audio_tokens"] == ROWS
    assert usage["input_tokens"] == sum(usage["input_token_details"].values())
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert post(client, PATH.removeprefix("/v1"), response_format="text").text == f"{TEXT}\n"
    assert post(client, TRANSLATIONS).json()["text"] == TEXT
    two = post(client, data=wav(samples(RATE + 1, 0))).json()["usage"]
    assert two["input_token_details"]["audio_tokens"] == 2 * ROWS


def test_a_stream_joined_is_the_whole_answer(client: httpx.Client) -> None:
    lines = post(client, stream="true").text.split("\n")
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    names = [line[7:] for line in lines if line.startswith("event: ")]
    *deltas, done = data
    assert names == ["transcript.text.delta"] * len(deltas) + ["transcript.text.done"]
    assert "".join(event["delta"] for event in deltas) == done["text"] == TEXT
    assert {**post(client).json(), "type": "transcript.text.done"} == done


def test_openai_s_client_reads_the_answers(client: httpx.Client) -> None:
    with openai.OpenAI(
        base_url=f"{client.base_url}/v1", api_key="none", max_retries=0, timeout=PATIENCE
    ) as ours:
        create, file = ours.audio.transcriptions.create, ("sound.wav", WAV)
        whole = create(model="any", file=file, language="en", prompt="Fox")
        assert whole.text == TEXT
        assert whole.usage is not None
        assert whole.usage.type == "tokens"
        *deltas, done = create(model="any", file=file, stream=True)
        assert deltas[0].type == "transcript.text.delta"
        assert done.type == "transcript.text.done"
        assert done.text == TEXT


def prompt_of(
    prompts: TranscriptPrompts,
    language: str = "",
    example: str = "",
    *,
    translate: bool = False,
    preset: Preset = NO_PRESET,
) -> str:
    """The prompt of a request, with <sound> for the rows of a sound."""
    service = ears(prompts, preset=preset)
    asked: list[TextRequest] = []

    async def recorded(requests: Any) -> Choices:
        asked.extend(requests)
        return Choices(())

    request = TranscriptRequest(
        language=language, translate=translate, example=example, temperature=0
    )
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setattr(service, "complete_all", recorded)
        file.write(WAV)
        file.seek(0)
        _, rows = asyncio.run(begin_transcript(service, file, request))
    ids = [int(id_) for id_ in asked[0].prompt]
    assert ids.count(-1) == rows == ROWS
    first = ids.index(-1)
    texts = (ids[:first], ids[first + ROWS :])
    before, after = (service.tokenizer.decode(part, special=True) for part in texts)
    return f"{before}<sound>{after}"


def test_the_token_of_a_model_asks_for_the_words() -> None:
    """Unless more is asked for."""
    prompts = TranscriptPrompts(token=TOKEN)
    head = "<bos>[INST][BEGIN_AUDIO]<sound>"
    assert prompt_of(prompts) == f"{head}[/INST]{TOKEN}"
    assert prompt_of(prompts, "pt") == f"{head}[/INST]lang:pt{TOKEN}"
    assert prompt_of(prompts, preset=Preset(system="Be brief.")) == prompt_of(prompts)
    translated = prompt_of(prompts, translate=True)
    assert translated == f"{head}{prompts.english.removeprefix('{sound}')}[/INST]"
    hinted = prompt_of(prompts, example=f" Ann, {TOKEN}\n")
    assert hinted.startswith(f"{head}{prompts.any_language.removeprefix('{sound}')}\n")
    assert hinted.endswith(f"as in this text: Ann, {TOKEN}[/INST]")
    with fakes.running(ears(prompts, cue=TOKEN)) as client:
        assert post(client).json()["text"] == TEXT


@pytest.mark.parametrize(
    ("prompts", "language", "text"),
    [
        (ultravox._TRANSCRIPTS, "", "Transcribe\n[BEGIN_AUDIO]<sound>"),
        (ultravox._TRANSCRIPTS, "de", "Transcribe in German\n[BEGIN_AUDIO]<sound>"),
        (
            qwen2audio._TRANSCRIPTS,
            "en",
            "[BEGIN_AUDIO]<sound>Detect the language and recognize the speech: <|en|>",
        ),
        (
            gemma4_sound._TRANSCRIPTS,
            "fr",
            "[BEGIN_AUDIO]<sound>Transcribe the following speech segment in French into French "
            f"text.{gemma4_sound._FORM}",
        ),
        (
            TranscriptPrompts(),
            "haw",
            "[BEGIN_AUDIO]<sound>Transcribe the speech in Hawaiian. Write the transcript only.",
        ),
    ],
)
def test_models_are_asked_as_their_authors_ask_them(
    prompts: TranscriptPrompts, language: str, text: str
) -> None:
    assert prompt_of(prompts, language) == f"<bos>[INST]{text}[/INST]"


REFUSED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"response_format": "srt"}, "response_format", "json or text: only Whisper says when"),
    ({"response_format": "verbose_json"}, "response_format", "json or text"),
    ({"language": "xx"}, "language", "a code of ISO 639"),
    ({"language": "x" * 100_000}, "language", "a code of ISO 639"),
    ({"temperature": "1.5"}, "temperature", "less than or equal to 1"),
    ({"data": b""}, "file", "a sound file in the format WAV, FLAC"),
    ({"data": b"ID3" + bytes(99)}, "file", "a sound file in the format WAV, FLAC"),
    ({"data": WAV[:30]}, "file", "a sound file in the format WAV, FLAC"),
    ({"data": wav(samples(0, 0))}, "file", "a sound of at least 0.02 s"),
    ({"data": wav(samples(3 * RATE + 1, 0))}, "file", "a sound of at most 3 s: split it"),
)


@pytest.mark.parametrize(("fields", "field", "expected"), REFUSED)
def test_what_cannot_be_transcribed_is_named(
    client: httpx.Client, fields: Any, field: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # without ffmpeg
    answer = post(client, **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == field
    assert expected in error["message"]
    assert len(answer.text) < 2000


def sound(values: Any, rate: int = RATE, form: str = "WAV", **options: Any) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, values, rate, format=form, **options)
    return file.getvalue()


def test_odd_sounds_are_transcribed(client: httpx.Client) -> None:
    """One sample, values that are not numbers, many channels, and high rates."""
    numbers = np.array([np.nan, np.inf, -np.inf, 1e38] * 400, np.float32)
    odd = (
        wav(samples(1, 0)),
        sound(numbers, subtype="FLOAT"),
        sound(np.zeros((800, 8), np.float32)),
        sound(np.zeros(19_200, np.float32), 192_000),
    )
    for data in odd:
        assert post(client, data=data).json()["text"] == TEXT


def test_a_transcript_that_the_context_cuts_off_is_an_error() -> None:
    """Also in a stream, whose last event it is."""
    long = ears(context=90)
    with fakes.running(long) as client:
        answer = post(client)
        assert answer.status_code == 400
        message = answer.json()["error"]["message"]
        assert message.startswith('file: got "a transcript of more than ')
        lines = post(client, stream="true").text.strip().split("\n")
        assert lines[-2] == "event: error"
        assert message in json.loads(lines[-1].removeprefix("data: "))["error"]["message"]
        tight = post(client, data=wav(samples(3 * RATE, 0)))
        assert tight.json()["error"]["param"] == "file"


def test_a_model_without_a_template_is_refused() -> None:
    with fakes.running(ears(template=None)) as client:
        error = post(client).json()["error"]
        assert (error["param"], "chat template" in error["message"]) == ("model", True)


def test_without_the_library_the_answer_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "hearthd.server.images.sound_reader", None)
    with fakes.running(ears()) as client:
        answer = post(client)
        assert answer.status_code == 501
        assert "install hearthd[speech]" in answer.json()["error"]["message"]


def test_a_request_without_a_model_goes_to_a_model_of_speech() -> None:
    """Its transcripts have times. A name chooses the other."""
    whisper = speech_services.service(ScriptedListener(()))
    pool = ModelPool([fakes.deployed(ears(name="chat")), fakes.deployed(whisper)])
    with fakes.running(pool) as client:
        files = {"file": ("sound.wav", wav(samples(0, 0)))}
        assert client.post(PATH, files=files).json()["usage"]["type"] == "duration"
        assert post(client, model="chat", language="EN-us").json()["text"] == TEXT
        models = client.get("/v1/models").json()["data"]
        assert all("transcription" in model["capabilities"] for model in models)


def test_languages_have_the_codes_of_whisper() -> None:
    assert len(LANGUAGES) == 100
    assert all(code.islower() and name[0].isupper() for code, name in LANGUAGES.items())
