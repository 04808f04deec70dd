"""A language model whose weights are open: what they are, and the programs that it can have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate
from hearthd.baker.tokenizer.tokenizer_files import SourceTokenizer, read_tokenizer
from hearthd.baker.weights.recommended_sampling import recommended_sampling, suppressed_tokens
from hearthd.baker.weights.source import TokenizerError
from hearthd.bundle import GridInput, ImageInput
from hearthd.models.decoder.tensor_names import DRAFTER_MODULE
from hearthd.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.baker.parameters.parameter_writer import Located
    from hearthd.baker.tokenizer.tokenizer_cache import TokenizerCache
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import SoundInput
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.program import Program, ProgramOptions

# Special tokens of Llama 2 and Llama 3 that no text has.
_PLACEHOLDERS = ("<unk>", "<|reserved_special_token_0|>")


@dataclass(frozen=True)
class OpenedModel:
    """The weights, the architecture and its configuration for the context of the bundle.

    tokenizers  those that were read before, and where new ones are kept; None: neither
    draft       the draft model, whose tensors `source` has too, if there is one
    """

    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    tokenizers: TokenizerCache | None = None
    draft: OpenedModel | None = None

    @cached_property
    def tokenizer(self) -> SourceTokenizer:
        """The tokenizer of the weights; raises a WeightsError."""
        read = read_tokenizer if self.tokenizers is None else self.tokenizers.read
        return read(self.source, vocab_size=self.config.vocab_size)

    @cached_property
    def images(self) -> ImageInput | GridInput | None:
        """How the model reads images, if it does.

        Raises ConfigError, or TokenizerError if the tokenizer lacks a special token of images.
        """
        settings = self.architecture.image_input(self.config, self.source.metadata())
        if isinstance(settings, ImageInput) and settings.is_only_rows:
            settings = self._with_placeholder(settings)
        if settings is not None:
            self._require_tokens(settings.special_tokens, "images")
        return settings

    def _with_placeholder(self, settings: ImageInput) -> ImageInput:
        """Settings whose placeholder is a special token of the vocabulary, if it has any.

        GGUF files with Vicuna's vocabulary have no token for images. Any token that answers and
        texts lack can stand for the rows, since the model does not read it.
        """
        tokenizer = Tokenizer(self.tokenizer.tokenizer, bos=None)
        names = (settings.placeholder, *_PLACEHOLDERS)
        known = next((name for name in names if tokenizer.special_id(name) is not None), names[0])
        return replace(settings, placeholder=known)

    @cached_property
    def sound(self) -> SoundInput | None:
        """How the model reads sound, if it does; raises as `images` does."""
        settings = self.architecture.sound_input(self.config, self.source.metadata())
        if settings is not None:
            self._require_tokens(settings.special_tokens, "sound")
        return settings

    def _require_tokens(self, names: Sequence[str], purpose: str) -> None:
        tokenizer = Tokenizer(self.tokenizer.tokenizer, bos=None)
        for name in names:
            if tokenizer.special_id(name) is None:
                raise TokenizerError(
                    f"the tokenizer has no special token {name!r} for {purpose}; use the "
                    "tokenizer of these weights"
                )

    @property
    def sampling(self) -> dict[str, int | float]:
        """The sampling parameters that the weights recommend."""
        return recommended_sampling(self.source)

    @property
    def suppressed_tokens(self) -> tuple[int, ...]:
        """The ids that the weights say are never sampled."""
        return suppressed_tokens(self.source, self.config.vocab_size)

    def square_images(self) -> ImageInput | None:
        """How the model reads images of one size, if it does."""
        return self.images if isinstance(self.images, ImageInput) else None

    def image_grid(self, options: ProgramOptions) -> GridInput | None:
        """How a program with these options reads images of any size, if it does."""
        if isinstance(self.images, GridInput):
            return self.images.limited(options.image_rows[-1])
        return None

    def keeps_integers(self, precision: str) -> bool:
        """Whether a precision stores some parameters otherwise than its own name says."""
        kept = native.kept_integers(precision, self.source, self.architecture, self.config)
        return bool(kept or (self.draft and self.draft.storages(precision)))

    def storages(self, precision: str) -> dict[str, str]:
        """The parameters that are stored in another way than the precision's."""
        storages = native.storages(precision, self.source, self.architecture, self.config)
        if self.draft is None:
            return storages
        drafted = self.draft.storages(precision).items()
        return storages | {f"{DRAFTER_MODULE}.{name}": storage for name, storage in drafted}

    def stored_in(self, options: ProgramOptions, precision: str) -> ProgramOptions:
        """The options with another precision; raises a WeightsError for a missing tensor."""
        return replace(options, precision=precision, storages=self.storages(precision))

    def program(self, options: ProgramOptions) -> Program:
        """The program with these options.

        Raises TypeRuleError if the precision cannot store a matrix, and BakeError if the model
        cannot be compiled.
        """
        program = self.architecture.program(self.config, options)
        self._refuse_loops(program)
        return program

    def _refuse_loops(self, program: Program) -> None:
        for unfused in program.unfused.values():
            for name, part in unfused.items():
                if part.is_loop:
                    raise BakeError(
                        f"this {self.architecture.name} cannot be compiled: only a kernel can "
                        f"compute {name}, and it does not take these sizes: {part.expected}"
                    )

    def locate(self, program: Program) -> tuple[Located, ...]:
        """The tensors of each weight of a program; raises a WeightsError."""
        return locate(self.source, self.architecture, self.config, program)

    def require_complete(self, program: Program) -> None:
        """Raise a WeightsError that a bake of a program raises before it reads a tensor."""
        self.locate(program)
        _ = self.tokenizer
