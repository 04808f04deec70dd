"""How much of what was freed a process keeps, where the C library is glibc."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_BEGIN = """
import sys, threading
from pathlib import Path
from hearthd.runtime.system.free_memory import bound_free_memory, free_memory

def anonymous():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024

bound_free_memory()
before, kept = anonymous(), []
"""
# Threads that exist at the same time free 20 MB each, one after the other. A small block that is
# allocated last keeps the heap from being shortened.
_THREADS = """
size = len(sys.argv) + 50_000  # no constant, which Python would share
turn = threading.Barrier(9)

def allocate(number):
    for current in range(8):
        turn.wait()
        if current == number:
            blocks = [b"." * size for _ in range(400)]
            kept.append(b"." * size)
            del blocks
    turn.wait()

threads = [threading.Thread(target=allocate, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for _ in range(9):
    turn.wait()
print(anonymous() - before)
"""
# A block of 30 MB that is freed raises glibc's own limit for blocks with pages of their own.
_BLOCKS = """
size = len(sys.argv) + 3_000_000
b"." * (10 * size)
blocks = []
for _ in range(40):
    blocks.append(b"." * size)
    kept.append(b"." * 50_000)
del blocks
print(anonymous() - before)
"""
# Freed blocks between blocks that stay: the heap has no free end.
_HOLES = """
size = len(sys.argv) + 50_000
blocks = []
for _ in range(2000):
    blocks.append(b"." * size)
    kept.append(b"." * 1000)
del blocks
free_memory()
print(anonymous() - before)
"""
_FILE = """
import collections, json, random, time
from hearthd.text.tokenizer import Tokenizer

letters = [chr(0x4E00 + number) for number in range(320)]
merges = [[first, second] for first in letters for second in letters]
names = letters + ["".join(pair) for pair in merges]
vocabulary = {name: number for number, name in enumerate(names)}
file = Path(sys.argv[1], "tokenizer.json")
model = {"type": "BPE", "vocab": vocabulary, "merges": merges}
space = {"type": "Replace", "pattern": {"String": "_"}, "content": " "}
decoder = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
file.write_text(json.dumps({"model": model, "decoder": decoder}))
del merges, names, vocabulary, model
"""
# A tokenizer is read again and again while other threads replace the objects that they hold.
_READS = """
newest = collections.deque(maxlen=20_000)

def replace():
    while not kept:
        newest.extend([random.random(), str(random.random())] for _ in range(200))
        time.sleep(0.002)

threads = [threading.Thread(target=replace, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
time.sleep(1)
for number in range(12):
    Tokenizer.from_file(file, bos=None)
    free_memory()
    if number == 0:
        first = anonymous()
print(anonymous() - first)
kept.append(None)
for thread in threads:
    thread.join()
"""
# The same while this thread keeps some objects of each size after a read.
_READS_ALONE = """
for _ in range(12):
    tokenizer = Tokenizer.from_file(file, bos=None)
    kept.append([bytearray(size) for size in range(0, 400, 8)])
    del tokenizer
    sys._debugmallocstats()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("program", [_THREADS, _BLOCKS, _HOLES], ids=["threads", "blocks", "holes"])
def test_little_of_what_was_freed_is_kept(program: str) -> None:
    command = [sys.executable, "-c", _BEGIN + program]
    kept = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(kept) < 50e6


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_a_tokenizer_again_takes_no_more_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _BEGIN + _FILE + _READS, str(tmp_path)]
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(grown) < 10e6


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.nightly
def test_reading_a_tokenizer_again_takes_no_more_arenas(tmp_path: Path) -> None:
    """An object that is made beside a million others, and stays, holds an arena of 1 MiB."""
    command = [sys.executable, "-c", _BEGIN + _FILE + _READS_ALONE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    arenas = [int(text) for text in re.findall(r"arenas allocated current += +(\d+)", done.stderr)]
    assert arenas[-1] == arenas[1]
