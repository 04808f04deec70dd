"""Every architecture behind one interface. Other modules do not name architectures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from models import gemma3, gemma3_config, llama, llama_config
from models.config import ConfigError, ModelConfig
from models.entry_points import program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from models.entry_points import Decoder
    from models.program import Program, ProgramOptions, StoredTensor

C = TypeVar("C", bound=ModelConfig)
C_contra = TypeVar("C_contra", contravariant=True)


class _FindTensor(Protocol[C_contra]):
    def __call__(
        self, config: C_contra, parameter: str, names: tuple[str, ...], /, *, gguf: bool
    ) -> StoredTensor: ...


@dataclass(frozen=True, kw_only=True)
class Architecture(Generic[C]):
    """An architecture, as the baker uses it; C is its configuration.

    name               as manifests and GGUF files have it
    config             the class of its configurations
    presets            published models by name, as in configs/
    from_gguf          configuration from GGUF metadata and the shapes of the file's tensors
    from_hugging_face  configuration from config.json
    model              the model of a configuration
    stored_tensor      where a part of a parameter lies in a file with these tensor names
    is_other_part      whether a tensor belongs to a part that Hearth does not run

    Both `from_...` raise ConfigError, naming the key that is missing, unknown or unsupported.
    """

    name: str
    config: type[C]
    presets: Mapping[str, C]
    from_gguf: Callable[[Mapping[str, Any], Mapping[str, tuple[int, ...]]], C]
    from_hugging_face: Callable[[Mapping[str, Any]], C]
    model: Callable[[C], Decoder]
    stored_tensor: _FindTensor[C]
    is_other_part: Callable[[str], bool]

    def program(self, config: C, options: ProgramOptions) -> Program:
        """The model's entry points; raises TypeRuleError if the precision is not for this model."""
        return program(self.model(config), options)

    def to_manifest(self, config: C) -> dict[str, Any]:
        """A configuration as a manifest holds it."""
        return asdict(config)

    def from_manifest(self, data: Mapping[str, Any]) -> C:
        """The configuration that a manifest holds; raises ConfigError."""
        try:
            return self.config(**data)
        except TypeError as error:
            raise ConfigError(f"the manifest's config is not of {self.name}: {error}") from error


ARCHITECTURES: Mapping[str, Architecture[Any]] = {
    architecture.name: architecture
    for architecture in (
        Architecture(
            name="gemma3",
            config=gemma3_config.Config,
            presets=gemma3_config.PRESETS,
            from_gguf=gemma3_config.from_gguf,
            from_hugging_face=gemma3_config.from_hugging_face,
            model=gemma3.Gemma3,
            stored_tensor=gemma3.stored_tensor,
            is_other_part=gemma3.is_other_part,
        ),
        Architecture(
            name="llama",
            config=llama_config.Config,
            presets=llama_config.PRESETS,
            from_gguf=llama_config.from_gguf,
            from_hugging_face=llama_config.from_hugging_face,
            model=llama.Llama,
            stored_tensor=llama.stored_tensor,
            is_other_part=llama.is_other_part,
        ),
    )
}
