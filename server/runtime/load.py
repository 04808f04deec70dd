"""Open a bundle: manifest, CPU, digests, program and weights, each with its own error."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from models.bundle import (
    PARAMETERS,
    ArraysManifest,
    BundleError,
    LanguageManifest,
    read_manifest_of,
    verify_files,
)
from server.runtime.arrays import ArraysRuntime
from server.runtime.cpu import check_target
from server.runtime.iree import IreeRuntime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from models.bundle import Manifest

R = TypeVar("R")


def open_bundle(bundle: Path, *, threads: int | None) -> tuple[LanguageManifest, IreeRuntime]:
    """Check and load the bundle of a language model; `threads` as in start_threads.

    Raises NotABundle, WrongFormat, WrongKind, UnsupportedCpu, Corrupt or CannotLoad, in this order,
    all of them BundleErrors whose message says what to do.
    """
    manifest = read_manifest_of(bundle, LanguageManifest)
    return manifest, checked(
        bundle, manifest, lambda: IreeRuntime(bundle, manifest, threads=threads)
    )


def open_arrays(bundle: Path, *, threads: int | None) -> tuple[ArraysManifest, ArraysRuntime]:
    """Check and load a bundle of functions on arrays; as open_bundle."""
    manifest = read_manifest_of(bundle, ArraysManifest)
    return manifest, checked(
        bundle, manifest, lambda: ArraysRuntime(bundle, manifest, threads=threads)
    )


def checked(bundle: Path, manifest: Manifest, load: Callable[[], R]) -> R:
    """What `load` gives, if the bundle's CPU and files are what its manifest says.

    Raises UnsupportedCpu, Corrupt, or what `load` does.
    """
    check_target(manifest.target)
    weights = tuple(record for record in manifest.files if record.name == PARAMETERS)
    others = tuple(record for record in manifest.files if record.name != PARAMETERS)
    # Code is checked before it runs; the digest of the weights takes long enough to be worth a
    # thread, and wrong weights do no harm until the check is done.
    verify_files(bundle, dataclasses.replace(manifest, files=others))
    with ThreadPoolExecutor(1, "digest") as pool:
        digest = pool.submit(verify_files, bundle, dataclasses.replace(manifest, files=weights))
        try:
            runtime = load()
        except BundleError:
            digest.result()  # a corrupt file explains more than what IREE says of it
            raise
        digest.result()
    return runtime
