"""Open a bundle: manifest, CPU, digests, program and weights, each with its own error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from models.bundle import (
    PARAMETERS,
    PREFIX,
    ArraysManifest,
    BundleError,
    LanguageManifest,
    read_manifest_of,
    verify_file,
)
from runtime.array_functions import ArraysRuntime
from runtime.cpu_features import check_target
from runtime.language_model import IreeRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from models.bundle import FileRecord, Manifest
    from runtime.self_test import Level

# What takes so long to read that a quick self-test only looks at its size.
_LARGE = (PARAMETERS, PREFIX)

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


def open_arrays(
    bundle: Path, *, threads: int | None, level: Level = "full"
) -> tuple[ArraysManifest, ArraysRuntime]:
    """Check, as a self-test of a level does, and load a bundle of functions; as open_bundle."""
    manifest = read_manifest_of(bundle, ArraysManifest)
    return manifest, checked(
        bundle,
        manifest,
        lambda: ArraysRuntime(bundle, manifest, threads=threads),
        level=level,
    )


def digested(manifest: Manifest, level: Level) -> tuple[FileRecord, ...]:
    """The files whose digests a self-test of this level compares."""
    if level == "off":
        return ()
    return tuple(file for file in manifest.files if level == "full" or file.name not in _LARGE)


def checked(bundle: Path, manifest: Manifest, load: Callable[[], R], *, level: Level = "full") -> R:
    """What `load` gives, if the bundle's CPU and files are what its manifest says.

    Sizes are compared at every level. Raises UnsupportedCpu, Corrupt, or what `load` does.
    """
    check_target(manifest.target)
    for record in manifest.files:
        verify_file(bundle, record, contents=False)
    records = digested(manifest, level)
    # Code is checked before it runs; the digest of the weights takes long enough to be worth a
    # thread, and wrong weights do no harm until the check is done.
    _verify(bundle, [record for record in records if record.name not in _LARGE])
    with ThreadPoolExecutor(1, "digest") as pool:
        digest = pool.submit(
            _verify, bundle, [record for record in records if record.name in _LARGE]
        )
        try:
            runtime = load()
        except BundleError:
            digest.result()  # a corrupt file explains more than what IREE says of it
            raise
        digest.result()
    return runtime


def _verify(bundle: Path, records: Iterable[FileRecord]) -> None:
    for record in records:
        verify_file(bundle, record)
