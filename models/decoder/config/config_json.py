"""config.json of a Hugging Face folder. A key that no architecture asks for is refused by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError, require
from hearthd.models.decoder.config import rope_scaling
from hearthd.models.decoder.config.typed_keys import TypedKeys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.models.decoder.config.rope_scaling import Rope

_NAME = "config.json"
# Not of config.json: what the folder's 1_Pooling/config.json says.
POOLING = "1_Pooling/config.json"
# Not of config.json either: how the folder's processor makes pixels of images.
PROCESSOR = "preprocessor_config.json"
# Nor this: the object in the folder's processor_config.json that says how sound is read.
FEATURE_EXTRACTOR = "feature_extractor"
# What the tools that quantize folders write. The weights are read by it: see
# baker/weights/quantized_folder.
QUANTIZED = ("quantization_config", "compression_config", "quantization")
# Where ModelOpt writes it, at first in this file alone.
MODELOPT = "hf_quant_config.json"
# The object in this file: the tokens whose logits score a pair.
LOGIT_SCORE = "1_LogitScore/config.json"
# The state of transformers' own object.
_PRIVATE = "_"
# Keys that change nothing in inference, or that other files are the source of.
_IGNORED = frozenset((PROCESSOR, FEATURE_EXTRACTOR, *QUANTIZED)) | frozenset(
    "architectures attention_dropout auto_map "
    "bos_token_id cache_implementation dtype embd_pdrop eos_token_id initializer_range "
    "is_llama_config model_name model_type pad_token_id pretraining_tp resid_pdrop torch_dtype "
    "sep_token_id transformers.js_config transformers_version unk_token_id unsloth_fixed "
    "unsloth_version use_cache".split()
)
# Of models that also read images or sound, beside the text model.
_TOWERS = frozenset(
    "audio_config audio_soft_tokens_per_image audio_token_id boa_token_id boi_token_id "
    "boi_token_index eoa_token_id "
    "eoa_token_index eoi_token_id eoi_token_index image_token_id image_token_index "
    "language_model_only "
    "mm_tokens_per_image multimodal_projector_bias projector_hidden_act spatial_merge_size "
    "video_token_id vision_config vision_end_token_id vision_feature_layer "
    "vision_feature_select_strategy vision_soft_tokens_per_image vision_start_token_id".split()
)


class ConfigJson(TypedKeys):
    """Reads the keys of config.json, or of an object in it. null counts as a missing key.

    data   the object
    where  how errors name the object
    """

    def __init__(self, data: Mapping[str, Any], where: str = _NAME) -> None:
        super().__init__(data, prefix=f"{where}: ")
        self._where = where
        self._defaults: dict[str, Any] = {}
        self._sections: dict[str, ConfigJson] = {}

    def assume(self, **defaults: Any) -> None:
        """Say what missing keys mean, instead of the usual defaults."""
        self._defaults |= defaults

    def rename(self, **later: str) -> None:
        """Read keys of older files under their later names."""
        older = {new: self._data[old] for old, new in later.items() if old in self._data}
        said = {key: value for key, value in self._data.items() if value is not None}
        self._data = {**older, **said}
        self.ignore(*later)

    def has(self, key: str) -> bool:
        """Whether the file has a key, and it is not null."""
        return self._data.get(key) is not None

    def unlimited(self, key: str) -> None:
        """Raise ConfigError unless a range is missing, or from 0 to infinity."""
        limits = self._value(key, list, {"default": [0, math.inf]})
        if limits not in ([0, math.inf], [0, {"__float__": "Infinity"}]):
            raise ConfigError(f"{self._prefix}{key}: got {limits!r:.80}, supported: 0 to infinity")

    def numbers(self, key: str) -> list[float]:
        """A list of numbers above zero."""
        return [float(value) for value in self._list(key, float)]

    def pairs(self, key: str, *, default: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """A list of pairs of integers from 1."""
        if not self.has(key):
            self.ignore(key)
            return tuple(default)
        pairs = self._list(key, list)
        for pair in pairs:
            for value in pair:
                require(value, int, f"{self._prefix}{key}")
            if len(pair) != 2:
                raise ConfigError(f"{self._prefix}{key}: got {pair!r:.80}, expected pairs")
        return tuple((first, second) for first, second in pairs)

    def entries(self, key: str, *, default: int) -> int:
        """How many keys an object has; their names and values do not matter."""
        value = self._value(key, dict, {"default": None})
        return default if value is None else len(value)

    def size_in_each(self, key: str, name: str, *, default: int | None = None) -> int:
        """An integer from 1 that every object in an object has, and that is the same.

        An object without it has the default, as all have if there is none.
        """
        sizes = {
            section.size(name) if default is None else section.size(name, default=default)
            for section in self.sections(key)
        } or ({default} if default else set())
        if len(sizes) != 1:
            raise ConfigError(f"{self._prefix}{key}: {name}: got {sorted(sizes)}, supported is one")
        return sizes.pop()

    def sections(self, key: str) -> list[ConfigJson]:
        """The objects in an object."""
        objects = self.section(key)
        return [objects.section(name) for name in objects._data]

    def objects(self, key: str) -> list[ConfigJson]:
        """The objects in a list."""
        found = {
            f"{key}[{index}]": ConfigJson(value, where=f"{self._prefix}{key}[{index}]")
            for index, value in enumerate(self._list(key, dict))
        }
        self._sections |= found
        return [*found.values()]

    def section(self, key: str) -> ConfigJson:
        """An object in this one."""
        value = self._value(key, dict, {})
        return self._sections.setdefault(key, ConfigJson(value, where=f"{self._prefix}{key}"))

    def text_section(self, *, tied: bool | None = True) -> ConfigJson:
        """The part for the text model: one level down if there is a tower for images or sound.

        tied  the only supported `tie_word_embeddings` of the whole model; None: the text model
              has its own
        """
        if not self.has("text_config"):
            return self
        self.ignore(*_TOWERS)
        section = self.section("text_config")
        if tied is None:
            section.assume(tie_word_embeddings=self.flag("tie_word_embeddings", default=True))
        else:
            self.fixed(tie_word_embeddings=tied)
        return section

    def fixed(self, **supported: Any) -> None:
        """Raise ConfigError where a key is there and has another than the only supported value."""
        for key, value in supported.items():
            self._read.add(key)
            got = self._data.get(key)
            if got is not None and (got != value or type(got) is not type(value)):
                raise ConfigError(f"{self._prefix}{key} = {got!r:.80}, supported is {value!r}")

    def one_of(self, key: str, supported: Sequence[Any]) -> None:
        """Raise ConfigError where a key is there and has none of some values."""
        self._read.add(key)
        got = self._data.get(key)
        if got is not None and not any(got == value for value in supported):
            raise ConfigError(
                f"{self._prefix}{key} = {got!r:.80}, supported: {', '.join(map(repr, supported))}"
            )

    def encoder_pooling(self) -> str:
        """The vector of a text, or `rank`: of a model with a head for one label, the score.

        Raises ConfigError for another number of labels.
        """
        models = self.texts("architectures", default=())
        labels = self.entries("id2label", default=2)
        self.ignore("label2id", "sbert_ce_default_activation_function", "sentence_transformers")
        if not any(name.endswith("ForSequenceClassification") for name in models):
            return self.text(POOLING, default="mean")
        if labels != 1:
            raise ConfigError(f"{_NAME}: id2label: got {labels} labels, supported is 1, the score")
        return "rank"

    def rope(self, width: int, max_context: int, layer_type: str | None = None) -> Rope:
        """The rotary positions of heads; `width` of their columns turn.

        They are in `rope_parameters`, by layer type if several types of layers have positions, or
        in older files in `rope_theta` and `rope_scaling`.
        """
        return rope_scaling.read(*self.rope_section(layer_type), width, max_context)

    def rope_section(self, layer_type: str | None = None) -> tuple[ConfigJson, float]:
        """The object with the scaling of rotary positions, which may be empty, and the base."""
        self.ignore("rope_theta", "rope_scaling", "rope_parameters")
        if self.has("rope_parameters"):
            section = self.section("rope_parameters")
            section = section.section(layer_type) if layer_type else section
            return section, section.number("rope_theta")
        base = self.number("rope_theta", default=10_000.0)
        if not self.has("rope_scaling"):
            return ConfigJson({}), base
        return self.section("rope_scaling"), base

    def finish(self) -> None:
        """Raise ConfigError for keys that were not asked for, and are not known to be harmless."""
        unread = self._data.keys() - self._read - _IGNORED
        unknown = sorted(key for key in unread if not key.startswith(_PRIVATE))
        if unknown:
            raise ConfigError(
                f"{self._where}: unknown key {', '.join(unknown):.200}: "
                "it may change what the model computes"
            )
        for section in self._sections.values():
            section.finish()

    @override
    def _value(self, key: str, expected_type: type, options: Mapping[str, Any]) -> Any:
        if key in self._defaults:
            options = {"default": self._defaults[key]}
        return super()._value(key, expected_type, options)
