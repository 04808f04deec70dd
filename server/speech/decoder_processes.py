"""Processes that decode sound files: libsndfile for MPEG, and ffmpeg.

What they write to their error outputs is not in the server's.
"""

from __future__ import annotations

import ctypes.util
import functools
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np
import soundfile

from hearthd.runtime.media.log_mel import SAMPLE_RATE
from hearthd.server.decoder_process import start_decoder
from hearthd.server.speech import mpeg_process
from hearthd.server.speech.sound import FIELD, MAX_SECONDS
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

_BLOCK_BYTES = 1 << 20
_MESSAGE_BYTES = 1000  # the end of what ffmpeg wrote about a file
_BLOCK_SECONDS = 600.0
# Containers of sound, by the names of ffmpeg's demuxers. A playlist could name other files.
_FFMPEG_FORMATS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,tta,w64,"
    "wav,webm,wv"
)
_FFMPEG_LIMITS = (
    "-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe", "-format_whitelist",
    _FFMPEG_FORMATS,
)  # fmt: skip


class Header(NamedTuple):
    """The shape of a sound: samples of a channel, in all and in a second, and channels."""

    frames: int
    rate: int
    channels: int


def broken(reason: object) -> InvalidRequest:
    """The error for a file that ends with an error."""
    return InvalidRequest(field=FIELD, got=str(reason)[:200], expected="a complete sound file")


def mpeg_blocks(descriptor: int) -> tuple[Header, Iterator[NDArray[np.float32]]] | None:
    """A file of MPEG: its header and samples (n, channels); None if libsndfile cannot read it.

    The header of a file in another format has 0 channels. The iterator raises InvalidRequest for a
    file that is not complete.
    """
    command = (sys.executable, "-I", "-S", mpeg_process.__file__, _libsndfile())
    blocks = _blocks(
        command,
        descriptor,
        subprocess.DEVNULL,
        lambda status: soundfile.LibsndfileError(status).error_string,
    )
    if (first := next(blocks, None)) is None:
        return None
    size = mpeg_process.HEADER.size
    header = Header(*mpeg_process.HEADER.unpack(first[:size]))

    def samples() -> Iterator[NDArray[np.float32]]:
        rest = first[size:]
        for block in blocks:
            yield _samples(rest).reshape(-1, header.channels)
            rest = block
        yield _samples(rest).reshape(-1, header.channels)

    return header, samples()


@functools.cache
def _libsndfile() -> str:
    """The library that soundfile has loaded: its own, or the system's."""
    spec = importlib.util.find_spec("_soundfile_data")
    folders = (spec.submodule_search_locations if spec else None) or ()
    packaged = [path for folder in folders for path in Path(folder).glob("libsndfile*")]
    return str(packaged[0]) if packaged else ctypes.util.find_library("sndfile") or "libsndfile.so"


def ffmpeg_blocks(ffmpeg: str, descriptor: int) -> Iterator[NDArray[np.float32]]:
    """The samples (n,) at SAMPLE_RATE that ffmpeg reads in a file.

    Raises InvalidRequest for a file that is not complete.
    """
    output = ("-vn", "-ac", "1", "-ar", str(SAMPLE_RATE), "-t", str(MAX_SECONDS + 1), "-f", "f32le")
    # Messages go to a file: if nobody reads a pipe, ffmpeg waits when it is full.
    with tempfile.TemporaryFile() as messages:

        def last_line(_: int) -> str:
            messages.seek(max(0, messages.seek(0, os.SEEK_END) - _MESSAGE_BYTES))
            lines = messages.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else "ffmpeg failed"

        command = (ffmpeg, *_FFMPEG_LIMITS, "-i", "file:/dev/fd/0", *output, "pipe:1")
        yield from map(_samples, _blocks(command, descriptor, messages, last_line))


def _samples(data: bytes) -> NDArray[np.float32]:
    return np.frombuffer(data[: len(data) // 4 * 4], "<f4").astype(np.float32)


def _blocks(
    command: Sequence[str],
    descriptor: int,
    messages: int | IO[bytes],
    reason: Callable[[int], str],
) -> Iterator[bytes]:
    """What a process writes about the file that is its input; the process ends with the generator.

    Raises InvalidRequest if it failed after it had written something; `reason` has its status.
    Raises DecoderNotStarted.
    """
    os.lseek(descriptor, 0, os.SEEK_SET)
    count = 0
    process = start_decoder(command, stdin=descriptor, stderr=messages)
    assert process.stdout is not None
    try:
        while data := _block(process, process.stdout):
            count += 1
            yield data
        if (status := process.wait()) and count:
            raise broken(reason(status))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _block(process: subprocess.Popen[bytes], output: IO[bytes]) -> bytes:
    """A block of a process's output, or nothing at its end. It is killed after _BLOCK_SECONDS."""
    clock = threading.Timer(_BLOCK_SECONDS, process.kill)
    clock.daemon = True
    clock.start()
    try:
        return output.read(_BLOCK_BYTES)
    finally:
        clock.cancel()
