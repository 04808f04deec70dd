"""POST /v1/audio/transcriptions and /v1/audio/translations: speech as text."""

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import Form, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import ConfigDict, Field, RootModel
from sse_starlette import EventSourceResponse
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from hearthd.server.api import form_body, openapi
from hearthd.server.api.answer_writer import or_error
from hearthd.server.api.current_service import transcriber
from hearthd.server.api.disconnect import unless_disconnected
from hearthd.server.api.fields import ModelFields, Text
from hearthd.server.api.form_body import FormRoute, Upload
from hearthd.server.api.http_errors import ERRORS, describe, encode
from hearthd.server.api.openai.heard_transcripts import HeardTranscriptWriter
from hearthd.server.api.openai.transcript_forms import (
    Transcript,
    TranscriptDelta,
    TranscriptDone,
    TranscriptWriter,
    VerboseTranscript,
)
from hearthd.server.api.sse import respond
from hearthd.server.api.surface import surface
from hearthd.server.services.language_service import LanguageService
from hearthd.server.services.speech_service import GRANULARITIES, Transcription
from hearthd.server.services.transcripts import TranscriptRequest, begin_transcript
from hearthd.server.speech.language_names import code_of
from hearthd.text.errors import InvalidRequest

Task: TypeAlias = Literal["transcribe", "translate"]
router = surface("OpenAI", ERRORS, FormRoute)


class TranscriptEvent(RootModel[TranscriptDelta | TranscriptDone]):
    """An event of a stream."""


class TranslationForm(ModelFields):
    """A sound file to translate into English."""

    # Fields of a form are texts.
    model_config = ConfigDict(strict=False)

    file: Upload = Field(
        description="Sound as WAV, FLAC, OGG, MP3, AIFF, AU or CAF, of at most four hours, or as "
        "long as a chat model reads; other formats if the server has ffmpeg."
    )
    prompt: Text = Field(
        "",
        description="Text that comes before the sound: names and words as they are to be written.",
    )
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = Field(
        "json", description="Form of the answer. A chat model has json and text only."
    )
    temperature: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Temperature of the first attempt. With Whisper, a window whose text is "
        "improbable, or repeats itself, is sampled again at higher ones.",
    )


class TranscriptionForm(TranslationForm):
    """A sound file to transcribe."""

    language: Text = Field(
        "", description="Code of the language that is spoken, such as en; detected by default."
    )
    timestamp_granularities: list[Literal["segment", "word"]] = Field(
        default_factory=lambda: list[Literal["segment", "word"]](),
        alias="timestamp_granularities[]",
        description="Times in verbose_json: of segments (the default), of words, or of both.",
    )
    stream: bool = Field(
        False,
        description="Send the text as server-sent events, as it is written; with Whisper as soon "
        "as each window of 30 s is done.",
    )


_Responses: TypeAlias = dict[int | str, dict[str, Any]]


def _answers(*forms: _Responses) -> _Responses:
    """The answers of a route in the document: JSON, text, and other `forms`."""
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    for form in forms:
        content |= form[200]["content"]
    return {200: {"model": Transcript | VerboseTranscript, "content": content}}


@router.post(
    "/v1/audio/transcriptions",
    summary="Transcribe a sound file",
    response_model=None,
    responses=_answers(openapi.streams(TranscriptEvent)),
)
async def transcriptions(
    form: Annotated[TranscriptionForm, Form(media_type="multipart/form-data")], request: Request
) -> Response | Transcript | VerboseTranscript:
    """Return the text of speech, in the language that is spoken."""
    if form.stream and form.response_format not in ("json", "text"):
        raise InvalidRequest(
            field="stream", got=True, expected="false with srt, vtt and verbose_json"
        )
    if "word" in form.timestamp_granularities and form.response_format != "verbose_json":
        raise InvalidRequest(
            field=GRANULARITIES, got="word", expected="segment, or response_format verbose_json"
        )
    return await _answer(request, form, "transcribe")


