"""A model of speech that is served: transcriptions of sound files. It knows no HTTP."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, BinaryIO

from hearthd.bundle import TOKENIZER, SpeechManifest
from hearthd.runtime.speech_model import SpeechRuntime
from hearthd.server.engine.speech_jobs import SpeechJobs
from hearthd.server.metrics import ArraysMetrics
from hearthd.server.services.array_service import FunctionsOptions, open_functions_service
from hearthd.server.services.service import Service
from hearthd.server.speech.language_names import code_of
from hearthd.server.speech.transcription import ENGLISH, SpeechOptions, Transcriber
from hearthd.text.errors import InvalidRequest, NotSupported, RequestError
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from typing import Self

    from hearthd.bundle import ProgramFile
    from hearthd.runtime.checks.self_test import Level, Verdict
    from hearthd.server.engine.speech_jobs import SpeechJob
    from hearthd.server.speech.sound import Sound
    from hearthd.server.speech.transcription import TranscribedWindow


GRANULARITIES = "timestamp_granularities[]"


class SpeechService(Service):
    """The model of speech of one bundle."""

    manifest: SpeechManifest
    metrics: ArraysMetrics

    def __init__(
        self,
        jobs: SpeechJobs,
        self_test: Callable[[], Verdict],
        manifest: SpeechManifest,
        tokenizer: Tokenizer,
        *,
        name: str | None = None,
        level: Level = "quick",
        program: ProgramFile | None = None,
    ) -> None:
        super().__init__(manifest, jobs, self_test, name=name, level=level, program=program)
        self._jobs = jobs
        self._tokenizer = tokenizer
        self._transcriber = Transcriber(manifest, tokenizer.decode)
        self.metrics = ArraysMetrics(
            state=jobs.state, verdict=lambda: self.verdict, info=self.facts
        )

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes of the languages that the model knows."""
        return tuple(self.manifest.tokens.languages) or (ENGLISH,)

    async def options(
        self,
        *,
        language: str | None,
        translate: bool,
        prompt: str,
        temperature: float,
        words: bool = False,
    ) -> SpeechOptions:
        """What a request asks for; raises InvalidRequest."""
        if translate and self.manifest.tokens.translate is None:
            raise InvalidRequest(
                field="model", got=self.name, expected="a model of several languages"
            )
        if words and not self.manifest.alignment_heads:
            raise InvalidRequest(
                field=GRANULARITIES,
                got="word",
                expected="segment: the bundle has no function for times of words; bake it again",
            )
        code = language and code_of(language)
        if code and code not in self.languages:
            raise InvalidRequest(
                field="language",
                got=(language or "")[:80],
                expected=f"one of {', '.join(self.languages)}",
            )
        ids: tuple[int, ...] = ()
        if prompt.strip():
            text = f" {prompt.strip()}"
            ids = await asyncio.to_thread(self._tokenizer.read, text, special=False)
        return SpeechOptions(
            language=code or None,
            translate=translate,
            prompt=ids,
            temperature=temperature,
            words=words,
        )

    async def open_sound(self, file: BinaryIO) -> Sound:
        """The sound of a file; raises InvalidRequest, or NotSupported without the libraries."""
        try:
            from hearthd.server.speech.sound_files import open_sound  # imports soundfile
        except (ModuleNotFoundError, OSError) as error:
            raise NotSupported(
                "file: the server has no library to read sound; install hearthd[speech]"
            ) from error
        return await asyncio.to_thread(open_sound, file)

    def transcribe(self, sound: Sound, options: SpeechOptions) -> Transcription:
        """Accept a transcription; raises QueueFull or Unavailable."""
        if problem := self.unavailable():
            raise problem
        steps = functools.partial(self._transcriber.transcribe, sound, options)
        task = "translate" if options.translate else "transcribe"
        return Transcription(self._jobs.submit(steps), self.metrics, task)


class Transcription:
    """An accepted transcription; the end of its context manager stops it and frees its slot."""

    def __init__(
        self, job: SpeechJob[TranscribedWindow], metrics: ArraysMetrics, task: str
    ) -> None:
        self._job = job
        self._metrics = metrics
        self._task = task

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.close()

    async def windows(self) -> AsyncIterator[TranscribedWindow]:
        """What each window adds; raises what SpeechJob.results raises."""
        outcome = "cancelled"
        try:
            async for window in self._job.results():
                yield window
            outcome = "done"
        except RequestError:
            outcome = "failed"
            raise
        finally:
            self._metrics.ended(self._task, outcome)
        self._metrics.ran(self._task, queued=self._job.queued, seconds=self._job.seconds)


def open_speech_service(bundle: Path, options: FunctionsOptions) -> SpeechService:
    """Open a bundle with a model of speech; raises BundleError."""

    def service(
        jobs: SpeechJobs, self_test: Callable[[], Verdict], manifest: SpeechManifest, **known: Any
    ) -> SpeechService:
        tokenizer = Tokenizer.from_file(bundle / TOKENIZER, bos=None, context=manifest.context)
        return SpeechService(jobs, self_test, manifest, tokenizer, **known)

    return open_functions_service(
        bundle, SpeechManifest, SpeechRuntime, SpeechJobs, service, options
    )
