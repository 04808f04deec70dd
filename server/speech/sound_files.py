"""Sound files of requests: libsndfile reads them, or ffmpeg those that it cannot read.

Files are read as they are needed, so a small file with hours of silence takes no memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, BinaryIO

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
_FFMPEG_SECONDS = 600.0
# Formats whose samples are in the file itself: playlists (DASH, HLS, concat) name other files.
_FFMPEG_FORMATS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,dsf,dts,eac3,flac,flv,loas,matroska,mov,mp3,mpc,mpc8,mpeg,"
    "mpegts,ogg,rm,tak,tta,wav,wv"
)
_FFMPEG_LIMITS = (
    "-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe",
    "-format_whitelist", _FFMPEG_FORMATS,
)  # fmt: skip


def open_sound(file: BinaryIO) -> Sound:
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


def _not_readable(file: BinaryIO) -> InvalidRequest:
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
    """The samples; a file of floats may have infinite ones, or some that are not numbers."""
    return np.nan_to_num(x, copy=False, nan=0.0, posinf=1.0, neginf=-1.0)


def _resampled(blocks: Iterator[NDArray[np.float32]], rate: int) -> Iterator[NDArray[np.float32]]:
    """Blocks at SAMPLE_RATE."""
    if rate == SAMPLE_RATE:
        yield from blocks
        return
    stream = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def _open_with_ffmpeg(ffmpeg: str, file: BinaryIO) -> Sound:
    """The sound of a file in any format; raises InvalidRequest if its begin cannot be read."""
    descriptor = file.fileno()
    os.lseek(descriptor, 0, os.SEEK_SET)
    output = ("-vn", "-ac", "1", "-ar", str(SAMPLE_RATE), "-t", str(MAX_SECONDS + 1), "-f", "f32le")
    process = subprocess.Popen(
        [ffmpeg, *_FFMPEG_LIMITS, "-i", f"file:/dev/fd/{descriptor}", *output, "pipe:1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(descriptor,),
    )
    blocks = _ffmpeg_blocks(process)
    first = next(blocks, None)
    if first is None:
        raise _not_readable(file)

    def every_block() -> Iterator[NDArray[np.float32]]:
        yield first
        yield from blocks

    return Sound(every_block())


def _ffmpeg_blocks(process: subprocess.Popen[bytes]) -> Iterator[NDArray[np.float32]]:
    """The samples that ffmpeg writes; it ends with the generator, and after _FFMPEG_SECONDS."""
    assert process.stdout is not None
    assert process.stderr is not None
    clock = threading.Timer(_FFMPEG_SECONDS, process.kill)
    clock.daemon = True
    clock.start()
    count = 0
    try:
        while data := process.stdout.read(4 * _BLOCK_VALUES):
            count += 1
            yield _finite(np.frombuffer(data[: len(data) // 4 * 4], "<f4").astype(np.float32))
        message = process.stderr.read().decode(errors="replace").strip().splitlines()
        if process.wait() and count:
            raise _broken(message[-1] if message else "ffmpeg failed")
    finally:
        clock.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