@router.post(
    "/v1/audio/translations",
    summary="Translate a sound file into English",
    response_model=None,
    responses=_answers(),
)
async def translations(
    form: Annotated[TranslationForm, Form(media_type="multipart/form-data")], request: Request
) -> Response | Transcript | VerboseTranscript:
    """Return the text of speech, translated into English."""
    return await _answer(request, form, "translate")


async def _answer(
    request: Request, form: TranslationForm, task: Task
) -> Response | Transcript | VerboseTranscript:
    service = await transcriber(request, form)
    transcribed = form if isinstance(form, TranscriptionForm) else None
    if isinstance(service, LanguageService):
        return await _heard(request, service, form, transcribed)
    times = set(transcribed.timestamp_granularities if transcribed else ()) or {"segment"}
    options = await service.options(
        language=(transcribed.language if transcribed else "") or None,
        translate=task == "translate",
        prompt=form.prompt,
        temperature=form.temperature,
        words="word" in times,
    )
    with contextlib.ExitStack() as opened:
        file = opened.enter_context(form_body.opened(form.file))
        sound = await service.open_sound(file)
        transcription = opened.enter_context(service.transcribe(sound, options))
        writer = TranscriptWriter(task, times=times)
        if transcribed and transcribed.stream:
            return _Stream(_encoded(transcription, writer), opened.pop_all())
        await unless_disconnected(request, _collect(transcription, writer))
        return _form(writer, form.response_format)


async def _heard(
    request: Request,
    service: LanguageService,
    form: TranslationForm,
    transcribed: TranscriptionForm | None,
) -> Response | Transcript:
    """The answer of a language model that reads sound."""
    if form.response_format not in ("json", "text"):
        raise InvalidRequest(
            field="response_format",
            got=form.response_format,
            expected="json or text: only Whisper says when words are spoken",
        )
    asked = TranscriptRequest(
        language=code_of(transcribed.language) if transcribed else "",
        translate=transcribed is None,
        example=form.prompt,
        temperature=form.temperature,
    )
    with form_body.opened(form.file) as file:
        choices, rows = await begin_transcript(service, file, asked)
    writer = HeardTranscriptWriter(choices, rows)
    stream = transcribed is not None and transcribed.stream
    answer = await respond(writer, request, stream=stream)
    if isinstance(answer, Transcript) and form.response_format == "text":
        return PlainTextResponse(f"{answer.text}\n")
    return answer


async def _collect(transcription: Transcription, writer: TranscriptWriter) -> None:
    async for window in transcription.windows():
        writer.add(window)


def _form(writer: TranscriptWriter, form: str) -> Response | Transcript | VerboseTranscript:
    match form:
        case "text":
            return PlainTextResponse(f"{writer.text}\n")
        case "srt":
            return PlainTextResponse(writer.srt(), media_type="application/x-subrip")
        case "vtt":
            return PlainTextResponse(writer.vtt(), media_type="text/vtt")
        case "verbose_json":
            return writer.verbose()
        case _:
            return writer.json()


class _Stream(EventSourceResponse):
    """Sends events; what is `opened` is closed when the response ends."""

    def __init__(self, events: AsyncIterator[dict[str, str]], opened: contextlib.ExitStack) -> None:
        super().__init__(events, sep="\n")
        self._opened = opened

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._opened:
            await super().__call__(scope, receive, send)


async def _events(
    transcription: Transcription, writer: TranscriptWriter
) -> AsyncIterator[TranscriptDelta | TranscriptDone]:
    with transcription:  # its slot is free before its response ends
        async for window in transcription.windows():
            for delta in writer.add(window):
                yield delta
    yield writer.done()


async def _encoded(
    transcription: Transcription, writer: TranscriptWriter
) -> AsyncIterator[dict[str, str]]:
    events = _events(transcription, writer)
    async for event in or_error(events, lambda error: encode(describe(error))):
        if isinstance(event, str):
            yield {"event": "error", "data": event}
        else:
            yield {"event": event.type, "data": event.model_dump_json()}
