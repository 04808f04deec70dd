"""Listeners without a compiler: a small Whisper in NumPy, and one that says what a script says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.pipeline.kinds.bake_speech import alignment_heads, special_tokens
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.safetensors import SafetensorsSource
from hearthd.bundle import ALIGN, DECODE, ENCODE, PREFILL, SpeechTokens
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.catalog import SPEECH
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.speech.speech_entry_points import SpeechOptions
from hearthd.runtime.speech_model import Listener
from tests.baker.small_whisper import (
    CONTEXT,
    IDS,
    STATES,
    VOCABULARY,
    generation,
    small_whisper,
    tokenizer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


FIRST_TIME = IDS["<|notimestamps|>"] + 1
END = IDS["<|endoftext|>"]


def tokens() -> SpeechTokens:
    """The special tokens of the small Whisper."""
    return special_tokens(tokenizer().to_str(), generation(), VOCABULARY, STATES)


class NumpyListener(Listener):
    """The small Whisper in a folder; a prefill reads `prefill` tokens, a decode the last one."""

    def __init__(self, folder: Path, *, prefill: int = 4) -> None:
        source = SafetensorsSource(small_whisper(folder / "weights"))
        architecture = SPEECH["whisper"]
        config = architecture.from_hugging_face(source.metadata())
        heads = alignment_heads(generation(), config.layers, config.heads)
        options = SpeechOptions(precision="f32", prefill=prefill, alignment_heads=heads)
        program = architecture.program(config, options)
        located = locate(source, architecture, config, program)
        write_parameters(source, located, folder / "weights.irpa", lambda _: None)
        self._parameters = stored_parameters(program.parameters, folder / "weights.irpa")
        self._graphs = {graph.name: graph for graph in program.graphs}
        self._prefill = prefill
        self._heard, self._caches = empty_caches(program.heard), empty_caches(program.caches)

    @override
    def hear(self, spectrogram: NDArray[np.float32]) -> None:
        graph = self._graphs[ENCODE]
        self._heard = list(evaluate(graph, [spectrogram, *self._heard], self._parameters))

    @override
    def read(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        ids, size = list(tokens[:-1]), self._prefill
        for first in range(0, len(ids), size):
            part = ids[first : first + size]
            self._caches = self._call(PREFILL, part + [0] * (size - len(part)), start + first)
        logits, *self._caches = self._call(DECODE, tokens[-1:], start + len(ids))
        return np.array(logits[0])

    @override
    def align(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        chunks, size = [], self._prefill
        for first in range(0, len(tokens), size):
            part = list(tokens[first : first + size])
            scores, *self._caches = self._call(ALIGN, part + [0] * (size - len(part)), first)
            chunks.append(scores)
        return np.concatenate(chunks, axis=1)[:, : len(tokens)]

    def _call(self, name: str, tokens: Sequence[int], start: int) -> list[Any]:
        numbers = (np.array(tokens, np.int32), np.array([start], np.int32))
        inputs = [*numbers, *self._caches, *self._heard]
        return list(evaluate(self._graphs[name], inputs, self._parameters))


@dataclass
class ScriptedListener(Listener):
    """It says the tokens of a script in each window, the last one again in further windows.

    windows   the tokens of each
    doubt     spreads the probability over as many other tokens as it is larger than 0
    heard     the spectrograms, and read: the tokens of each call
    language  the code of the most probable language
    """

    windows: Sequence[Sequence[int]]
    doubt: float = 0.0
    no_speech: float = 0.0
    language: str = "de"
    heard: list[NDArray[np.float32]] = field(default_factory=list)
    read_tokens: list[list[int]] = field(default_factory=list)
    _begin: int = 0

    @override
    def hear(self, spectrogram: NDArray[np.float32]) -> None:
        self.heard.append(spectrogram)

    @override
    def read(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        assert 0 < len(tokens) <= CONTEXT - start
        self.read_tokens.append(list(tokens))
        if END < tokens[-1] < FIRST_TIME:
            self._begin = start + len(tokens)
        written = start + len(tokens) - self._begin
        script = self.windows[min(len(self.heard), len(self.windows)) - 1]
        said = script[written] if written < len(script) else END
        logits = np.zeros(VOCABULARY, np.float32)
        logits[said] = 20.0 * (1 - self.doubt)
        logits[IDS[f"<|{self.language}|>"]] = 10.0
        if tokens[-1] == IDS["<|startoftranscript|>"]:
            logits[IDS["<|nospeech|>"]] = 30.0 * self.no_speech
        return logits

    @override
    def align(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Each token is spoken in the two states after the states of the token before."""
        self.read_tokens.append(list(tokens))
        token, state = np.ogrid[: len(tokens), :STATES]
        return np.where(state // 2 == token, 9.0, 0.0).astype(np.float32)[np.newaxis]


def time(seconds: float) -> int:
    """The token of a time."""
    return FIRST_TIME + round(seconds * 50)


def script(*segments: tuple[float, str, float]) -> tuple[int, ...]:
    """The tokens of segments: begin, text and end."""
    encode = tokenizer().encode
    said: list[int] = []
    for begin, text, end in segments:
        said += [time(begin), *encode(text).ids, time(end)]
    return tuple(said)
