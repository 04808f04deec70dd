"""Bake a bundle again from its provenance, and compare the two byte by byte."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.compiler.compilation import compiler_for
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.pipeline.bake import bake, bakeable
from hearthd.baker.pipeline.bake_options import BadOption, bake_options, recorded_options
from hearthd.baker.pipeline.bill_of_materials import read_license, write_manifest_and_bill
from hearthd.baker.pipeline.draft_model import draft_model_path
from hearthd.baker.pipeline.kinds.bake_gru import GRU
from hearthd.baker.pipeline.origin import hearth, tools
from hearthd.baker.pipeline.recipe import open_named
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.baker.weights.open_weights import open_weights
from hearthd.bundle import (
    DRAFTER,
    MANIFEST,
    NO_PRESET,
    SIGNATURE,
    LanguageManifest,
    read_manifest,
    record_file,
)
from hearthd.bundle.lora.read_adapter import adapter_files
from hearthd.models.catalog import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.progress import Progress
    from hearthd.bundle import Compiler, FileRecord, Hearth, Manifest, Provenance

_BLOCK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A file that differs, and its first different byte; None if one bundle lacks the file."""

    file: str
    byte: int | None

    @property
    def message(self) -> str:
        """The difference as a sentence."""
        if self.byte is None:
            return f"{self.file} is in only one of the bundles"
        return f"{self.file} differs from byte {self.byte:,}"


def reproduce(
    bundle: Path,
    weights: Path | None,
    progress: Progress,
    *,
    adapter: Path | None = None,
    drafter: Path | None = None,
) -> list[Difference]:
    """Bake a bundle again in a temporary folder; returns the differences, the manifest last.

    `weights` None: the package in the provenance. `adapter` was merged into the weights, if any,
    and `drafter` is the draft model. Raises BakeError if the provenance has other weights,
    BundleError, and what the functions that bake raise.
    """
    first = read_manifest(bundle)
    origin = first.provenance
    with temporary_folder("hearth-") as folder:
        # Not in the temporary folder itself: that is locked, and a bake waits for a lock of the
        # folder in which its bundle will be.
        out = folder / "again" / "bundle"
        given = {"weights": weights, "adapter": adapter, "drafter": drafter, "out": out}
        options = _options(first, bundle, given)
        check_sources(origin, _files(options))
        bake(options, progress, first.preset if isinstance(first, LanguageManifest) else NO_PRESET)
        manifest = read_manifest(out)
        # Equal bytes may have another file name here, or come from another package.
        same = replace(manifest.provenance, sources=origin.sources)
        write_manifest_and_bill(out, replace(manifest, provenance=same), read_license(out))
        return list(compare(bundle, out))


def changes(manifest: Manifest) -> Iterator[str]:
    """A line for each tool or setting that decides the bytes and differs from the first bake."""
    origin = manifest.provenance
    target = find_target(manifest.target.name)
    then = _makers(origin.hearth, origin.compiler, origin.tools)
    now = _makers(hearth(), compiler_for(target), tools(origin.kernels))
    for name in {**then, **now}:
        then_value, now_value = then.get(name, "absent"), now.get(name, "absent")
        if then_value != now_value:
            yield f"{name}, from {then_value} to {now_value}"
    if any(find_target(program.target.name) != program.target for program in manifest.programs):
        yield "target, since `host` was another CPU; the same program cannot be compiled here"
    if origin.hearth.modified:
        yield "hearth, perhaps: its checkout was modified, so its revision does not identify it"


def compare(bundle: Path, other: Path) -> Iterator[Difference]:
    """The files that differ in two bundles; the manifests last, since they have the digests.

    Signatures are not compared: a key signs the same files differently each time.
    """
    names = {path.name for folder in (bundle, other) for path in folder.iterdir()} - {SIGNATURE}
    for name in sorted(names, key=lambda name: (name == MANIFEST, name)):
        pair = bundle / name, other / name
        if not all(path.is_file() for path in pair):
            yield Difference(file=name, byte=None)
        elif (byte := _first_difference(*pair)) is not None:
            yield Difference(file=name, byte=byte)


