"""Sound files of requests: libsndfile reads them, or ffmpeg those that it cannot read.

Files are read as they are needed, so a small file with hours of silence takes no memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from typing import IO, TYPE_CHECKING

import numpy as np
import soundfile
import soxr

from hearthd.runtime.log_mel import SAMPLE_RATE
from hearthd.server.speech.sound import FIELD, MAX_SECONDS, Sound, too_long
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "AIFF", "AU", "CAF")
_MIN_RATE, _MAX_RATE, _MAX_CHANNELS = 1000, 768_000, 64
_BLOCK_VALUES = 1 << 18
_LOUDEST = np.float32(2**31)
_MESSAGE_BYTES = 1000  # the end of what ffmpeg wrote about a file
_FFMPEG_SECONDS = 600.0  # for one block
# Containers of sound, by the names of ffmpeg's demuxers. A playlist could name other files.
_FFMPEG_FORMATS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpeg,mpegts,ogg,tta,w64,"
    "wav,webm,wv"
)
_FFMPEG_LIMITS = (
    "-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe", "-format_whitelist",
    _FFMPEG_FORMATS,
)  # fmt: skip


def open_sound(file: IO[bytes]) -> Sound:
    """The sound in a file, whose header has been read; raises InvalidRequest.

    The file stays open until the sound has been read.
    """
    try:
        opened = soundfile.SoundFile(file)
    except (soundfile.LibsndfileError, RuntimeError, ValueError, TypeError) as error:
        if ffmpeg := shutil.which("ffmpeg"):
            return _open_with_ffmpeg(ffmpeg, file)
        raise _not_readable(file) from error
    if opened.format not in _FORMATS:
        raise _not_readable(file)
    rate, channels = opened.samplerate, opened.channels
    if not _MIN_RATE <= rate <= _MAX_RATE or not 1 <= channels <= _MAX_CHANNELS:
        raise InvalidRequest(
            field=FIELD,
            got=f"{rate} Hz and {channels} channels",
            expected=f"{_MIN_RATE} to {_MAX_RATE} Hz and at most {_MAX_CHANNELS} channels",
        )
    if 0 < MAX_SECONDS * rate < opened.frames < np.iinfo(np.int64).max:
        raise too_long(opened.frames / rate)
    return Sound(_resampled(_blocks(opened), rate))


def _not_readable(file: IO[bytes]) -> InvalidRequest:
    file.seek(0, 2)
    return InvalidRequest(
        field=FIELD,
        got=f"{file.tell()} bytes",
        expected="a sound file in the format WAV, FLAC, OGG, MP3, AIFF, AU or CAF; for other "
        "formats, install ffmpeg where the server runs",
    )


def _broken(reason: object) -> InvalidRequest:
    return InvalidRequest(field=FIELD, got=str(reason)[:200], expected="a complete sound file")


def _blocks(file: soundfile.SoundFile) -> Iterator[NDArray[np.float32]]:
    """The means of the channels."""
    frames = _BLOCK_VALUES // file.channels
    while True:
        try:
            block = file.read(frames, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, RuntimeError) as error:
            raise _broken(error) from error
        if not len(block):
            return
        yield _finite(block.mean(axis=1))


def _finite(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The samples; a file of floats may have any, and some that are not numbers.

    The bound is that of integers of 32 bits, which some write as floats: a sum of larger ones
    could be infinite.
    """
    return np.clip(np.nan_to_num(x, nan=0.0, posinf=1.0, neginf=-1.0), -_LOUDEST, _LOUDEST)


def _resampled(blocks: Iterator[NDArray[np.float32]], rate: int) -> Iterator[NDArray[np.float32]]:
    """Blocks at SAMPLE_RATE."""
    if rate == SAMPLE_RATE:
        yield from blocks
        return
    stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def _open_with_ffmpeg(ffmpeg: str, file: IO[bytes]) -> Sound:
    """The sound of a file in any format; raises InvalidRequest if its start cannot be read."""
    descriptor = file.fileno()
    os.lseek(descriptor, 0, os.SEEK_SET)
    blocks = _ffmpeg_blocks(ffmpeg, descriptor)
    first = next(blocks, None)
    if first is None:
        raise _not_readable(file)

    def every_block() -> Iterator[NDArray[np.float32]]:
        yield first
        yield from blocks

    return Sound(every_block())


def _ffmpeg_blocks(ffmpeg: str, descriptor: int) -> Iterator[NDArray[np.float32]]:
    """The samples that ffmpeg reads in a file; it ends with the generator.

    Raises InvalidRequest for a file that is not complete.
    """
    output = ("-vn", "-ac", "1", "-ar", str(SAMPLE_RATE), "-t", str(MAX_SECONDS + 1), "-f", "f32le")
    count = 0
    # Messages go to a file: if nobody reads a pipe, ffmpeg waits when it is full.
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            [ffmpeg, *_FFMPEG_LIMITS, "-i", f"file:/dev/fd/{descriptor}", *output, "pipe:1"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=messages,
            pass_fds=(descriptor,),
        )
        assert process.stdout is not None
        try:
            while data := _ffmpeg_block(process, process.stdout):
                count += 1
                yield _finite(np.frombuffer(data[: len(data) // 4 * 4], "<f4").astype(np.float32))
            if process.wait() and count:
                messages.seek(max(0, messages.seek(0, os.SEEK_END) - _MESSAGE_BYTES))
                lines = messages.read().decode(errors="replace").strip().splitlines()
                raise _broken(lines[-1] if lines else "ffmpeg failed")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _ffmpeg_block(process: subprocess.Popen[bytes], output: IO[bytes]) -> bytes:
    """A block of ffmpeg's output, which is killed after _FFMPEG_SECONDS; empty at the end."""
    clock = threading.Timer(_FFMPEG_SECONDS, process.kill)
    clock.daemon = True
    clock.start()
    try:
        return output.read(4 * _BLOCK_VALUES)
    finally:
        clock.cancel()
