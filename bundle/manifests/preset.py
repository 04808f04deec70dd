"""The settings of requests that a Modelfile of Ollama puts beside the weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hearthd.bundle.bundle_errors import NotABundle
from hearthd.bundle.file_records import MANIFEST
from hearthd.bundle.provenance import OMITTED

__all__ = ["MAX_STOPS", "MAX_STOP_LENGTH", "NO_PRESET", "Preset", "PresetMessage"]

MAX_STOPS, MAX_STOP_LENGTH = 16, 256  # as in requests


@dataclass(frozen=True, kw_only=True)
class PresetMessage:
    """A message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Settings that hold where a request does not set them.

    sampling    sampling parameters, by the names of a request's fields
    stop        strings that end an answer
    max_tokens  maximum length of an answer
    context     positions that a prompt and its answer take at most
    system      system message of conversations that have none
    messages    the first messages of every conversation
    license     text of the license, for people
    """

    sampling: dict[str, int | float] = field(default_factory=dict, metadata=OMITTED)
    stop: tuple[str, ...] = field(default=(), metadata=OMITTED)
    seed: int | None = field(default=None, metadata=OMITTED)
    max_tokens: int | None = field(default=None, metadata=OMITTED)
    context: int | None = field(default=None, metadata=OMITTED)
    system: str = field(default="", metadata=OMITTED)
    messages: tuple[PresetMessage, ...] = field(default=(), metadata=OMITTED)
    license: str = field(default="", metadata=OMITTED)

    def __post_init__(self) -> None:
        """Raises NotABundle for a value that a request could not have."""
        for name, size in {"max_tokens": self.max_tokens, "context": self.context}.items():
            if size is not None and size < 1:
                raise NotABundle(f"{MANIFEST}.preset.{name}: got {size}, expected at least 1")
        if len(self.stop) > MAX_STOPS or not all(
            0 < len(text) <= MAX_STOP_LENGTH for text in self.stop
        ):
            raise NotABundle(
                f"{MANIFEST}.preset.stop: got {self.stop!r:.80}, expected at most {MAX_STOPS} "
                f"strings of 1 to {MAX_STOP_LENGTH} characters"
            )

    @property
    def limits(self) -> dict[str, Any]:
        """The seed and what ends an answer, by the names of Ollama's options."""
        limits = {
            "seed": self.seed,
            "stop": [*self.stop] or None,
            "num_predict": self.max_tokens,
            "num_ctx": self.context,
        }
        return {name: value for name, value in limits.items() if value is not None}


NO_PRESET = Preset()
