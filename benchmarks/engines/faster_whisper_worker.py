"""Transcribes sounds with faster-whisper, greedily: `python THIS_FILE MODEL THREADS`.

Of each path that it reads, it writes a line of JSON: the seconds, and the text. It imports nothing
of Hearth: another Python, which has faster-whisper, runs it.
"""

from __future__ import annotations

import importlib
import json
import sys
import time


def main(model: str, threads: str) -> None:
    """Answer until the input ends."""
    whisper = importlib.import_module("faster_whisper").WhisperModel(
        model, device="cpu", compute_type="int8", cpu_threads=int(threads)
    )
    for line in sys.stdin:
        began = time.perf_counter()
        segments, _ = whisper.transcribe(line.strip(), beam_size=1)
        text = "".join(segment.text for segment in segments)
        answer = {"seconds": time.perf_counter() - began, "text": text}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
