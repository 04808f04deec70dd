"""Sound files: formats, rates, channels, and files that are broken, too long or none."""

from __future__ import annotations

import contextlib
import itertools
import struct
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from hearthd.server.speech import sound
from hearthd.server.speech.sound import Sound
from hearthd.server.speech.sound_files import open_sound
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RATE = 16_000


def tone(rate: int, seconds: float = 1.0) -> Any:
    """440 Hz, which every format and rate keeps."""
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)


def file_of(path: Path, samples: Any, rate: int, **options: Any) -> bytes:
    soundfile.write(path, samples, rate, **options)
    return path.read_bytes()


def read(data: bytes, tmp_path: Path) -> Any:
    (tmp_path / "upload").write_bytes(data)
    with (tmp_path / "upload").open("rb") as file:
        return open_sound(file).read(0, 100 * RATE)


FORMATS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("wav", 16_000, {}),
    ("wav", 8000, {"subtype": "ULAW"}),
    ("wav", 44_100, {"subtype": "PCM_24"}),
    ("wav", 96_000, {"subtype": "FLOAT"}),
    ("flac", 48_000, {}),
    ("ogg", 48_000, {"subtype": "OPUS"}),
    ("ogg", 22_050, {"subtype": "VORBIS"}),
    ("mp3", 44_100, {}),
    ("aiff", 32_000, {}),
)


@pytest.mark.parametrize(("suffix", "rate", "options"), FORMATS)
def test_a_tone_is_the_same_in_every_format(
    suffix: str, rate: int, options: dict[str, Any], tmp_path: Path
) -> None:
    """By its spectrum; resampling and codecs may move it by some milliseconds."""
    samples = read(file_of(tmp_path / f"tone.{suffix}", tone(rate), rate, **options), tmp_path)
    assert samples.dtype == np.float32
    assert abs(len(samples) - RATE) < RATE // 10
    middle = samples[2000:14_000]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle))))
    assert spectrum.argmax() * RATE / len(middle) == pytest.approx(440, abs=2)
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.5 / np.sqrt(2), rel=0.05)


def test_resampling_keeps_every_sample_in_its_time(tmp_path: Path) -> None:
    samples = read(file_of(tmp_path / "a.wav", tone(48_000, 3.0), 48_000), tmp_path)
    assert len(samples) == 3 * RATE
    assert np.abs(samples - tone(RATE, 3.0))[100:-100].max() < 1e-3


def test_channels_are_mixed(tmp_path: Path) -> None:
    channels = np.stack([tone(RATE), np.zeros(RATE)], axis=1)
    samples = read(file_of(tmp_path / "a.wav", channels, RATE), tmp_path)
    assert np.abs(samples - tone(RATE) / 2).max() < 1e-3


def test_samples_that_are_no_numbers_are_silent(tmp_path: Path) -> None:
    values = np.array([0.5, np.nan, np.inf, -np.inf], np.float32)
    samples = read(file_of(tmp_path / "a.wav", values, RATE, subtype="FLOAT"), tmp_path)
    assert samples.tolist() == [0.5, 0.0, 1.0, -1.0]


@pytest.mark.filterwarnings("error")
def test_channels_that_are_no_numbers_are_silent(tmp_path: Path) -> None:
    values = np.array([[0.5, np.nan], [np.inf, -np.inf], [0.5, 0.25]], np.float32)
    samples = read(file_of(tmp_path / "a.wav", values, RATE, subtype="FLOAT"), tmp_path)
    assert samples.tolist() == [0.25, 0.0, 0.375]


