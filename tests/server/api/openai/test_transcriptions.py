"""POST /v1/audio/transcriptions and /v1/audio/translations, over HTTP and with OpenAI's client."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
import sys
import tempfile
import threading
import warnings
from typing import TYPE_CHECKING, Any
from unittest import mock

import openai
import pytest
from typing_extensions import override

from hearthd.server.api.openai import transcriptions
from hearthd.server.app import Guards
from tests.baker.small_whisper import IDS
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.full_disk import full_disk
from tests.server.speech.listeners import ScriptedListener, script, tokens
from tests.server.speech.speech_services import service, wav

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import httpx
    import numpy as np
    from numpy.typing import NDArray

PATH, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
WINDOWS = (
    script((0.0, " Hello,", 0.4), (0.4, " you --> two", 1.0)),
    script((0.0, " bye.", 0.46)),
)
TEXT = "Hello, you --> two bye."
SECONDS = 1.46


@contextlib.contextmanager
def client_of(
    listener: ScriptedListener | None = None, **options: Any
) -> Iterator[tuple[httpx.Client, ScriptedListener]]:
    listener = listener or ScriptedListener(WINDOWS)
    with fakes.running(service(listener), **options) as client:
        yield client, listener


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Each request is the only one, and its first window the first of the script."""
    listener = ScriptedListener(WINDOWS)

    class Fresh(ScriptedListener):
        @override
        def hear(self, spectrogram: NDArray[np.float32]) -> None:
            super().hear(spectrogram)
            if len(self.heard) > len(WINDOWS):
                del self.heard[:-1]

    with fakes.running(service(Fresh(listener.windows))) as running:
        yield running


def post(client: httpx.Client, path: str = PATH, *, seconds: float = SECONDS, **fields: Any) -> Any:
    files = {"file": ("sound.wav", wav(seconds), "audio/wav")}
    return client.post(path, files=files, data={"model": "ears", **fields})


def test_json_has_the_text_and_the_length(client: httpx.Client) -> None:
    answer = post(client)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"text": TEXT, "usage": {"type": "duration", "seconds": 2}}
    assert "warning" not in answer.headers


def test_the_names_of_llama_server_are_other_names(client: httpx.Client) -> None:
    for path in (PATH, TRANSLATIONS):
        assert post(client, path.removeprefix("/v1")).json()["text"] == TEXT


def test_text_is_plain(client: httpx.Client) -> None:
    answer = post(client, response_format="text")
    assert answer.text == f"{TEXT}\n"
    assert answer.headers["content-type"].startswith("text/plain")


def test_srt_and_vtt_have_cues(client: httpx.Client) -> None:
    assert post(client, response_format="srt").text == (
        "1\n00:00:00,000 --> 00:00:00,400\nHello,\n\n"
        "2\n00:00:00,400 --> 00:00:01,000\nyou -> two\n\n"
        "3\n00:00:01,000 --> 00:00:01,460\nbye.\n\n"
    )
    assert post(client, response_format="vtt").text == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.400\nHello,\n\n"
        "00:00:00.400 --> 00:00:01.000\nyou -> two\n\n00:00:01.000 --> 00:00:01.460\nbye.\n\n"
    )


def test_verbose_json_has_segments_and_the_detected_language(client: httpx.Client) -> None:
    answer = post(client, response_format="verbose_json").json()
    assert (answer["task"], answer["language"], answer["text"]) == ("transcribe", "de", TEXT)
    assert answer["duration"] == pytest.approx(SECONDS)
    last = answer["segments"][2]
    assert (last["id"], last["seek"], last["start"], last["end"]) == (2, 100, 1.0, 1.46)
    assert last["tokens"] == list(WINDOWS[1])
    assert last["temperature"] == 0.0
    assert last["avg_logprob"] > -0.1
    assert {"compression_ratio", "no_speech_prob"} <= last.keys()


def test_verbose_json_has_words_where_they_are_asked_for(client: httpx.Client) -> None:
    """Of both windows; the segments end with their words, and the second window begins there."""
    form: dict[str, Any] = {
        "response_format": "verbose_json",
        "timestamp_granularities[]": ["word", "segment"],
    }
    both = post(client, **form).json()
    # A token for each byte: each mark is a word.
    found = [word["word"] for word in both["words"]]
    assert found == ["Hello,", "you", "-", "-", ">", "two", "bye."]
    times = [(word["start"], word["end"]) for word in both["words"]]
    assert times == sorted(times)
    assert [each["start"] for each in both["segments"]] == [times[0][0], times[1][0], times[6][0]]
    assert [each["end"] for each in both["segments"]] == [times[0][1], times[5][1], times[6][1]]
    words = post(client, **{**form, "timestamp_granularities[]": "word"}).json()
    assert words["words"] == both["words"]
    assert "segments" not in words
    assert "words" not in post(client, response_format="verbose_json").json()


