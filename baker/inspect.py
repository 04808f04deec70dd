"""Looking at a finished bundle: what is in it, and whether it still is what was baked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from baker.targets import check_program, runs_here
from models.bundle import read_manifest, verify_files
from server.runtime.load import open_bundle
from server.runtime.selftest import self_test

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from models.bundle import Manifest


def show(bundle: Path, console: Console) -> None:
    """Print the manifest for people; raises BundleError. Reads no other file of the bundle."""
    manifest = read_manifest(bundle)
    for title, rows in (
        ("model", _model_rows(manifest)),
        (
            "files",
            [(file.name, f"{file.bytes:,} bytes", file.sha256[:16]) for file in manifest.files],
        ),
        (
            "entry points",
            [
                (
                    point.name,
                    f"{point.batch} x {point.tokens} tokens, positions below {point.keys}",
                    f"{manifest.statistics[f'ops.{point.name}']:,} ops",
                )
                for point in manifest.entry_points
            ],
        ),
        (
            "made from",
            [(file.name, f"{file.bytes:,} bytes", file.sha256[:16]) for file in manifest.sources],
        ),
        (
            "compiler",
            [
                (manifest.compiler.name, manifest.compiler.version),
                *((flag,) for flag in manifest.compiler.flags),
            ],
        ),
    ):
        table = Table(
            *[""] * max(map(len, rows)),
            title=title,
            title_justify="left",
            show_header=False,
            box=None,
            padding=(0, 2),
        )
        for row in rows:
            table.add_row(*row)
        console.print(table, "")


def _model_rows(manifest: Manifest) -> list[tuple[str, str]]:
    statistics = manifest.statistics
    return [
        ("architecture", manifest.architecture),
        *((f"  {key}", str(value)) for key, value in manifest.config.items()),
        ("precision", manifest.precision),
        ("target", f"{manifest.target.name} ({manifest.target.triple}, {manifest.target.cpu})"),
        ("needs", " ".join(manifest.target.features)),
        ("context", f"{manifest.context:,} tokens"),
        ("slots", f"{manifest.slots}"),
        (
            "weights",
            f"{statistics['weights_bytes']:,} bytes in {statistics['parameters']} parameters",
        ),
        ("cache", f"{statistics['cache_bytes_per_slot']:,} bytes a slot"),
        ("golden", f"{len(manifest.golden)} prompts, tolerance {manifest.tolerance}"),
        ("baked by", f"hearth {manifest.hearth}"),
    ]


def verify(bundle: Path, console: Console) -> bool:
    """Check digests, the program's machine and, where it can run, golden values.

    Prints what was checked; whether all is well. Raises BundleError or TargetError.
    """
    manifest = read_manifest(bundle)
    verify_files(bundle, manifest)
    console.print(f"digests: {len(manifest.files)} files are what was baked")
    check_program((bundle / "model.vmfb").read_bytes(), manifest.target)
    console.print(f"program: for {manifest.target.triple}")
    if not runs_here(manifest.target):
        console.print("golden values: not checked, this machine cannot run the program")
        return True
    _, runtime = open_bundle(bundle, threads=None)
    verdict = self_test(runtime, manifest.golden, manifest.tolerance)
    console.print(f"golden values: {verdict.message}")
    return verdict.passed
