"""A mixture of experts in place of an MLP (Shazeer et al., 2017).

In shape comments `N` is sequences x tokens, `E` the hidden width, `X` experts, `C` those that a
token goes through.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.layers import MLP
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

    # (rows (M / C, E), the C experts of each, i32 (M,)) -> (M, E)
    RoutedMLP: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class ExpertsConfig(DecoderConfig):
    """The shape of a decoder with experts, and its router; `ffn` is the width of other MLPs.

    experts           X
    experts_per_token C
    expert_ffn        the width between the matrices of an expert
    routed            whether each layer has experts
    scores            softmax or sigmoid of all experts' logits, or the softmax of the C largest
                      logits
    choice_bias       whether a number for each expert is added to its score for the choice alone
    groups            equal groups of experts; the experts of a token are in some of them, which the
                      scores for the choice choose: see `f.in_best_groups`
    groups_per_token  how many
    normalized        whether the scores of a token's experts are divided by their sum
    sum_offset        is added to that sum
    min_sum           the smallest sum that divides
    factor            multiplies the scores
    shared_ffn        the width of an MLP that reads every token too; None: there is none
    shared_gate       whether a number for each token, of 0 to 1, multiplies what that MLP gives
    expert_bias       whether the router and the matrices of experts add a bias
    """

    by_layer = (*DecoderConfig.by_layer, "routed")

    experts: int
    experts_per_token: int
    expert_ffn: int
    routed: tuple[bool, ...]
    scores: str = f.SOFTMAX
    choice_bias: bool = False
    groups: int = 1
    groups_per_token: int = 1
    normalized: bool
    sum_offset: float | None = None
    min_sum: float | None = None
    factor: float = 1.0
    shared_ffn: int | None = None
    shared_gate: bool = False
    expert_bias: bool = False

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts_per_token > self.experts:
            raise ConfigError(
                f"experts_per_token: got {self.experts_per_token}, expected at most the "
                f"{self.experts} experts"
            )
        if self.groups > 1:
            self._require_groups()
        if self.scores not in f.SCORES:
            raise ConfigError(f"scores: got {self.scores!r:.80}, supported: {', '.join(f.SCORES)}")

    def _require_groups(self) -> None:
        """Raise ConfigError for groups that experts cannot be chosen from."""
        size, remainder = divmod(self.experts, self.groups)
        if remainder or size < 2:
            raise ConfigError(
                f"groups of experts: got {self.groups}, expected equal groups of at least 2 of "
                f"{self.experts} experts"
            )
        least = -(-self.experts_per_token // size)
        if not least <= self.groups_per_token <= self.groups:
            raise ConfigError(
                f"groups of experts of a token: got {self.groups_per_token}, expected {least} to "
                f"{self.groups}, for {self.experts_per_token} experts"
            )


class Experts(nn.Module):
    """The MLP of each expert, with its matrices in one parameter for all experts."""

    def __init__(
        self, config: ExpertsConfig, activation: Callable[[Tensor], Tensor] = f.silu
    ) -> None:
        self.activation = activation
        count, hidden, width = config.experts, config.hidden, config.expert_ffn
        bias = config.expert_bias
        self.gate_proj = nn.RoutedLinear(count, hidden, width, bias=bias)
        self.up_proj = nn.RoutedLinear(count, hidden, width, bias=bias)
        self.down_proj = nn.RoutedLinear(count, width, hidden, bias=bias)

    def __call__(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Rows (M / C, E) through the C experts of each, i32 (M,) -> (M, E)."""
        gated = self.gated(self.gate_proj(x, chosen), self.up_proj(x, chosen))
        return self.down_proj(gated, chosen)

    def gated(self, gate: Tensor, up: Tensor) -> Tensor:
        """The inputs of the last matrix, from the results of the first two."""
        return self.activation(gate) * up


class Choice(nn.Module):
    """A bias (X,) of the scores that choose experts."""

    def __init__(self, experts: int) -> None:
        self.bias = nn.parameter(experts, dtype=DType.F32)


class Gate(nn.Module):
    """Numbers of 0 to 1 that multiply rows: the sigmoid of a product with a vector (E,)."""

    def __init__(self, hidden: int) -> None:
        self.weight = nn.parameter(hidden, dtype=DType.F32)

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """The rows y (N, E) times the gates of x (N, E)."""
        row = ops.reshape(self.weight, shape=(1, x.shape[1]))
        gates = f.sigmoid(f.matmul_transposed(x, row, dtype=x.dtype))
        return y * f.along_axes(f.flatten(gates), y, (1,))