def _first_difference(path: Path, other: Path) -> int | None:
    """The first byte that differs in two files, which may be the end of one; None if equal."""
    with path.open("rb") as left, other.open("rb") as right:
        start = 0
        while True:
            pair = left.read(_BLOCK), right.read(_BLOCK)
            if pair[0] != pair[1]:
                unequal = (i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b)
                return start + next(unequal, min(map(len, pair)))
            if not pair[0]:
                return None
            start += len(pair[0])


def _makers(hearth: Hearth, compiler: Compiler, tools: Mapping[str, str]) -> dict[str, str]:
    return {
        compiler.name: compiler.version,
        "hearth": hearth.text,
        **tools,
        "the compiler's flags": " ".join(compiler.flags),
    }


def check_sources(origin: Provenance, paths: Iterable[Path]) -> None:
    """Raise BakeError unless the provenance has the digests of the files."""
    for expected, file in zip_longest(origin.sources, map(record_file, paths)):
        if expected is None or file is None or expected.sha256 != file.sha256:
            raise BakeError(
                f"the bundle was baked from other weights: expected {_file(expected)}, got "
                f"{_file(file)}; specify --weights PATH"
            )


def _file(record: FileRecord | None) -> str:
    return "no file" if record is None else f"{record.name} (sha256 {record.sha256[:16]})"


def _options(first: Manifest, bundle: Path, paths: Mapping[str, Path | None]) -> BakeOptions:
    """The options of the first bake, with these paths, by the names of options.

    Raises BakeError if one of them is not valid or missing.
    """
    origin, weights = first.provenance, paths["weights"]
    paths = {name: path for name, path in paths.items() if path is not None}
    # Of several families with one architecture, the file decides again.
    model = origin.model if origin.model in bakeable() else None
    if model is None and origin.model not in ARCHITECTURES:
        raise BakeError(f"this version of Hearth cannot bake {origin.model!r:.80}")
    if "adapter" in origin.options and "adapter" not in paths:
        raise BakeError("the bundle was baked with an adapter; specify --adapter PATH")
    recorded_drafter = origin.options.get("drafter", DRAFTER)
    if recorded_drafter not in (DRAFTER, "none") and "drafter" not in paths:
        raise BakeError(
            f"the bundle was baked with a draft model, {recorded_drafter}; specify --drafter PATH"
        )
    if weights is None and not origin.sources[0].package:
        names = ", ".join(f"{source.name} ({source.bytes:,} bytes)" for source in origin.sources)
        raise BakeError(f"the bundle was baked from {names}; specify --weights PATH")
    given: dict[str, Any] = {
        "model": model,
        "recompile": True,
        "verify_later": isinstance(first, LanguageManifest) and not first.golden,
    }
    if isinstance(first, LanguageManifest):
        projector = origin.options.get("mmproj")  # beside the weights; or else none that is there
        given["mmproj"] = weights.parent / str(projector) if weights and projector else "none"
    try:
        return bake_options(recorded_options(origin.options, bundle) | given | paths, strict=True)
    except BadOption as error:
        raise BakeError(f"{MANIFEST}: provenance.options: {error}") from error


def _files(options: BakeOptions) -> tuple[Path, ...]:
    """The files that a bake with these options reads its weights from."""
    if options.model == GRU and options.weights is not None:
        return (options.weights,)
    weights = open_named(str(options.model), options.weights)
    draft = draft_model_path(options.drafter)
    return (
        *weights.files(),
        *((options.mmproj,) if isinstance(options.mmproj, Path) else ()),
        *(adapter_files(options.adapter) if options.adapter else ()),
        *(() if draft is None else open_weights(draft).files()),
    )