def test_without_alignment_heads_words_are_refused() -> None:
    ears = service(ScriptedListener(WINDOWS), alignment_heads=())
    form: dict[str, Any] = {
        "response_format": "verbose_json",
        "timestamp_granularities[]": "word",
    }
    with fakes.running(ears) as client:
        answer = post(client, **form)
        assert answer.status_code == 400
        assert "bake it again" in answer.json()["error"]["message"]


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    data = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]
    names = [line[7:] for line in answer.text.split("\n") if line.startswith("event: ")]
    assert names == [event["type"] for event in data]
    return data


def test_a_stream_joined_is_the_whole_answer(client: httpx.Client) -> None:
    *deltas, done = events(post(client, stream="true"))
    assert [event["type"] for event in deltas] == ["transcript.text.delta"] * 3
    assert "".join(event["delta"] for event in deltas) == done["text"] == TEXT
    whole = post(client).json()
    assert {**whole, "type": "transcript.text.done"} == done


def test_a_stream_frees_its_slot_before_its_end() -> None:
    async def read_to_the_end() -> None:
        assert [event async for event in transcriptions._events(transcription, mock.MagicMock())]

    transcription = mock.MagicMock()
    asyncio.run(read_to_the_end())
    transcription.__exit__.assert_called_once()


def test_a_stream_with_a_conversation_id_can_be_read_again_and_stopped(
    client: httpx.Client,
) -> None:
    files = {"file": ("sound.wav", wav(SECONDS))}
    headers, query = {"X-Conversation-Id": "talk"}, {"conv_id": "talk"}
    first = client.post(PATH, files=files, data={"stream": "true"}, headers=headers)
    again = client.get("/v1/stream", params=query)
    assert (again.status_code, again.text) == (200, first.text)
    assert client.delete("/v1/stream", params=query).status_code < 300
    assert client.get("/v1/stream", params=query).status_code == 404


def test_openai_s_client_reads_every_form(client: httpx.Client) -> None:
    with openai.OpenAI(
        base_url=f"{client.base_url}/v1", api_key="none", max_retries=0, timeout=PATIENCE
    ) as ours:
        audio, file = ours.audio, ("sound.wav", wav(SECONDS))
        assert audio.transcriptions.create(model="ears", file=file).text == TEXT
        verbose = audio.transcriptions.create(
            model="ears",
            file=file,
            language="en",
            response_format="verbose_json",
            temperature=0.2,
            timestamp_granularities=["segment", "word"],
        )
        assert verbose.segments is not None
        assert verbose.words is not None
        assert [word.word for word in verbose.words][:2] == ["Hello,", "you"]
        assert [each.text for each in verbose.segments] == [" Hello,", " you --> two", " bye."]
        assert verbose.language == "en"
        types = [
            (event.type, getattr(event, "delta", ""))
            for event in audio.transcriptions.create(model="ears", file=file, stream=True)
        ]
        assert types[0] == ("transcript.text.delta", "Hello,")
        assert types[-1][0] == "transcript.text.done"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some versions deprecate it
            assert audio.translations.create(model="ears", file=file).text == TEXT


def test_translations_ask_for_english_and_transcriptions_for_a_language() -> None:
    with client_of() as (client, listener):
        assert post(client, TRANSLATIONS, prompt="Names").status_code == 200
        assert [IDS["<|de|>"], IDS["<|translate|>"]] in listener.read_tokens
        assert any(read[0] == IDS["<|startofprev|>"] for read in listener.read_tokens)
        assert post(client, language="fr-CA").status_code == 200
        assert [IDS["<|fr|>"], IDS["<|transcribe|>"]] in listener.read_tokens


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"language": "xx"}, "language"),
    ({"language": "x" * 100_000}, "language"),
    ({"temperature": "1.5"}, "temperature"),
    ({"temperature": "warm"}, "temperature"),
    ({"response_format": "xml"}, "response_format"),
    ({"stream": "perhaps"}, "stream"),
    ({"stream": "true", "response_format": "srt"}, "stream"),
    ({"timestamp_granularities[]": "letter"}, "timestamp_granularities"),
    ({"timestamp_granularities[]": "word"}, "timestamp_granularities"),
)


