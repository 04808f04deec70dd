"""A service on a listener without a compiler, and sound files for it."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
from typing_extensions import override

from hearthd.bundle import CacheSpec, Footprint, SpeechManifest, listen_function
from hearthd.runtime.array_functions import Functions
from hearthd.runtime.checks.golden_arrays import GoldenExample
from hearthd.runtime.checks.self_test import self_test_arrays
from hearthd.server.engine.speech_jobs import SpeechJobs
from hearthd.server.services.speech_service import SpeechService
from hearthd.text.tokenizer import Tokenizer
from tests.baker.small_whisper import CONTEXT, HIDDEN, MELS, RATE, STATES, VOCABULARY, noise
from tests.baker.small_whisper import tokenizer as library
from tests.server.fakes import MANIFEST_FIELDS
from tests.server.speech.listeners import tokens

if TYPE_CHECKING:
    from hearthd.bundle import SpeechTokens
    from hearthd.runtime.array_bytes import Arrays
    from hearthd.runtime.speech_model import Listener

FUNCTION = listen_function(MELS, STATES, 1, VOCABULARY)


class _Right(Functions):
    @override
    def run(self, function: str, inputs: Arrays) -> Arrays:
        return {"logits": np.zeros((1, VOCABULARY), np.float32)}


def manifest(
    special: SpeechTokens, alignment_heads: tuple[tuple[int, int], ...] = ((1, 0),)
) -> SpeechManifest:
    cache = (CacheSpec(name="cache", rows=CONTEXT, width=HIDDEN, dtype="f32"),)
    return SpeechManifest(
        **MANIFEST_FIELDS,
        tolerance=1e-4,
        functions=(FUNCTION,),
        vocab_size=VOCABULARY,
        mels=MELS,
        states=STATES,
        context=CONTEXT,
        prefill=4,
        heard=cache,
        caches=cache,
        tokens=special,
        footprint=Footprint(laid_out=0, read=0, looked_up=0, calls={}),
        alignment_heads=alignment_heads,
    )


def service(
    listener: Listener,
    *,
    queue_limit: int = 8,
    special: SpeechTokens | None = None,
    alignment_heads: tuple[tuple[int, int], ...] = ((1, 0),),
) -> SpeechService:
    """A service that is called `ears`."""
    inputs: Arrays = {
        "spectrogram": np.zeros((MELS, 2 * STATES), np.float32),
        "tokens": np.zeros(1, np.int32),
    }
    right = _Right()
    outputs = right.run(FUNCTION.name, inputs)
    example = GoldenExample(function=FUNCTION.name, inputs=inputs, outputs=outputs)
    return SpeechService(
        SpeechJobs(listener, queue_limit=queue_limit),
        functools.partial(self_test_arrays, right, [example], 1e-4, level="quick"),
        manifest(special or tokens(), alignment_heads),
        Tokenizer(library(), bos=None, context=CONTEXT),
        name="ears",
    )


def wav(seconds: float, samples: Any = None) -> bytes:
    """A WAV file of noise."""
    file = io.BytesIO()
    soundfile.write(file, noise(seconds) if samples is None else samples, RATE, format="WAV")
    return file.getvalue()
