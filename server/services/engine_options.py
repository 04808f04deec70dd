"""The options of the engine of a language model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearthd.bundle import PublicKey
    from hearthd.text.overflow import Overflow

Speculation: TypeAlias = Literal["auto", "lookup", "off"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Limits and modes of the engine; the settings of `hearth serve` with the same names.

    queue_limit   requests that may wait for a slot; one more is rejected
    cache_ram     size of the prefix cache in memory, in bytes; 0 disables it; None for one context
    cache_dir     folder that keeps the prefix cache across restarts; None for no folder
    cache_disk    size of the prefix cache in that folder, in bytes
    speculation   how tokens are drafted: "lookup" in the text so far, "auto" also by the bundle's
                  drafter, or "off"
    exact_logits  compute every logit exactly for every request
    max_memory    memory that serving may take, in bytes; None for the bundle's or system's limit
    context       positions of each slot; None for as many as the bundle and the memory allow
    overflow      what becomes of a prompt that is too long, as in Completer
    fetch_images  download images at the addresses in requests
    models        models of this process, which share its memory
    lora          folders of LoRA adapters that are loaded with the bundle, by name
    lora_dir      folder of the adapters that requests may load; None for none
    sampling      defaults of requests: sampling parameters, in place of the bundle's
    keys          public keys: one of them must have signed the bundle and every adapter; none: no
                  signature is checked
    """

    queue_limit: int = 64
    cache_ram: int | None = None
    cache_dir: Path | None = None
    cache_disk: int = 2**30
    speculation: Speculation = "auto"
    exact_logits: bool = False
    max_memory: int | None = None
    context: int | None = None
    overflow: Overflow = "error"
    fetch_images: bool = False
    models: int = 1
    lora: Mapping[str, Path] = field(default_factory=dict)
    lora_dir: Path | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    keys: tuple[PublicKey, ...] = ()


DEFAULT_OPTIONS = EngineOptions()
