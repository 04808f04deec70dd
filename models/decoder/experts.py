"""A mixture of experts in the place of an MLP (Shazeer et al., 2017).

In shape comments `N` is sequences x tokens, `E` the hidden width, `X` experts, `C` those that a
token goes through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class ExpertsConfig(DecoderConfig):
    """The shape of a decoder with experts; `ffn` is the width of its layers without.

    experts           X
    experts_per_token C
    expert_ffn        the width between the matrices of an expert
    routed            whether each layer has experts
    normalized        whether the factors of a token's experts are divided by their sum
    """

    by_layer = (*DecoderConfig.by_layer, "routed")

    experts: int
    experts_per_token: int
    expert_ffn: int
    routed: tuple[bool, ...]
    normalized: bool

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts_per_token > self.experts:
            raise ConfigError(
                f"experts_per_token: got {self.experts_per_token}, expected at most the "
                f"{self.experts} experts"
            )


class Experts(nn.Module):
    """The MLP of each expert, with its matrices in one parameter for all experts."""

    def __init__(self, config: ExpertsConfig) -> None:
        count, hidden, width = config.experts, config.hidden, config.expert_ffn
        self.gate_proj = nn.RoutedLinear(count, hidden, width)
        self.up_proj = nn.RoutedLinear(count, hidden, width)
        self.down_proj = nn.RoutedLinear(count, width, hidden)

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Rows (M, E) through the expert of each, i32 (M,) -> (M, E)."""
        gate = f.silu(self.gate_proj(x, chosen))
        return self.down_proj(gate * self.up_proj(x, chosen), chosen)


class MixtureOfExperts(nn.Module):
    """The sum of what a token's experts give, each times the probability of the expert."""

    def __init__(self, config: ExpertsConfig) -> None:
        self.config = config
        self.gate = nn.Linear(config.hidden, config.experts)
        self.experts = Experts(config)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        rows, hidden = x.shape
        count = self.config.experts_per_token
        factors, chosen = f.top_k(f.softmax(self.scores(x)), count)
        if self.config.normalized:
            factors = factors / f.along_axes(ops.reduce_sum(factors, axes=(1,)), factors, (1,))
        routed = (rows, count, hidden)
        repeated = f.flatten(ops.broadcast(x, shape=routed, axes=(0, 2)), last=1)
        y = ops.reshape(self.experts(repeated, f.flatten(chosen)), shape=routed)
        return ops.reduce_sum(y * f.along_axes(factors, y, (2,)), axes=(1,))

    def scores(self, x: Tensor) -> Tensor:
        """(N, E) -> the logits of the experts (N, X).

        The matrix is small and stays f32: a rounding would send tokens to other experts.
        """
        return f.matmul_transposed(x, self.gate.weight, dtype=x.dtype)


def experts_from_config_json(data: ConfigJson, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ExpertsConfig` but `windows`, by those of `DecoderConfig`.

    Raises ConfigError.
    """
    data.ignore("output_router_logits", "router_aux_loss_coef")
    dense = data.counts("mlp_only_layers", default=())
    step = data.size("decoder_sparse_step", default=1)
    renamed = data.size("num_local_experts", default=None)  # as transformers 5 writes it
    return {
        **fields,
        "experts": renamed or data.size("num_experts"),
        "experts_per_token": data.size("num_experts_per_tok"),
        "expert_ffn": data.size("moe_intermediate_size"),
        "routed": tuple(i not in dense and (i + 1) % step == 0 for i in range(fields["layers"])),
        "normalized": data.flag("norm_topk_prob", default=False),
    }


def experts_from_gguf(data: GgufMetadata, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same: in llama.cpp every layer has experts, and factors are normalized."""
    return {
        **fields,
        "experts": data.size("expert_count"),
        "experts_per_token": data.size("expert_used_count"),
        "expert_ffn": data.size("expert_feed_forward_length"),
        "routed": (True,) * fields["layers"],
        "normalized": True,
    }


_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
# Files have a tensor for each expert in a folder, and one for all of them in GGUF.
EXPERT_NAMES = TensorNames(
    gguf={
        **GGUF_NAMES,
        "mlp.gate": "ffn_gate_inp",
        **{f"mlp.experts.{projection}": f"ffn_{name}_exps" for projection, name in _PARTS.items()},
    },
    folder={f"mlp.experts.{projection}": f"mlp.experts.*.{projection}" for projection in _PARTS},
)
