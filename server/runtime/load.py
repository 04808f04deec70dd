"""Open a bundle: manifest, CPU, digests, program and weights, each with its own error."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from models.bundle import PARAMETERS, BundleError, read_manifest, verify_files
from server.runtime.cpu import check_target
from server.runtime.iree import IreeRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from models.bundle import Manifest


def open_bundle(bundle: Path, *, threads: int | None) -> tuple[Manifest, IreeRuntime]:
    """Check and load a bundle; `threads` as in IreeRuntime.

    Raises NotABundle, WrongFormat, UnsupportedCpu, Corrupt or CannotLoad, in this order, all of
    them BundleErrors whose message says what to do.
    """
    manifest = read_manifest(bundle)
    check_target(manifest.target)
    weights = tuple(record for record in manifest.files if record.name == PARAMETERS)
    others = tuple(record for record in manifest.files if record.name != PARAMETERS)
    # Code is checked before it runs; the digest of the weights takes long enough to be worth a
    # thread, and wrong weights do no harm until the check is done.
    verify_files(bundle, dataclasses.replace(manifest, files=others))
    with ThreadPoolExecutor(1, "digest") as pool:
        digest = pool.submit(verify_files, bundle, dataclasses.replace(manifest, files=weights))
        try:
            runtime = IreeRuntime(bundle, manifest, threads=threads)
        except BundleError:
            digest.result()  # a corrupt file explains more than what IREE says of it
            raise
        digest.result()
    return manifest, runtime
