"""Record what llama.cpp predicts with small hybrids of random weights, in f32.

    python -m tests.golden.record_hybrids LLAMA_SERVER

LLAMA_SERVER is the program of llama.cpp. Recorded with that of llama-cpp-python 0.3.36, on a CPU
with AVX-512 and AMX, without repacked weights and with caches in f32.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.models.families.hybrid_models import (
    CONFIGS,
    LLAMACPP,
    READ_BY_LLAMACPP,
    TEXT,
    write_hybrid_gguf,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = (
    "--no-repack", "--no-warmup", "-np", "1", "-c", "1024", "-ctk", "f32", "-ctv", "f32", "-fa",
    "off",
)  # fmt: skip
_BEST = 5
# llama-server sends no log-probabilities of a byte that is a part of a character.
_WHOLE_CHARACTER = "root ::= [ -~]"


def predicted(client: httpx.Client, tokens: Sequence[int]) -> list[tuple[int, float]]:
    """The best tokens after some, with their log-probabilities."""
    body = {
        "prompt": tokens, "n_predict": 1, "n_probs": _BEST, "temperature": 0,
        "cache_prompt": False, "grammar": _WHOLE_CHARACTER,
    }  # fmt: skip
    (token,) = (
        client.post("/completion", json=body).raise_for_status().json()["completion_probabilities"]
    )
    return [(best["id"], round(best["logprob"], 6)) for best in token["top_logprobs"]]


def recorded(server: str, file: Path) -> list[Any]:
    """What llama-server predicts after each of READ_BY_LLAMACPP tokens of TEXT."""
    port = _free_port()
    command = [server, "-m", str(file), "--port", str(port), *_FLAGS]
    with (
        subprocess.Popen(command, stderr=subprocess.DEVNULL) as process,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        try:
            while process.poll() is None:
                time.sleep(0.1)
                try:
                    if client.get("/health").is_success:
                        return [predicted(client, TEXT[:count]) for count in READ_BY_LLAMACPP]
                except httpx.TransportError:
                    continue
            raise SystemExit(f"{file}: llama-server ended with {process.returncode}")
        finally:
            process.terminate()


def _free_port() -> int:
    """A port that no program listens on, so that no other server answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def main(server: str) -> None:
    """Record every model."""
    predictions = {}
    for name in CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            predictions[name] = recorded(server, write_hybrid_gguf(Path(folder) / "model", name))
    LLAMACPP.write_text(json.dumps(predictions, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
