"""Open a bundle: check manifest, CPU and files, then load program and weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

from hearthd.bundle import (
    PARAMETERS,
    ArraysManifest,
    BundleError,
    EncoderManifest,
    LanguageManifest,
    SpeechManifest,
    known_bundles,
    read_manifest_of,
    require_signed_manifest,
    verify_file,
)
from hearthd.runtime.language_model import IreeRuntime
from hearthd.runtime.system.cpu_features import best_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from hearthd.bundle import FileRecord, Manifest, ProgramFile, PublicKey
    from hearthd.runtime.checks.self_test import Level

M = TypeVar("M", ArraysManifest, EncoderManifest, SpeechManifest)
N = TypeVar("N", contravariant=True)
R = TypeVar("R")
S = TypeVar("S", covariant=True)


class _Runtime(Protocol[N, S]):
    """Loads the program of a bundle."""

    def __call__(
        self, bundle: Path, manifest: N, *, threads: int | None, program: ProgramFile
    ) -> S: ...


def open_bundle(
    bundle: Path, *, threads: int | None, mapped: bool = True
) -> tuple[LanguageManifest, IreeRuntime]:
    """Check and load the bundle of a language model.

    `threads` as in start_threads, and `mapped` as in Device.
    Raises NotABundle, WrongFormat, WrongKind, UnsupportedCpu, Corrupt or CannotLoad, in this order.
    All are BundleErrors, whose message says what to do.
    """
    manifest = read_manifest_of(bundle, LanguageManifest)
    return manifest, check_and_load(
        bundle,
        manifest,
        lambda program: IreeRuntime(
            bundle, manifest, threads=threads, program=program, mapped=mapped
        ),
    )


def open_functions(
    bundle: Path,
    kind: type[M],
    runtime: _Runtime[M, R],
    *,
    threads: int | None,
    level: Level = "full",
    keys: Sequence[PublicKey] = (),
) -> tuple[M, R]:
    """As open_bundle, for a bundle of another kind; `level` and `keys` as in check_and_load.

    `runtime` is the class of its functions: ArraysRuntime, or SpeechRuntime for a SpeechManifest.
    """
    manifest = read_manifest_of(bundle, kind)
    return manifest, check_and_load(
        bundle,
        manifest,
        lambda program: runtime(bundle, manifest, threads=threads, program=program),
        level=level,
        keys=keys,
    )


def hashed_files(manifest: Manifest, level: Level, *, signed: bool) -> tuple[FileRecord, ...]:
    """The files whose sha256 a self-test of this level checks; all of a bundle that is signed."""
    if level == "full" or signed:
        return manifest.files
    if level == "off":
        return ()
    return tuple(file for file in manifest.files if file.name != PARAMETERS)


def check_and_load(
    bundle: Path,
    manifest: Manifest,
    load: Callable[[ProgramFile], R],
    *,
    level: Level = "full",
    keys: Sequence[PublicKey] = (),
) -> R:
    """Check CPU and files against the manifest, and return what `load` returns.

    `load` gets the fastest program that this machine can run.
    The level of the self-test chooses the files whose sha256 is checked; sizes are always checked.
    If there are `keys`, one of them must have signed the bundle, and every sha256 is checked.
    Raises BadSignature, UnsupportedCpu, Corrupt, or the errors of `load`.
    """
    if keys:
        require_signed_manifest(bundle, manifest, keys)
        known_bundles.remember(manifest)
    program = best_program(manifest)
    for record in manifest.files:
        verify_file(bundle, record, contents=False)
    records = hashed_files(manifest, level, signed=bool(keys))
    # Code is checked before it runs. Weights are hashed in a thread meanwhile: that takes long, and
    # wrong weights do no harm until the check is done.
    _verify(bundle, [record for record in records if record.name != PARAMETERS])
    known_bundles.warn_if_unknown(bundle, manifest)
    with ThreadPoolExecutor(1, "digest") as pool:
        digest = pool.submit(
            _verify, bundle, [record for record in records if record.name == PARAMETERS]
        )
        try:
            runtime = load(program)
        except BundleError:
            digest.result()  # a corrupt file explains more than IREE's message
            raise
        digest.result()
    return runtime


def _verify(bundle: Path, records: Iterable[FileRecord]) -> None:
    for record in records:
        verify_file(bundle, record)
