"""The runtime of a model of speech: it encodes a window of sound, and decodes its text.

It knows the ABI of bundle/manifests/speech_manifest.py. The buffers of a window stay on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from typing_extensions import override

from hearthd.bundle import ALIGN, DECODE, ENCODE, LISTEN, PREFILL
from hearthd.runtime.array_functions import Functions
from hearthd.runtime.iree.device import Device, result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import ProgramFile, SpeechManifest
    from hearthd.runtime.array_bytes import Arrays


class Listener(Protocol):
    """A loaded model of speech, which has heard one window at a time."""

    def hear(self, spectrogram: NDArray[np.float32]) -> None:
        """Hear a window, f32 (mels, 2 S): the tokens that are read from now on belong to it."""

    def read(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        """Read tokens at positions start, start + 1, ... of the window's text.

        Returns the logits after the last one, f32 (V,), owned by the caller.
        """

    def align(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Read a complete text again, from position 0, on a model with alignment heads.

        Returns the scores of these heads for each token and state, f32 (A, N, S).
        """


class SpeechRuntime(Functions, Listener):
    """A bundle of a model of speech, loaded on this machine's CPU."""

    def __init__(
        self,
        bundle: Path,
        manifest: SpeechManifest,
        *,
        threads: int | None,
        program: ProgramFile | None = None,
    ) -> None:
        """Load a program of a bundle, None for model.vmfb. Raises CannotLoad.

        `threads` as in start_threads.
        """
        self.program = program or manifest.programs[0]
        self._manifest = manifest
        self._device = Device(bundle, threads=threads, program=self.program.file)
        self._encode, self._prefill, self._decode = (
            self._device.function(name) for name in (ENCODE, PREFILL, DECODE)
        )
        self._align = self._device.function(ALIGN) if manifest.alignment_heads else None
        self._heard, self._caches = (
            [self._device.reserve((spec.rows, spec.width), spec.dtype) for spec in buffers]
            for buffers in (manifest.heard, manifest.caches)
        )

    @override
    def hear(self, spectrogram: NDArray[np.float32]) -> None:
        shape = (self._manifest.mels, 2 * self._manifest.states)
        assert spectrogram.shape == shape, f"a spectrogram {spectrogram.shape}, not {shape}"
        arguments = [self._device.upload(np.ascontiguousarray(spectrogram), "f32"), *self._heard]
        self._device.call(self._encode, arguments, results=len(self._heard))

    @override
    def read(self, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        assert 0 < len(tokens) <= self._manifest.context - start, f"{len(tokens)} tokens"
        before = tokens[:-1]
        for arguments in self._chunks(before, start):
            self._device.call(self._prefill, arguments, results=len(self._caches))
        arguments = self._arguments(tokens[-1:], start + len(before))
        results = self._device.call(self._decode, arguments, results=1 + len(self._caches))
        logits: NDArray[np.float32] = result(results, 0, (1, self._manifest.vocab_size))[0]
        return logits

    @override
    def align(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        assert self._align is not None, "the bundle has no alignment heads"
        assert 0 < len(tokens) <= self._manifest.context, f"{len(tokens)} tokens"
        manifest = self._manifest
        shape = (len(manifest.alignment_heads), manifest.prefill, manifest.states)
        chunks = []
        for arguments in self._chunks(tokens, 0):
            results = self._device.call(self._align, arguments, results=1 + len(self._caches))
            chunks.append(result(results, 0, shape))
        return np.concatenate(chunks, axis=1)[:, : len(tokens)]

    def _chunks(self, tokens: Sequence[int], start: int) -> Iterator[list[object]]:
        """The arguments of calls that read tokens, the last ones padded."""
        size = self._manifest.prefill
        for first in range(0, len(tokens), size):
            part = tokens[first : first + size]
            yield self._arguments([*part, *[0] * (size - len(part))], start + first)

    def _arguments(self, tokens: Sequence[int], start: int) -> list[object]:
        numbers = (np.array(tokens, np.int32), np.array([start], np.int32))
        uploaded = [self._device.upload(each, "i32") for each in numbers]
        return [*uploaded, *self._caches, *self._heard]

    @override
    def run(self, function: str, inputs: Arrays) -> Arrays:
        """The golden function: the logits after each token; a prefill reads some of them."""
        assert function == LISTEN, function
        self.hear(inputs["spectrogram"])
        tokens = inputs["tokens"].tolist()
        rows = [self.read(tokens[position:][:1], position) for position in range(len(tokens))]
        # Again, as a prefill reads them.
        rows[-1] = self.read(tokens, 0)
        outputs = {"logits": np.stack(rows)}
        return outputs | ({"scores": self.align(tokens)} if self._align else {})
