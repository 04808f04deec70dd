"""Certificates of 127.0.0.1."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from hearthd.server.process.listening import Tls

# A key of an elliptic curve takes milliseconds to make.
_COMMAND = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 and its key, both fresh."""
    files = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *_COMMAND.split(),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", files[0], "-keyout", files[1]),
        ],
        check=True,
        capture_output=True,
    )
    return files


@functools.cache
def tls() -> Tls:
    """One certificate for all tests of a process."""
    with tempfile.TemporaryDirectory() as folder:
        cert, key = certificate(Path(folder))
        return Tls(certificate=cert, key=key)