class MixtureOfExperts(nn.Module):
    """The sum of a token's experts, each times its factor, and of the shared MLP."""

    def __init__(
        self,
        config: ExpertsConfig,
        experts: RoutedMLP | None = None,
        shared: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`experts` are `Experts(config)`, and the shared MLP is `MLP`, unless given."""
        self.config = config
        self.gate = nn.Linear(config.hidden, config.experts, bias=config.expert_bias)
        self.choice = Choice(config.experts) if config.choice_bias else None
        self.experts = experts or Experts(config)
        if shared is None and config.shared_ffn is not None:
            shared = MLP(replace(config, ffn=config.shared_ffn))
        self.shared_experts = shared
        self.shared_gate = Gate(config.hidden) if config.shared_gate else None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        mixed = mixture(x, self.experts, *self.routes(x))
        if self.shared_experts is None:
            return mixed
        # Fused with the sum over experts, the order of this one would depend on the tokens.
        mixed, shared = ops.barrier(mixed), self.shared_experts(x)
        return mixed + (shared if self.shared_gate is None else self.shared_gate(x, shared))

    def routes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, E) -> the factors of each token's experts f32 (N, C), and the experts i32 (N, C)."""
        config = self.config
        # The compiler rejects the comparisons of `top_indices` in the dispatch of a product
        # (`large_vector_sizes` in docs/iree-reports.md).
        logits = ops.barrier(self.logits(x))
        # A softmax and a sigmoid keep the order, unless logits differ so much that scores are
        # equal. Of equal scores, torch.topk takes any.
        ranked = logits
        if self.choice is not None:
            scores = f.sigmoid(logits) if config.scores == f.SIGMOID else f.softmax(logits)
            ranked = scores + f.along_axes(self.choice.bias, scores, (0,))
        if config.groups > 1:
            ranked = f.in_best_groups(ranked, groups=config.groups, count=config.groups_per_token)
        chosen = f.top_indices(ranked, count=config.experts_per_token)
        factors = f.expert_factors(
            logits,
            chosen,
            scores=config.scores,
            normalized=config.normalized,
            sum_offset=config.sum_offset or 0.0,
            min_sum=config.min_sum or 0.0,
            factor=config.factor,
        )
        return factors, chosen

    def logits(self, x: Tensor) -> Tensor:
        """(N, E) -> the logits of the experts (N, X)."""
        logits = f.router_logits(x, self.gate.weight)
        bias = self.gate.bias
        return logits if bias is None else logits + f.along_axes(bias, logits, (0,))


def mixture(x: Tensor, experts: RoutedMLP, factors: Tensor, chosen: Tensor) -> Tensor:
    """The sum of what C experts give for each row of x (N, E), times their factors (N, C)."""
    return f.expert_sum(experts(x, f.flatten(chosen)), factors)


def feed_forward(config: ExpertsConfig, layer: int) -> Callable[[Tensor], Tensor]:
    """The experts of a layer, or its MLP."""
    return MixtureOfExperts(config) if config.routed[layer] else MLP(config)


def after_dense_layers(dense: int, layers: int) -> tuple[bool, ...]:
    """`routed` of a model whose first layers have no experts."""
    return tuple(layer >= dense for layer in range(layers))


def experts_from_config_json(
    data: ConfigJson, fields: Mapping[str, Any], *, width: str = "moe_intermediate_size"
) -> dict[str, Any]:
    """The fields of `ExpertsConfig` except `windows`; `fields` has the fields of `DecoderConfig`.

    The key `width` has the width between the matrices of an expert. Raises ConfigError.
    """
    data.ignore("output_router_logits", "router_aux_loss_coef")
    dense = data.counts("mlp_only_layers", default=())
    step = data.size("decoder_sparse_step", default=1)
    renamed = data.size("num_local_experts", default=None)  # as transformers 5 writes it
    return {
        **fields,
        "experts": renamed or data.size("num_experts"),
        "experts_per_token": data.size("num_experts_per_tok"),
        "expert_ffn": data.size(width),
        "routed": tuple(i not in dense and (i + 1) % step == 0 for i in range(fields["layers"])),
        "normalized": data.flag("norm_topk_prob", default=False),
    }


def experts_from_gguf(data: GgufMetadata, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ExpertsConfig` except the router's; `fields` is for `DecoderConfig`.

    By default an expert is as wide as an MLP. Raises ConfigError.
    """
    dense = data.count("leading_dense_block_count", default=0)
    data.ignore("expert_shared_count")  # the width of the shared MLP says it
    step = data.size("interleave_moe_layer_step", default=1)
    return {
        **fields,
        "experts": data.size("expert_count"),
        "experts_per_token": data.size("expert_used_count"),
        "expert_ffn": data.size("expert_feed_forward_length", default=fields["ffn"]),
        "shared_ffn": data.size("expert_shared_feed_forward_length", default=None),
        "routed": tuple(i >= dense and (i + 1) % step == 0 for i in range(fields["layers"])),
    }


_PARTS = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
EXPERT_GGUF_NAMES: Mapping[str, str] = {
    **GGUF_NAMES,
    "mlp.gate": "ffn_gate_inp",
    "mlp.choice": "exp_probs_b",
    **{f"mlp.experts.{projection}": f"ffn_{name}_exps" for projection, name in _PARTS.items()},
    **{f"mlp.shared_experts.{part}": f"ffn_{name}_shexp" for part, name in _PARTS.items()},
    "mlp.shared_gate": "ffn_gate_inp_shexp",
}
# Files have a tensor for each expert in a folder, and one for all of them in GGUF.
EXPERT_FOLDER_NAMES: Mapping[str, str] = {
    f"mlp.experts.{projection}": f"mlp.experts.*.{projection}" for projection in _PARTS
}
# Or a tensor for all of them in a folder too, with the rows of gates before the rows they multiply.
STACKED_EXPERTS: Mapping[str, str] = {
    "mlp.experts.gate_up_proj.weight": "mlp.experts.gate_up_proj",
    "mlp.experts.all_down_proj.weight": "mlp.experts.down_proj",
}
JOINED_EXPERTS: Mapping[str, tuple[str, ...]] = {
    "mlp.experts.gate_up_proj": ("mlp.experts.gate_proj", "mlp.experts.up_proj"),
    "mlp.experts.all_down_proj": ("mlp.experts.down_proj",),
}
EXPERT_NAMES = TensorNames(gguf=EXPERT_GGUF_NAMES, folder=EXPERT_FOLDER_NAMES)
