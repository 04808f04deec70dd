"""The last stage of a bake: compute golden values with NumPy, and compare the compiled programs.

It needs nothing but the bundle, so a bake can leave it to a later `hearth verify`: a bundle without
golden values was not compared yet.

Where activations are rounded to int8, the last bit of a sum in f32 decides between two integers.
Recurrent layers amplify the difference, and a router sends a token to another expert where two have
about the same score; how far that changes logits depends on the weights. So the logits of such a
model are computed again in NumPy, with norms and biases that differ by a millionth. Twice the
largest difference is the tolerance, unless the usual one is larger. Where a router chooses other
experts, that tolerance is large and hides faults: a row of the first layer after experts, which
fewer roundings reach, is compared too.

The tolerance comes from the first golden prompt. The scores of two experts may be about the same in
another prompt alone, and layers of any kind amplify if their weights have few bits. So before a
program with activations of int8 is refused, all prompts are computed with two other small changes
in NumPy, and the program is compared with the tolerance that these give.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from hearthd.baker.compiler.targets import runnable
from hearthd.baker.pipeline.shared_stages import require_passed
from hearthd.baker.pipeline.stages.program_comparison import compare_program
from hearthd.baker.reference.golden_values import (
    STEPS,
    first_routed,
    golden_rows,
    golden_states,
    golden_values,
    prompt_ids,
    row_after_experts,
)
from hearthd.baker.reference.numpy_runtime import (
    NumpyRuntime,
    PassingParameters,
    program_options,
    slightly_changed,
    stored_parameters,
    traced,
)
from hearthd.bundle import (
    MANIFEST,
    PARAMETERS,
    TOKENIZER,
    GoldenImage,
    GoldenSound,
    GridInput,
    kept_bundles,
    known_bundles,
    read_manifest,
    write_manifest,
)
from hearthd.bundle.manifests.manifest import digest
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.evaluate import evaluate
from hearthd.runtime.checks.self_test import largest_logit_difference
from hearthd.runtime.media.log_mel import SAMPLE_RATE
from hearthd.runtime.media.pixels import golden_pixels, normalized, patches_of
from hearthd.runtime.media.sound_features import golden_frames
from hearthd.runtime.system.operating_system import lock
from hearthd.text import tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from hearthd.baker.progress import Progress
    from hearthd.bundle import Golden, LanguageManifest
    from hearthd.models.program import Program
    from hearthd.runtime.interface import TowerKind

_GOLDEN_SAMPLES = SAMPLE_RATE  # at most


def compare_later(bundle: Path, manifest: LanguageManifest, progress: Progress) -> None:
    """Compare a bundle that was not compared yet, unless another process does so meanwhile.

    Raises ComparisonFailed.
    """
    with (bundle / MANIFEST).open("rb") as file:
        with suppress(OSError):  # a file system without locks
            lock(file.fileno(), wait=True)
        if read_manifest(bundle) == manifest:
            text = (bundle / TOKENIZER).read_bytes()
            tokenizer = tokenizer_json.build(tokenizer_json.parse(text))
            compare_with_numpy(bundle, manifest, tokenizer, progress)


def compare_with_numpy(
    bundle: Path, manifest: LanguageManifest, tokenizer: Tokenizer, progress: Progress
) -> None:
    """Compute golden values, compare every program that runs here, and write the manifest again.

    The bundle has the identity of the new manifest then, also for those that find it by its
    source. Raises ComparisonFailed.
    """
    with progress.stage("compute golden values with NumPy"):
        reference = _reference(bundle, manifest, prompt_ids(tokenizer))
        compared = _with_golden_values(bundle, manifest, reference)
    for program_file in runnable(manifest):
        verdict = compare_program(bundle, compared, program_file, progress)
        if not verdict.passed and verdict.error is None and manifest.activations == "int8":
            with progress.stage("compute golden values again, with small changes"):
                changed = [reference.changed(seed) for seed in (1, 2)]
                tolerances = [_tolerance_for(runtime, compared.golden) for runtime in changed]
            compared = replace(compared, tolerance=max(compared.tolerance, *tolerances))
            verdict = compare_program(bundle, compared, program_file, progress)
        require_passed(program_file, verdict)
    kept_bundles.keep_as(bundle, digest(manifest), digest(compared))
    write_manifest(bundle, compared)
    known_bundles.remember(compared)


def _prefill_sizes(ids: Sequence[tuple[int, ...]], chunk: int) -> tuple[int, ...]:
    """Sizes of prefills that read prompts without padding: its rows would use other experts.

    More than DECODE_ROWS, up to which matrices of bf16 are multiplied by rows that are not
    rounded, and at most `chunk`. The last token of a prompt is decoded.
    """
    sizes = {min(max(len(tokens) - 1, f.DECODE_ROWS + 1), chunk) for tokens in ids}
    return tuple(sorted(sizes))


@dataclass(frozen=True)
class _Reference:
    """The program that NumPy computes golden values with, which has a slot for each prompt.

    ids         the tokens of each prompt
    routed      the first layer with experts; None if there is none
    amplifies   whether one rounding can change logits much with weights of any format
    """

    program: Program
    parameters: Mapping[str, NDArray[Any]]
    ids: Sequence[tuple[int, ...]]
    context: int
    routed: int | None
    amplifies: bool

    def runtime(self, parameters: Mapping[str, NDArray[Any]]) -> NumpyRuntime:
        """The program with these parameters."""
        passing = PassingParameters(parameters)
        return NumpyRuntime(self.program, passing, context=self.context, slots=len(self.ids))

    def changed(self, seed: int) -> NumpyRuntime:
        """The program with slightly changed parameters."""
        return self.runtime(slightly_changed(self.parameters, seed))


def _reference(
    bundle: Path, manifest: LanguageManifest, ids: Sequence[tuple[int, ...]]
) -> _Reference:
    """The program for prompts of these tokens."""
    context = max(len(tokens) for tokens in ids) + STEPS
    program = traced(
        manifest,
        context=context,
        prefill_tokens=_prefill_sizes(ids, program_options(manifest).chunk),
        long_prefill=0,
        decode_batches=(1, len(ids)),
        verify_tokens=(),
        pair_tokens=0,
        reads_rows=False,
        draft_tokens=0,
        adapters=0,
    )
    routed = first_routed(program.parameters)
    has_states = any(spec.state for spec in program.caches)
    return _Reference(
        program=program,
        parameters=stored_parameters(program.parameters, bundle / PARAMETERS),
        ids=ids,
        context=context,
        routed=routed,
        amplifies=manifest.activations == "int8" and (routed is not None or has_states),
    )


def _with_golden_values(
    bundle: Path, manifest: LanguageManifest, reference: _Reference
) -> LanguageManifest:
    """The manifest with golden values of prompts, and the tolerance that the first one gives."""
    program, tolerance = reference.program, manifest.tolerance
    runtime = reference.runtime(reference.parameters)
    # One thread: the last bits of a sum depend on the number of threads.
    with threadpool_limits(1):
        golden = golden_values(runtime, reference.ids)
        rows = golden_rows(runtime, program.caches, golden, manifest.activations)
        if reference.amplifies:
            changed = reference.changed(0)
            tolerance = max(tolerance, _tolerance_for(changed, golden[:1]))
            if (routed := reference.routed) is not None:
                rows += row_after_experts(runtime, changed, program.caches, golden[0], routed)
    return replace(
        manifest,
        tolerance=tolerance,
        golden=golden,
        golden_rows=rows,
        golden_states=golden_states(runtime, program.caches, golden),
        golden_image=_golden_image(bundle, manifest),
        golden_sound=_golden_sound(bundle, manifest),
    )


def _tolerance_for(changed: NumpyRuntime, golden: Sequence[Golden]) -> float:
    """Twice the largest difference of golden logits with slightly changed parameters."""
    with threadpool_limits(1):
        return 2 * max(largest_logit_difference(changed, case) for case in golden)


def _golden_image(bundle: Path, manifest: LanguageManifest) -> GoldenImage | None:
    """The golden image of a model that reads images."""
    if (settings := manifest.image_settings) is None:
        return None
    pixels = golden_pixels(settings.golden_side)
    sizes: tuple[int, ...] = ()
    if isinstance(settings, GridInput):
        patches = patches_of(pixels, settings)
        sizes = (settings.rows_of(len(patches.values) // settings.merged**2),)
        arguments = list(patches.padded(settings.patches_of(sizes[0])))
    else:
        arguments = [normalized(pixels, settings)]
    rows = _tower_rows(
        bundle, traced(manifest, adapters=0, image_rows=sizes, sound_rows=()), "image", arguments
    )
    return GoldenImage(side=settings.golden_side, values=tuple(rows[0].tolist()))


def _golden_sound(bundle: Path, manifest: LanguageManifest) -> GoldenSound | None:
    """The golden sound of a model that reads sound."""
    if (settings := manifest.sound) is None:
        return None
    samples = min(_GOLDEN_SAMPLES, settings.sizes[0] * settings.frames * settings.hop)
    frames = golden_frames(samples, settings)
    count, size = len(frames), settings.reading_rows(len(frames))
    padded = np.pad(frames, ((0, settings.length(size) - count), (0, 0)))
    program = traced(manifest, adapters=0, image_rows=(), sound_rows=(size,))
    arguments = [padded, np.array([count], np.int32)]
    last = settings.rows(count) - 1
    values = _tower_rows(bundle, program, "sound", arguments)[last].tolist()
    return GoldenSound(samples=samples, values=tuple(values))


def _tower_rows(
    bundle: Path, program: Program, kind: TowerKind, arguments: Sequence[NDArray[Any]]
) -> NDArray[np.float32]:
    """What the only entry point of a tower computes."""
    ((_, graph),) = [pair for pair in program.entry_points if pair[0].kind == kind]
    parameters = stored_parameters(program.parameters, bundle / PARAMETERS)
    with threadpool_limits(1):
        (rows,) = evaluate(graph, arguments, parameters)
    return np.asarray(rows)