def test_the_loudest_floats_stay_numbers_at_another_rate(tmp_path: Path) -> None:
    """Resampling adds them."""
    values = np.tile(np.array([3e38, -3e38, 3e38], np.float32), 500)
    samples = read(file_of(tmp_path / "a.wav", values, RATE // 2, subtype="FLOAT"), tmp_path)
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() < 2**33


@pytest.fixture
def no_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("no_ffmpeg")
@pytest.mark.parametrize("data", [b"", b"no sound", b"RIFF\xff\xff\xff\xffWAVE", bytes(1000)])
def test_other_files_are_refused_in_one_sentence(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"^file: got .* expected a sound file"):
        read(data, tmp_path)


@pytest.mark.usefixtures("no_ffmpeg")
def test_a_truncated_file_has_the_sound_before_its_end_or_is_refused(tmp_path: Path) -> None:
    """A WAV ends where it ends, as players have it; the others may be errors."""
    for suffix in ("wav", "flac", "ogg", "mp3"):
        data = file_of(tmp_path / f"tone.{suffix}", tone(RATE, 2.0), RATE)
        for length in range(0, len(data), len(data) // 10):
            with contextlib.suppress(InvalidRequest):
                samples = read(data[:length], tmp_path)
                assert np.isfinite(samples).all()
                assert len(samples) < 2.2 * RATE


@pytest.mark.usefixtures("no_ffmpeg")
def test_sizes_that_are_wrong_write_nothing_to_the_error_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Libsndfile seeks where they say."""
    for suffix in ("aiff", "rf64", "caf"):
        data = file_of(tmp_path / "a", tone(RATE, 0.1), RATE, format=suffix.upper())
        for position in range(0, 200, 2):
            damaged = data[:position] + b"\xff\xff\xff\xff" + data[position + 4 :]
            with contextlib.suppress(InvalidRequest):
                read(damaged, tmp_path)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("no_ffmpeg")
def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for suffix in ("wav", "flac", "ogg", "mp3"):
        data = file_of(tmp_path / f"tone.{suffix}", tone(RATE, 0.3), RATE)
        for _ in range(30):
            damaged = bytearray(data)
            for position in rng.integers(0, min(len(data), 200), 4):
                damaged[position] = rng.integers(256)
            with contextlib.suppress(InvalidRequest):
                assert np.isfinite(read(bytes(damaged), tmp_path)).all()


def mpeg_in_wav(mpeg: bytes) -> bytes:
    """A WAV file whose samples are encoded as MP3."""
    tagged = struct.pack("<HHIIHHHHIHHH", 0x55, 1, RATE, 4000, 1, 0, 12, 1, 2, 144, 1, 0)
    chunks = ((b"fmt ", tagged), (b"fact", struct.pack("<I", RATE)), (b"data", mpeg))
    body = b"".join(name + struct.pack("<I", len(data)) + data for name, data in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


@pytest.mark.usefixtures("no_ffmpeg")
@pytest.mark.parametrize("wrapped", [bytes, mpeg_in_wav])
def test_a_damaged_file_of_mpeg_writes_nothing_to_the_error_output(
    wrapped: Callable[[bytes], bytes], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What this process writes itself is there."""
    data = bytearray(file_of(tmp_path / "a.mp3", tone(RATE), RATE))
    rng = np.random.default_rng(1)
    for position in rng.integers(len(data) // 4, len(data), len(data) // 50):
        data[position] = rng.integers(256)
    with contextlib.suppress(InvalidRequest):
        assert len(read(wrapped(bytes(data)), tmp_path)) > RATE // 4
    sys.stderr.write("ours")
    assert capfd.readouterr().err == "ours"


def test_a_long_file_is_refused_by_its_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file_of(tmp_path / "a.wav", np.zeros(2 * RATE), RATE)
    monkeypatch.setattr("hearthd.server.speech.sound_files.MAX_SECONDS", 1)
    with pytest.raises(InvalidRequest, match=r"got \"2 s\", expected a sound of at most"):
        read(data, tmp_path)


def test_a_sound_keeps_only_the_samples_that_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours of silence are a small file, and take the memory of a window."""
    blocks = (np.full(RATE, second, np.float32) for second in itertools.count())
    endless = Sound(blocks)
    for second in range(50):
        samples = endless.read(second * RATE - (200 if second else 0), RATE)
        assert samples[-201] == second if second else samples[0] == 0
        assert len(endless._kept) <= 3 * RATE
    monkeypatch.setattr(sound, "MAX_SECONDS", 60)
    with pytest.raises(InvalidRequest, match="split it"):
        endless.read(61 * RATE, RATE)


def test_a_sound_ends() -> None:
    def blocks() -> Iterator[Any]:
        yield np.arange(5, dtype=np.float32)
        yield np.arange(5, 8, dtype=np.float32)

    short = Sound(blocks())
    assert short.read(2, 4).tolist() == [2, 3, 4, 5]
    assert short.read(6, 4).tolist() == [6, 7]
    assert short.read(9, 4).tolist() == []
    assert short.read(100, 4).tolist() == []


# A playlist of DASH names another file, which ffmpeg reads with the protocol `file`.
FFMPEG = """#!/bin/sh
before=
for argument; do
  case "$argument" in file:*) path="${argument#file:}";; esac
  case "$before" in -format_whitelist) formats="$argument";; esac
  before="$argument"
done
case ",$formats," in
  ,,|*,dash,*|*,hls,*|*,concat,*|*,imf,*) printf 'secrets!'; exit 0;;
esac
exec 3< "$path"; read -r word <&3
case "$word" in
  strange) exec %(python)s -c "import sys, numpy; \
sys.stdout.buffer.write(numpy.arange(8000, dtype='<f4').tobytes() + b'x')";;
  broken) printf 'aaaabbbb'; echo "broken: it ends" >&2; exit 1;;
  noisy) exec %(python)s -c "import sys; \
sys.stderr.write('error ' * 100_000); sys.stderr.flush(); sys.stdout.buffer.write(bytes(16))";;
  slow) printf 'aaaa'; exec sleep 60;;
  *) echo "unknown" >&2; exit 1;;
esac
"""


@pytest.fixture
def ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of this name that knows a strange format."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "ffmpeg"
    program.write_text(FFMPEG % {"python": sys.executable})
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.usefixtures("ffmpeg")
def test_ffmpeg_reads_what_libsndfile_cannot(tmp_path: Path) -> None:
    assert read(b"strange\n", tmp_path).tolist() == list(range(8000))
    with pytest.raises(
        InvalidRequest, match=r"file: got .*broken: it ends.* a complete sound file"
    ):
        read(b"broken\n", tmp_path)
    with pytest.raises(InvalidRequest, match="expected a sound file in the format"):
        read(b"other\n", tmp_path)


@pytest.mark.usefixtures("ffmpeg")
def test_many_messages_of_ffmpeg_do_not_stop_it(tmp_path: Path) -> None:
    """A pipe that nobody reads holds 64 KiB."""
    assert read(b"noisy\n", tmp_path).tolist() == [0, 0, 0, 0]


@pytest.mark.usefixtures("ffmpeg")
def test_the_time_limit_of_ffmpeg_is_for_one_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transcription that takes longer than the limit does not end ffmpeg."""
    monkeypatch.setattr("hearthd.server.speech.decoder_processes._BLOCK_BYTES", 4)
    path = tmp_path / "slow"
    path.write_bytes(b"slow\n")
    with path.open("rb") as file:
        slow = open_sound(file)
        timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
        assert all(timer.finished.is_set() for timer in timers)
        monkeypatch.setattr("hearthd.server.speech.decoder_processes._BLOCK_SECONDS", 0.1)
        with pytest.raises(InvalidRequest, match="ffmpeg failed"):
            slow.read(0, 2)
