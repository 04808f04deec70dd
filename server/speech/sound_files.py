"""Sound files of requests: libsndfile reads them, or ffmpeg those that it cannot read.

Files are read as they are needed, so a small file with hours of silence takes no memory.
"""

from __future__ import annotations

import itertools
import os
import shutil
from typing import IO, TYPE_CHECKING

import numpy as np
import soundfile
import soxr

from hearthd.runtime.media.log_mel import SAMPLE_RATE
from hearthd.server.speech.decoder_processes import Header, broken, ffmpeg_blocks, mpeg_blocks
from hearthd.server.speech.sound import FIELD, MAX_SECONDS, Sound, too_long
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "AIFF", "AU", "CAF")
_MIN_RATE, _MAX_RATE, _MAX_CHANNELS = 1000, 768_000, 64
_BLOCK_VALUES = 1 << 18
_LOUDEST = np.float32(2**31)
# How files of formats begin that libsndfile reads without libmpg123, and the formats of WAV that it
# reads with it.
_PLAIN = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"FORM", b".snd", b"caff")
_START_BYTES, _TAG, _MPEG_TAGS = 4096, 8, (b"\x50\0", b"\x55\0", b"\0\x50", b"\0\x55")


def open_sound(file: IO[bytes]) -> Sound:
    """The sound in a file, whose header has been read; raises InvalidRequest.

    The file stays open until the sound has been read.
    """
    if _may_be_mpeg(file):
        if (mpeg := mpeg_blocks(file.fileno())) is None:
            return _open_with_ffmpeg(file)
        if mpeg[0].channels:
            return _sound(*mpeg)
    # Its own descriptor: errors of a Python file would be tracebacks in the server's error output.
    descriptor = os.dup(file.fileno())
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        opened = soundfile.SoundFile(descriptor)
    except (soundfile.LibsndfileError, RuntimeError, ValueError, TypeError):
        return _open_with_ffmpeg(file)
    if opened.format not in _FORMATS:
        raise _not_readable(file)
    return _sound(Header(opened.frames, opened.samplerate, opened.channels), _blocks(opened))


def _may_be_mpeg(file: IO[bytes]) -> bool:
    """Whether libsndfile may read a file with libmpg123, by its start."""
    start = file.read(_START_BYTES)
    if not start.startswith(_PLAIN):
        return True
    chunk = start.find(b"fmt ")
    return start[:2] == b"RI" and start[chunk + _TAG : chunk + _TAG + 2] in _MPEG_TAGS


def _sound(header: Header, blocks: Iterator[NDArray[np.float32]]) -> Sound:
    frames, rate, channels = header
    if not _MIN_RATE <= rate <= _MAX_RATE or not 1 <= channels <= _MAX_CHANNELS:
        raise InvalidRequest(
            field=FIELD,
            got=f"{rate} Hz and {channels} channels",
            expected=f"{_MIN_RATE} to {_MAX_RATE} Hz and at most {_MAX_CHANNELS} channels",
        )
    if 0 < MAX_SECONDS * rate < frames < np.iinfo(np.int64).max:
        raise too_long(frames / rate)
    return Sound(_resampled(map(_mixed, blocks), rate))


def _not_readable(file: IO[bytes]) -> InvalidRequest:
    file.seek(0, 2)
    return InvalidRequest(
        field=FIELD,
        got=f"{file.tell()} bytes",
        expected="a sound file in the format WAV, FLAC, OGG, MP3, AIFF, AU or CAF; for other "
        "formats, install ffmpeg where the server runs",
    )


def _blocks(file: soundfile.SoundFile) -> Iterator[NDArray[np.float32]]:
    """The samples (n, channels)."""
    frames = _BLOCK_VALUES // file.channels
    while True:
        try:
            block = file.read(frames, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, RuntimeError) as error:
            raise broken(error) from error
        if not len(block):
            return
        yield block


def _mixed(block: NDArray[np.float32]) -> NDArray[np.float32]:
    """The means of the channels."""
    return np.asarray(_finite(block).mean(axis=1))


def _finite(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The samples; a file of floats may have any, and some that are not numbers.

    The bound is the bound of integers of 32 bits, which some write as floats: a sum of larger ones
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


def _open_with_ffmpeg(file: IO[bytes]) -> Sound:
    """The sound of a file in any format; raises InvalidRequest if its start cannot be read."""
    ffmpeg = shutil.which("ffmpeg")
    blocks = ffmpeg_blocks(ffmpeg, file.fileno()) if ffmpeg else iter(())
    first = next(blocks, None)
    if first is None:
        raise _not_readable(file)
    return Sound(map(_finite, itertools.chain([first], blocks)))
