"""The settings in adapter_config.json, and the options that are supported."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.bundle.parsing import strict_json, text_files

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG = "adapter_config.json"
# The options of PEFT 0.21 that change what an adapter computes, or the weights of the model that it
# is added to, and the values that are supported.
_SUPPORTED: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_rslora": (False, True, None),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "alora_invocation_tokens": (None, []),
    "trainable_token_indices": (None, [], {}),
    "target_parameters": (None, []),
    "layer_replication": (None, []),
    "megatron_config": (None,),
    "use_qalora": (False, None),
    "use_bdlora": (None, False),
    "arrow_config": (None,),
    "kasa_config": (None,),
    "monteclora_config": (None,),
}
_INITIALIZATION = "init_lora_weights"
# Those that leave the weights of the model as they are. PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA
# subtract the first B A from them.
_INITIALIZATIONS = (True, False, None, "gaussian", "eva", "orthogonal", "mica")
# Options that say how an adapter was trained, or which modules have one: the tensors say that too.
_INERT = frozenset(
    "auto_mapping base_model_name_or_path corda_config ensure_weight_tying eva_config "
    "exclude_modules inference_mode init_lora_weights layers_pattern layers_to_transform "
    "loftq_config lora_alpha lora_dropout lora_ga_config megatron_core peft_version "
    "qalora_group_size r revision runtime_config target_modules task_type velora_config".split()
)


class BadAdapter(Exception):
    """An adapter cannot be read, or is not for this model; the message names the file."""


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """The settings of an adapter, as adapter_config.json has them.

    scale        of B A: alpha / rank, or with `rslora` alpha / sqrt(rank)
    projections  the matrices, by the last part of their modules' names
    base         where the weights of the model came from; it is only recorded
    """

    rank: int
    alpha: float
    projections: tuple[str, ...]
    dropout: float = 0.0
    rslora: bool = False
    base: str = ""

    @property
    def scale(self) -> float:
        """The factor of B A."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)

    def to_json(self) -> str:
        """The text of adapter_config.json."""
        fields = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.base,
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": self.dropout,
            "target_modules": list(self.projections),
            "bias": "none",
            "fan_in_fan_out": False,
            "use_rslora": self.rslora,
            "inference_mode": True,
        }
        return json.dumps(fields, indent=2) + "\n"


def parse_settings(data: bytes, where: object) -> AdapterSettings:
    """The settings in the bytes of a file `where`; raises BadAdapter."""
    try:
        fields = strict_json.parse(text_files.decode(data), keep_unusable=True)
    except ValueError as error:
        raise BadAdapter(f"cannot read {where}: {error}") from error
    if not isinstance(fields, dict):
        raise BadAdapter(f"{where} contains {type(fields).__name__}, expected a JSON object")
    _require_supported(fields, where)
    rank, alpha = fields.get("r"), fields.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise BadAdapter(f"{where}: r: got {rank!r:.80}, expected a rank of at least 1")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise BadAdapter(f"{where}: lora_alpha: got {alpha!r:.80}, expected a number")
    return AdapterSettings(
        rank=rank, alpha=float(alpha), projections=(), rslora=fields.get("use_rslora") is True
    )


def _require_supported(fields: Mapping[str, object], where: object) -> None:
    """Raise BadAdapter for an option with which an adapter computes something else."""
    for key, supported in _SUPPORTED.items():
        value = fields.get(key, supported[0])
        if not any(value == allowed and type(value) is type(allowed) for allowed in supported):
            raise BadAdapter(f"{where}: {key}: got {value!r:.80}, expected {supported[0]!r}")
    initialization = fields.get(_INITIALIZATION)
    if initialization not in _INITIALIZATIONS:
        raise BadAdapter(
            f"{where}: {_INITIALIZATION}: got {initialization!r:.80}, which changes the weights of "
            f"the model, expected one of {', '.join(map(repr, _INITIALIZATIONS))}; save the "
            "adapter with PEFT's path_initial_model_for_weight_conversion"
        )
    unknown = sorted(
        key
        for key in fields.keys() - _SUPPORTED.keys() - _INERT
        if fields[key] not in (None, False, [], {})
    )
    if unknown:
        raise BadAdapter(
            f"{where}: unknown option {', '.join(unknown):.200}: it may change what the adapter "
            "computes"
        )
