"""Granite 4 H with experts: each block has Granite 3's experts and a shared MLP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.experts import MixtureOfExperts, experts_from_gguf
from hearthd.models.dsl.functions.routing import CHOSEN
from hearthd.models.families import granite, granitehybrid, granitemoe
from hearthd.models.families.granitehybrid import GraniteHybrid

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Config(granitehybrid.Config, granitemoe.Config):
    """The shape of a model."""

    by_layer = (*granitemoe.Config.by_layer, "attends")


class GraniteHybridMoe(GraniteHybrid):
    """Granite 4 H's blocks with experts."""

    @override
    def feed_forward(self, config: granitehybrid.Config) -> Callable[[Tensor], Tensor]:
        assert isinstance(config, Config), "experts need their configuration"
        return MixtureOfExperts(config)


_OF_EXPERTS, _OF_MAMBA = granitemoe.ARCHITECTURE.tensors, granitehybrid.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="granitehybrid-moe",
    config=Config,
    model_types=(granite.GRANITE_4,),
    gguf_name="granitehybrid",
    read_config_json=lambda data: Config(
        **granitemoe.with_experts(data, granitehybrid.fields_from_hugging_face(data))
    ),
    read_gguf=lambda data: Config(
        **experts_from_gguf(data, granitehybrid.fields_from_gguf(data)),
        scores=CHOSEN,
        normalized=True,
    ),
    model=GraniteHybridMoe,
    tensors=replace(
        _OF_EXPERTS,
        gguf={**_OF_MAMBA.gguf, **_OF_EXPERTS.gguf},
        folder={**_OF_MAMBA.folder, **_OF_EXPERTS.folder},
        logarithms=_OF_MAMBA.logarithms,
    ),
)
