"""adapter_config.json: what it says of an adapter, and which options are supported."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models import strict_json, text_files

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG = "adapter_config.json"
# Options of PEFT that change what an adapter computes, and the values that are supported.
_SUPPORTED: Mapping[str, tuple[object, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "lora_bias": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": (None, {}),
    "alpha_pattern": (None, {}),
    "alora_invocation_tokens": (None,),
    "target_parameters": (None, []),
    "layer_replication": (None,),
    "use_qalora": (False, None),
    "use_bdlora": (None, False),
    "arrow_config": (None,),
}


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
        fields = strict_json.parse(text_files.decode(data))
    except ValueError as error:
        raise BadAdapter(f"cannot read {where}: {error}") from error
    if not isinstance(fields, dict):
        raise BadAdapter(f"{where} contains {type(fields).__name__}, expected a JSON object")
    for key, supported in _SUPPORTED.items():
        if fields.get(key, supported[0]) not in supported:
            raise BadAdapter(f"{where}: {key}: got {fields[key]!r:.80}, expected {supported[0]!r}")
    rank, alpha = fields.get("r"), fields.get("lora_alpha")
    if type(rank) is not int or rank < 1:
        raise BadAdapter(f"{where}: r: got {rank!r:.80}, expected a rank of at least 1")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool):
        raise BadAdapter(f"{where}: lora_alpha: got {alpha!r:.80}, expected a number")
    return AdapterSettings(
        rank=rank, alpha=float(alpha), projections=(), rslora=fields.get("use_rslora") is True
    )
