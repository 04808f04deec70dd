"""A process that decodes a sound file of MPEG: `python -I -S mpeg_process.py LIBRARY <FILE`.

libmpg123, which libsndfile uses, writes about every damaged frame to the error output of its
process, and libsndfile has no setting for it. So the process is not the server's. It imports
little, to start quickly.

Written to the output: HEADER, and if the file is one of MPEG, samples f32 of all channels in turn.
The exit status is the error of libsndfile, or 0.
"""

from __future__ import annotations

import ctypes
import struct
import sys

HEADER = struct.Struct("<qqq")  # frames, samples of a channel in a second, channels; 0 if not MPEG
_READ, _TYPE, _MPEG = 0x10, 0x0FFF0000, 0x230000
_LAYERS = (0x80, 0x81, 0x82)
_VALUES = 1 << 16


class _Info(ctypes.Structure):
    _fields_ = (
        ("frames", ctypes.c_int64),
        *((name, ctypes.c_int) for name in ("rate", "channels", "format", "sections", "seekable")),
    )


def decode(library: str) -> int:
    """Decode the file that is the input from its start; returns the exit status."""
    sndfile, info = ctypes.CDLL(library), _Info()
    sndfile.sf_open_fd.restype = ctypes.c_void_p
    sndfile.sf_readf_float.restype = ctypes.c_int64
    sndfile.sf_readf_float.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    sndfile.sf_error.argtypes = (ctypes.c_void_p,)
    opened = sndfile.sf_open_fd(sys.stdin.fileno(), _READ, ctypes.byref(info), 0)
    if not opened:
        return int(sndfile.sf_error(None)) & 0xFF or 1
    output = sys.stdout.buffer
    if info.format & _TYPE != _MPEG and info.format & 0xFFFF not in _LAYERS:
        output.write(HEADER.pack(0, 0, 0))
        return 0
    output.write(HEADER.pack(info.frames, info.rate, info.channels))
    frames = _VALUES // info.channels
    block = (ctypes.c_float * (frames * info.channels))()
    while count := sndfile.sf_readf_float(opened, block, frames):
        output.write(memoryview(block).cast("B")[: 4 * count * info.channels])
    return int(sndfile.sf_error(opened)) & 0xFF


if __name__ == "__main__":
    sys.exit(decode(sys.argv[1]))
