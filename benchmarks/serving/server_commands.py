"""The commands of Hearth and llama-server, with equal settings."""

from __future__ import annotations

import compileall
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.serving.server_process import Server
from hearthd import models, server

if TYPE_CHECKING:
    from pathlib import Path

CACHE_MB = 256  # prompt cache, in addition to the slots


def hearth(bundle: Path, threads: int, *, exact: bool = False, mapped: bool = True) -> Server:
    """Hearth in this environment, with compiled modules as after an installation."""
    for package in (*models.__path__, *server.__path__):
        compileall.compile_dir(package, quiet=1)
    options = ["--threads", str(threads), "--cache-ram", f"{CACHE_MB}MiB"]
    if exact:
        options += ["--logits", "exact"]
    if not mapped:
        options.append("--no-mmap")
    return Server(
        name="hearth", command=(sys.executable, "-m", "hearthd", "serve", str(bundle), *options)
    )


def llama_server(program: str, model: Path, *, slots: int, context: int, threads: int) -> Server:
    """llama-server with continuous batching; each slot has its own context."""
    flags = {
        "-m": model,
        "-np": slots,
        "-c": slots * context,
        "-t": threads,
        "--cache-ram": CACHE_MB,
    }
    options = [str(argument) for pair in flags.items() for argument in pair]
    return Server(name="llama-server", command=(program, *options, "-cb", "-no-kvu", "--no-webui"))


def version_of(program: str) -> str:
    """The version of llama-server."""
    result = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (result.stdout + result.stderr).partition("\n")[0].removeprefix("version: ")