@pytest.mark.parametrize(("fields", "field"), REFUSED)
def test_invalid_fields_are_named(client: httpx.Client, fields: Any, field: str) -> None:
    answer = post(client, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(field), answer.text
    assert len(answer.text) < 2000


@pytest.mark.parametrize("path", [PATH, TRANSLATIONS])
def test_what_is_no_sound_is_refused(
    client: httpx.Client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    answers = [
        client.post(path, files={"file": ("a.wav", b"no sound")}),
        client.post(path, data={"model": "ears"}),
        client.post(path, data={"model": "ears", "file": "a text"}),
    ]
    for answer in answers:
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == "file", answer.text
    assert "expected a file with a file name" in answers[2].json()["error"]["message"]


def test_an_empty_sound_has_no_text(client: httpx.Client) -> None:
    answer = post(client, seconds=0.0, response_format="verbose_json").json()
    assert (answer["text"], answer["segments"], answer["duration"]) == ("", [], 0.0)


def test_unknown_fields_are_ignored_with_a_warning(client: httpx.Client) -> None:
    answer = post(client, chunking_strategy="auto", suppress_magic="1")
    assert answer.status_code == 200, answer.text
    assert "suppress_magic" in answer.headers["warning"]


def test_a_model_of_english_alone_knows_no_other_language() -> None:
    english = dataclasses.replace(tokens(), languages={}, translate=None, transcribe=None)
    listener = ScriptedListener(WINDOWS)
    with fakes.running(service(listener, special=english)) as client:
        assert post(client, language="de").json()["error"]["param"] == "language"
        assert post(client, TRANSLATIONS).json()["error"]["param"] == "model"
        answer = post(client, language="en", response_format="verbose_json").json()
        assert (answer["language"], answer["text"]) == ("en", TEXT)
        assert listener.read_tokens[0] == [IDS["<|startoftranscript|>"]]


def test_api_keys_apply() -> None:
    with client_of(guards=Guards(api_keys=("secret",))) as (client, _):
        assert post(client).status_code == 401
        client.headers["Authorization"] = "Bearer secret"
        assert post(client).json()["text"] == TEXT


def test_a_file_beyond_the_limit_of_bodies_is_413(client: httpx.Client) -> None:
    """A file of nearly that size, with commas only, fits into the memory of requests."""
    limit = 10 * 2**20
    big = client.post(PATH, files={"file": ("a.wav", b"," * limit)})
    assert big.status_code == 413
    fits = client.post(PATH, files={"file": ("a.wav", wav(0.9) + b"," * (limit - 100_000))})
    assert fits.status_code == 200, fits.text


class Waiting(ScriptedListener):
    """It waits before the second window until `go` is set."""

    go = threading.Event()
    came = threading.Event()

    @override
    def hear(self, spectrogram: NDArray[np.float32]) -> None:
        super().hear(spectrogram)
        if len(self.heard) == 2:
            self.came.set()
            assert self.go.wait(PATIENCE)


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_client_that_disconnects_frees_its_slot(stream: str) -> None:
    """The next window is not heard."""
    listener = Waiting(WINDOWS)
    listener.go, listener.came = threading.Event(), threading.Event()
    ears = service(listener, queue_limit=0)
    with fakes.running(ears) as client:
        request = client.build_request(
            "POST", PATH, files={"file": ("a.wav", wav(30.0))}, data={"stream": stream}
        )
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        head = "\r\n".join([f"POST {PATH} HTTP/1.1", *lines, "", ""])
        address = (client.base_url.host, client.base_url.port or 0)
        with socket.create_connection(address, timeout=PATIENCE) as connection:
            connection.sendall(head.encode() + request.read())
            assert listener.came.wait(PATIENCE)
        wait_until(lambda: ears.idle)
        listener.go.set()
        wait_until(lambda: post(client, seconds=0.5).status_code == 200)
        assert len(listener.heard) <= 4


def test_a_full_queue_is_429_before_a_stream_begins() -> None:
    listener = Waiting(WINDOWS)
    listener.go, listener.came = threading.Event(), threading.Event()
    with fakes.running(service(listener, queue_limit=0)) as client:
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(post(client)))
        thread.start()
        assert listener.came.wait(PATIENCE)
        answer = post(client, stream="true")
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
        assert answer.headers["Retry-After"] == "1"
        listener.go.set()
        thread.join(PATIENCE)
        assert answers[0].json()["text"] == TEXT


def test_without_the_library_the_answer_says_what_to_install(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hearthd.server.speech.sound_files", None)
    answer = post(client)
    assert answer.status_code == 501
    assert "install hearthd[speech]" in answer.json()["error"]["message"]


def test_without_a_folder_for_files_the_answer_says_so(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    answer = post(client)
    assert answer.status_code == 501
    assert "let the server write to /tmp" in answer.json()["error"]["message"]


@pytest.mark.parametrize("seconds", [5, 40], ids=["stored when it is read", "stored as it comes"])
def test_a_full_disk_is_507(client: httpx.Client, seconds: float) -> None:
    with full_disk():
        answer = post(client, seconds=seconds)
    assert answer.status_code == 507
    message = answer.json()["error"]["message"]
    assert message.startswith("file: cannot be stored for reading: File too large; retry later")
    assert post(client).status_code == 200


def test_a_failure_of_the_model_is_500_and_an_event_of_a_stream() -> None:
    class Broken(ScriptedListener):
        @override
        def read(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
            raise RuntimeError("broken")

    with client_of(Broken(WINDOWS)) as (client, _):
        assert post(client).status_code == 500
        assert "broken" in post(client, stream="true").text


def test_metrics_and_the_list_of_models_know_it(client: httpx.Client) -> None:
    post(client)
    assert client.get("/v1/models").json()["data"][0]["capabilities"] == ["transcription"]
    metrics = client.get("/metrics").text
    assert 'hearth_runs_total{function="transcribe"' in metrics
    assert client.get("/health").status_code == 200
    assert client.post("/v1/chat/completions", json={"messages": []}).status_code == 404
