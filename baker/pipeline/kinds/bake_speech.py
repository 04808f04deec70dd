"""`hearth bake whisper`: models that transcribe speech."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.pipeline.kinds.bake_arrays import ArraysToBake, ModelPlan
from hearthd.baker.pipeline.kinds.bake_encoder import ENCODER_PRECISIONS
from hearthd.baker.pipeline.memory_plan import footprint
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.shared_stages import BakeRecord, destination, storing_in
from hearthd.baker.tokenizer.tokenizer_files import GENERATION_CONFIG, text_tokenizer_json
from hearthd.baker.weights.safetensors import read_json
from hearthd.baker.weights.source import TokenizerError
from hearthd.bundle import (
    ALIGN,
    DECODE,
    ENCODE,
    LISTEN,
    TOKENIZER,
    SpeechManifest,
    SpeechTokens,
    listen_function,
    speech_memory,
)
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.catalog import SPEECH
from hearthd.models.config import ConfigError
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.precision import KV_TOLERANCE, PRECISIONS
from hearthd.models.speech.speech_entry_points import SpeechOptions
from hearthd.runtime.checks.golden_arrays import GoldenExample
from hearthd.runtime.speech_model import SpeechRuntime
from hearthd.text import tokenizer_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.pipeline.weights_config import Family
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import FunctionSpec, Memory, ProgramFile
    from hearthd.models.program import ArraysProgram
    from hearthd.models.speech.speech_architecture import SpeechArchitecture
    from hearthd.models.speech.speech_entry_points import SpeechProgram
    from hearthd.runtime.array_bytes import Array, Arrays

_GOLDEN_TOKENS = 6
_SEED = 0
_LANGUAGE = re.compile(r"<\|([a-z]{2,3})\|>")


@dataclass(frozen=True, kw_only=True)
class SpeechPlan(ModelPlan):
    """One bake of a model of speech.

    tokens           the special tokens of the model
    alignment_heads  as in SpeechOptions
    """

    architecture: SpeechArchitecture[Any]
    tokens: SpeechTokens
    alignment_heads: tuple[tuple[int, int], ...]

    @property
    def options(self) -> SpeechOptions:
        """The options of its program."""
        return SpeechOptions(precision=self.precision, alignment_heads=self.alignment_heads)

    @override
    def program(self) -> SpeechProgram:
        with storing_in(self.precision):
            return self.architecture.program(self.config, self.options)

    @override
    def memory(self) -> Memory:
        program = self.program()
        return speech_memory(
            footprint(program.graphs, program.parameters),
            vocab_size=self.config.vocab_size,
            context=self.config.max_context,
            states=self.config.states,
            heads=len(self.alignment_heads),
            buffers=(*program.heard, *program.caches),
        )


@dataclass(frozen=True, kw_only=True)
class SpeechToBake(ArraysToBake):
    """A model of speech to bake. Its golden example is a window and a text: several calls."""

    examples_are_calls = False
    program: SpeechProgram
    plan: SpeechPlan

    @override
    def functions(self) -> tuple[FunctionSpec, ...]:
        """The one function of the manifest."""
        shape, aligned = self.plan.config, len(self.plan.alignment_heads)
        count = min(_GOLDEN_TOKENS, shape.max_context)
        return (listen_function(shape.mels, shape.states, count, shape.vocab_size, aligned),)

    @override
    def examples(self, parameters: Mapping[str, Array]) -> list[GoldenExample]:
        """The logits after each of some random tokens, after a random window, by NumPy."""
        rng = np.random.default_rng(_SEED)
        spectrogram, tokens = self.functions()[0].inputs
        inputs: Arrays = {
            "spectrogram": rng.uniform(-1.0, 1.0, spectrogram.shape).astype(np.float32),
            "tokens": rng.integers(0, self.plan.config.vocab_size, tokens.shape).astype(np.int32),
        }
        graphs = {graph.name: graph for graph in self.program.graphs}
        heard = evaluate(
            graphs[ENCODE], [inputs["spectrogram"], *empty_caches(self.program.heard)], parameters
        )
        caches: Sequence[Array] = empty_caches(self.program.caches)
        rows = []
        for position, token in enumerate(inputs["tokens"]):
            numbers = (np.array([token], np.int32), np.array([position], np.int32))
            logits, *caches = evaluate(graphs[DECODE], [*numbers, *caches, *heard], parameters)
            rows.append(logits[0])
        outputs = {"logits": np.stack(rows)}
        if ALIGN in graphs:
            ids = np.zeros(self.plan.options.prefill, np.int32)
            ids[: len(rows)] = inputs["tokens"]
            numbers = (ids, np.zeros(1, np.int32))
            scores, *_ = evaluate(graphs[ALIGN], [*numbers, *caches, *heard], parameters)
            outputs["scores"] = scores[:, : len(rows)]
        return [GoldenExample(function=LISTEN, inputs=inputs, outputs=outputs)]

    @override
    def runtime(self, folder: Path, manifest: Any, program: ProgramFile) -> SpeechRuntime:
        """A runtime of the bundle, which the golden values are compared with."""
        return SpeechRuntime(folder, manifest, threads=None, program=program)

    @override
    def manifest(self, fields: Mapping[str, Any]) -> SpeechManifest:
        """The manifest with the fields that every program has."""
        plan, shape = self.plan, self.plan.config
        precision = PRECISIONS[plan.precision]
        return SpeechManifest(
            **fields,
            precision=plan.precision,
            tolerance=precision.tolerance + KV_TOLERANCE[precision.kv_cache],
            vocab_size=shape.vocab_size,
            mels=shape.mels,
            states=shape.states,
            context=shape.max_context,
            prefill=plan.options.prefill,
            heard=self.program.heard,
            caches=self.program.caches,
            tokens=plan.tokens,
            footprint=footprint(self.program.graphs, self.program.parameters),
            alignment_heads=plan.alignment_heads,
        )


def speech_recipes() -> dict[str, dict[str, str]]:
    """The recipes of every model of speech that can be baked, by its name."""
    folder = files("hearthd.configs") / "speech"
    return {
        path.name.removesuffix(".toml"): tomllib.loads(path.read_text("utf-8"))
        for path in sorted(folder.iterdir(), key=lambda path: path.name)
        if path.name.endswith(".toml")
    }


def speech_plan(options: BakeOptions, source: WeightSource, family: Family) -> SpeechPlan:
    """Resolve options; raises RecipeError, TargetError or TokenizerError."""
    options.require_kind("speech model", family.name)
    precision = options.precision or speech_recipes()[family.recipe]["precision"]
    if precision not in ENCODER_PRECISIONS:
        raise RecipeError(
            f"--precision: got {precision!r}, expected {', '.join(ENCODER_PRECISIONS)}"
        )
    tokenizer, settings = text_tokenizer_json(source), _generation(source)
    return SpeechPlan(
        record=BakeRecord(
            model=family.name,
            options=options.record("speech model", precision=precision),
            package=None,
        ),
        destination=destination(options, f"{family.name}-{precision}"),
        source=source,
        architecture=SPEECH[family.architecture],
        config=family.config,
        precision=precision,
        tokenizer=tokenizer,
        tokens=special_tokens(tokenizer, settings, family.config.vocab_size, family.config.states),
        alignment_heads=alignment_heads(settings, family.config.layers, family.config.heads),
    )


def _generation(source: WeightSource) -> dict[str, Any]:
    """config.json, and what generation_config.json says in its place; raises BadFile."""
    settings = dict(source.metadata())
    if source.folder is not None and (path := source.folder / GENERATION_CONFIG).exists():
        settings |= read_json(path)
    return settings


def traced_speech(manifest: SpeechManifest) -> ArraysProgram:
    """The program of a bundle, traced again; raises ConfigError."""
    architecture = SPEECH[manifest.architecture]
    options = SpeechOptions(
        precision=manifest.precision,
        prefill=manifest.prefill,
        alignment_heads=manifest.alignment_heads,
    )
    return architecture.program(architecture.from_manifest(manifest.config), options)


def special_tokens(
    text: str, metadata: Mapping[str, Any], vocab_size: int, states: int
) -> SpeechTokens:
    """The special tokens, by the names that tokenizer.json gives them, and the suppressed ids.

    Raises TokenizerError or ConfigError.
    """
    library = tokenizer_json.build(tokenizer_json.parse(text))

    def found(*names: str) -> int:
        ids = [token for name in names if (token := library.token_to_id(name)) is not None]
        if not ids or ids[0] >= vocab_size:
            raise TokenizerError(
                f"{TOKENIZER}: the token {names[0]} is missing; this is not a tokenizer of Whisper"
            )
        return ids[0]

    start, translate = found("<|startoftranscript|>"), library.token_to_id("<|translate|>")
    no_timestamps = found("<|notimestamps|>")
    if no_timestamps + states + 1 >= vocab_size:  # a time for each state, and the end
        raise TokenizerError(f"{TOKENIZER}: {vocab_size} ids have no room for {states + 1} times")
    tokens = library.get_vocab(with_added_tokens=True)
    matches = {match[1]: tokens[name] for name in tokens if (match := _LANGUAGE.fullmatch(name))}
    # A model of English alone has the other tokens as well, but was not trained with them.
    speaks_others = metadata.get("is_multilingual", vocab_size != _ENGLISH_VOCABULARY)
    languages = dict(sorted(matches.items(), key=lambda item: item[1])) if speaks_others else {}
    return SpeechTokens(
        end=found("<|endoftext|>"),
        start=start,
        languages=languages,
        translate=translate if speaks_others else None,
        transcribe=found("<|transcribe|>") if speaks_others else None,
        previous=found("<|startofprev|>"),
        no_speech=found("<|nospeech|>", "<|nocaptions|>"),
        no_timestamps=no_timestamps,
        suppressed=_suppressed(metadata, vocab_size),
    )


# Of the published models of English alone; the others have 51865 or 51866 ids.
_ENGLISH_VOCABULARY = 51864


def _suppressed(metadata: Mapping[str, Any], vocab_size: int) -> tuple[int, ...]:
    """The ids that are never sampled; raises ConfigError."""
    values = metadata.get("suppress_tokens") or []
    if not isinstance(values, list) or not all(
        type(value) is int and -1 <= value < vocab_size for value in values
    ):
        raise ConfigError(f"suppress_tokens: got {values!r:.80}, expected a list of token ids")
    return tuple(value for value in values if value >= 0)


def alignment_heads(
    metadata: Mapping[str, Any], layers: int, heads: int
) -> tuple[tuple[int, int], ...]:
    """Layer and head of the cross attentions that follow the sound, in order.

    By default all of the upper half of the layers, as in OpenAI's Whisper. Raises ConfigError.
    """
    values = metadata.get("alignment_heads")
    if values is None:
        values = [[layer, head] for layer in range(layers // 2, layers) for head in range(heads)]
    if not isinstance(values, list) or not all(
        isinstance(pair, list)
        and [type(value) for value in pair] == [int, int]
        and 0 <= pair[0] < layers
        and 0 <= pair[1] < heads
        for pair in values
    ):
        raise ConfigError(
            f"alignment_heads: got {values!r:.80}, expected pairs of a layer below {layers} and a "
            f"head below {heads}"
        )
    return tuple(sorted({(layer, head) for layer, head in values}))
