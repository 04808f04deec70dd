"""Transcripts by language models that read sound, which a conversation asks for the words."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from hearthd.server.speech.language_names import LANGUAGES
from hearthd.text.conversation import Conversation, Media, Message
from hearthd.text.errors import InvalidRequest
from hearthd.text.text_request import SamplingParameters, TextRequest

if TYPE_CHECKING:
    from hearthd.bundle import TranscriptPrompts
    from hearthd.server.completions.choices import Choices
    from hearthd.server.images.read_media import ReadMedia
    from hearthd.server.services.language_service import LanguageService
    from hearthd.text.conversation import Part
    from hearthd.text.templates.prompt import Prompt

FIELD = "file"  # of a request, for errors
_SOUND = Media(kind="audio", field=FIELD)


@dataclass(frozen=True, kw_only=True)
class TranscriptRequest:
    """What a request asks for.

    language     code of the language that is spoken; "" for any
    translate    into English
    example      text whose names and words are written as the transcript is to write them
    temperature  as in SamplingParameters
    """

    language: str
    translate: bool
    example: str
    temperature: float

    def __post_init__(self) -> None:
        """Raises InvalidRequest."""
        if self.language and self.language not in LANGUAGES:
            raise InvalidRequest(
                field="language",
                got=self.language[:80],
                expected="a code of ISO 639 that Whisper knows, such as en",
            )

    @property
    def needs_instruction(self) -> bool:
        """Whether it asks for more than the words, in a language."""
        return self.translate or bool(self.example.strip())

    def instruction(self, prompts: TranscriptPrompts) -> str:
        """What the user writes, with the sound at {sound}."""
        form = prompts.any_language
        if self.translate:
            form = prompts.english
        elif self.language:
            form = prompts.one_language.replace("{language}", LANGUAGES[self.language])
            form = form.replace("{code}", self.language)
        if example := self.example.strip():
            form += f"\nWrite names and words as in this text: {example}"
        return form


def _conversation(text: str) -> Conversation:
    """A user's message with the sound at {sound}."""
    before, _, after = text.partition("{sound}")
    parts: list[Part] = [before, _SOUND, after]
    message = Message(role="user", parts=[part for part in parts if part])
    return Conversation(messages=[message], field=FIELD)


async def _prompt(
    service: LanguageService,
    request: TranscriptRequest,
    prompts: TranscriptPrompts,
    sound: ReadMedia,
) -> Prompt:
    """The prompt: an instruction, or the sound alone and the token that asks for its words."""
    tokenizer = service.tokenizer
    render = functools.partial(service.renderer.render_alone, service.template)
    token = tokenizer.special_id(prompts.token) if prompts.token else None
    if token is None or request.needs_instruction:
        text = request.instruction(prompts)
        return await render(_conversation(text), {_SOUND: sound})
    prompt = await render(_conversation("{sound}"), {_SOUND: sound})
    language = f"lang:{request.language}" if request.language else ""
    ids = (*prompt.ids, *tokenizer.read(language, special=False), token)
    return dataclasses.replace(prompt, ids=ids)


async def begin_transcript(
    service: LanguageService, file: IO[bytes], request: TranscriptRequest
) -> tuple[Choices, int]:
    """Accept the transcript of a sound file; also returns the positions that the sound takes.

    Raises InvalidRequest, NotSupported, ImagesFull, StorageFull, QueueFull or Unavailable.
    """
    settings = service.manifest.sound
    assert settings is not None, "the model reads sound"
    if not service.has_template:
        raise InvalidRequest(
            field="model", got=service.name, expected="a model with a chat template"
        )
    read = await service.renderer.read_sound(file, FIELD)
    prompt = await _prompt(service, request, settings.transcripts, read)
    choices = await service.complete_all(
        [
            TextRequest(
                prompt=prompt.ids,
                images=prompt.images,
                max_tokens=None,
                stop=(),
                sampling=SamplingParameters(temperature=request.temperature),
                seed=None,
                reasoning=prompt.reasoning,
                field=FIELD,
            )
        ]
    )
    return choices, sum(square.rows for square in read.squares)
