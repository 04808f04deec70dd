"""Whether a bundle still is what was baked, and whether this machine would bake it again.

It checks what can be checked here, and says what that was.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.checks.reproduction import changes, check_sources
from hearthd.baker.compiler.targets import check_program, runnable
from hearthd.baker.pipeline.kinds.bake_encoder import traced_encoder
from hearthd.baker.pipeline.kinds.bake_speech import traced_speech
from hearthd.baker.pipeline.recipe import recipes
from hearthd.baker.pipeline.shared_stages import program_text
from hearthd.baker.pipeline.stages.comparison_stage import compare_later
from hearthd.baker.pipeline.stages.program_comparison import compare_program
from hearthd.baker.reference.numpy_runtime import traced
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.source import WeightsError
from hearthd.bundle import (
    MANIFEST,
    SIGNATURE,
    ArraysManifest,
    EncoderManifest,
    LanguageManifest,
    SpeechManifest,
    known_bundles,
    read_manifest,
    verify_files,
)
from hearthd.bundle.lora.adapter_settings import CONFIG
from hearthd.models.families.gru import GruConfig, program
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.runtime.checks.golden_arrays import read_examples
from hearthd.runtime.checks.self_test import self_test_arrays
from hearthd.runtime.speech_model import SpeechRuntime

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from hearthd.baker.progress import Progress
    from hearthd.baker.signing.checks import ExpectedSigner
    from hearthd.bundle import AnyManifest, ProgramFile, Provenance
    from hearthd.runtime.array_functions import Functions
    from hearthd.runtime.checks.self_test import Verdict


def verify(
    bundle: Path, console: Console, progress: Progress, signer: ExpectedSigner | None = None
) -> dict[str, Verdict]:
    """Check digests, the target of the program, the graph and, if it runs here, golden values.

    Prints every check; returns the verdict on each program that runs here, by the name of its file.
    A graph or a tool that has changed since the
    bake is printed and is not a failure. If a signer is expected, the signature is checked first,
    and `bundle` may be the folder of an adapter. Golden values that the bake left out are computed
    and recorded. Raises BundleError, TargetError, ComparisonFailed, or BakeError if they cannot be.
    """
    if signer and not (bundle / MANIFEST).exists() and (bundle / CONFIG).exists():
        console.print(f"signature: {signer.require_folder(bundle)}", markup=False)
        return {}
    manifest = read_manifest(bundle)
    console.print(f"signature: {_signature(bundle, manifest, signer)}", markup=False)
    verify_files(bundle, manifest)
    console.print(f"digests: {1 + len(manifest.files)} files are intact")
    for program_file in manifest.programs:
        check_program((bundle / program_file.file).read_bytes(), program_file.target)
        console.print(f"program: {program_file.file}, for {program_file.target.name}")
    console.print(f"graph: {_graph(manifest)}")
    console.print(f"sources: {_sources(manifest.provenance)}", markup=False)
    for change in changes(manifest):
        console.print(f"changed since the bake: {change}", markup=False)
    programs = runnable(manifest)
    if programs:
        known_bundles.warn_if_unknown(bundle, manifest)
    if isinstance(manifest, LanguageManifest) and not manifest.golden:
        if (bundle / SIGNATURE).exists():
            raise BakeError(f"{bundle}: signed without golden values, which would be written to it")
        compare_later(bundle, manifest, progress)
        manifest = read_manifest(bundle)
    if not programs:
        console.print("golden values: not checked, since this machine cannot run the program")
    verdicts = {
        program_file.file: _self_test(bundle, manifest, program_file, progress)
        for program_file in programs
    }
    for file, verdict in verdicts.items():
        console.print(f"golden values of {file}: {verdict.message}")
    return verdicts


def _signature(bundle: Path, manifest: AnyManifest, signer: ExpectedSigner | None) -> str:
    if signer:
        checked = signer.require_bundle(bundle, manifest)
        known_bundles.remember(manifest)
        return checked
    if (bundle / SIGNATURE).exists():
        return "not checked: see hearth verify --key"
    return "none"


def _graph(manifest: AnyManifest) -> str:
    """Whether tracing the model again gives the graph that was compiled."""
    if isinstance(manifest, EncoderManifest):
        graphs = traced_encoder(manifest).graphs
    elif isinstance(manifest, SpeechManifest):
        graphs = traced_speech(manifest).graphs
    elif isinstance(manifest, ArraysManifest):
        graphs = program(GruConfig(**manifest.config)).graphs
    else:
        graphs = traced(manifest).graphs
    if hashlib.sha256(program_text(graphs)).hexdigest() == manifest.provenance.graph:
        return "traced again, equal"
    return "this version of Hearth traces a different graph"


def _sources(origin: Provenance) -> str:
    """Whether the bundle was baked from the installed weights."""
    weights = [recipe.weights for recipe in recipes().get(origin.model, ()) if recipe.weights]
    if not weights or not all(source.package for source in origin.sources):
        return "not checked, since they are not in a package: see hearth reproduce --weights"
    try:
        check_sources(origin, open_weights(weights[0]).files())
    except (BakeError, WeightsError) as error:
        return f"not checked: {error}"
    return f"{len(origin.sources)} files of {origin.sources[0].package} are the bundle's sources"


def _self_test(
    bundle: Path, manifest: AnyManifest, program_file: ProgramFile, progress: Progress
) -> Verdict:
    if isinstance(manifest, ArraysManifest):
        functions: Functions
        if isinstance(manifest, SpeechManifest):
            functions = SpeechRuntime(bundle, manifest, threads=None, program=program_file)
        else:
            functions = ArraysRuntime(bundle, manifest, threads=None, program=program_file)
        examples = read_examples(bundle, manifest)
        return self_test_arrays(functions, examples, manifest.tolerance)
    return compare_program(bundle, manifest, program_file, progress)
