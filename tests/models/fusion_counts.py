"""How often each rule of fusion applies in a program of each tiny architecture."""

from __future__ import annotations

from dataclasses import dataclass

from hearthd.models.decoder.experts import ExpertsConfig
from tests.models.tiny_configs import tiny


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often rules apply in one layer.

    norms      the rule for the residual stream, and how often: 0.0 for the last layer alone
    rotations  the rule for rotation; empty if no layer has positions
    products   matrices; `needed` of them give the keys and values of a prefill's last layer
    stacked    whether queries, keys and values are one product because of their heads
    capped     no rule for soft caps: attention stays plain
    gate       the rule for the activation of the feed-forward layer, and how often
    experts    matrices of an expert: 3, or 2 without a gated activation
    by_head    matrices that each head has of its own
    by_gate    matrices that give a number for each head of attention
    gated      whether a gate, whose matrix is in the stack of the heads, multiplies each column
    head       the rule for the output head
    beside     tables of embeddings, and matrices, that each token needs beside the layers'
    """

    norms: tuple[str, int] = ("add_norm", 2)
    rotations: str = "rope"
    products: int = 5
    needed: int = 1
    stacked: bool = True
    capped: bool = False
    gate: tuple[str, int] = ("gated_silu", 1)
    experts: int = 3
    by_head: int = 0
    by_gate: int = 0
    gated: bool = False
    head: str = "two_part_head"
    beside: tuple[int, int] = (1, 0)


NORMED_HEADS = (
    "bailingmoe2", "dots1", "exaone-moe", "glm4moe", "hy_v3", "internvl35", "lfm2", "lfm2moe",
    "lfm2-vl", "lightonocr", "maple", "mellum", "minicpmv45",
    "qwen3", "qwen3vl", "qwen3vl-images", "qwen3moe",
    "qwen3vlmoe", "qwen3vlmoe-images",
)  # fmt: skip
GELU, SQUARE = ("gated_gelu_tanh", 1), ("squared_relu", 1)
# The rules for the recurrences of architectures, and in how many of their first layers one is here.
RECURRENCES = {
    "falcon-h1": ("ssm_scan", 3),
    "granitehybrid": ("ssm_scan", 1),
    "granitehybrid-moe": ("ssm_scan", 1),
    "jamba": ("selective_scan", 1),
    "bailingmoe3": ("channel_delta_rule", 1),
    "kimi-linear": ("channel_delta_rule", 1),
    "mamba": ("selective_scan", 3),
    "mamba2": ("ssm_scan", 3),
    "nemotron_h": ("ssm_scan", 1),
    "nemotron_h_moe": ("ssm_scan", 1),
    "qwen3next": ("gated_delta_rule", 1),
    "qwen35": ("gated_delta_rule", 1),
    "qwen35-images": ("gated_delta_rule", 1),
    "qwen35moe": ("gated_delta_rule", 1),
    "qwen35moe-images": ("gated_delta_rule", 1),
}
# Matrices of a recurrent layer besides the first one and the last one.
_OF_RECURRENCE = {"channel_delta_rule": 5, "gated_delta_rule": 3, "selective_scan": 2}
ROUTER = ("router_logits", "top_indices", "expert_factors", "expert_sum")
OUTPUT_NORMS = {"ssm_scan": "grouped_rms_norm", "gated_delta_rule": "gated_norm"}
COUNTS = {
    "afmoe": Counts(norms=("residual_norm", 2), rotations="norm_rope", gated=True),
    "apertus": Counts(rotations="norm_rope", products=4, gate=("gated_silu", 0)),
    "arcee": Counts(products=4, gate=SQUARE),
    "bitnet": Counts(gate=SQUARE),
    "chatglm": Counts(products=4),
    **dict.fromkeys(
        ("deepseek2", "deepseek32", "glm-dsa", "mistral4"),
        Counts(products=7, stacked=False, by_head=2),
    ),
    "exaone4": Counts(norms=("residual_norm", 0), rotations="norm_rope"),
    "falcon-h1": Counts(products=7, needed=2),
    "gemma": Counts(gate=GELU),
    "gemma2": Counts(norms=("residual_norm", 2), capped=True, gate=GELU),
    "gemma3": Counts(norms=("residual_norm", 2), rotations="norm_rope", gate=GELU),
    "gemma3-images": Counts(norms=("residual_norm", 2), rotations="norm_rope", gate=GELU),
    "gemma3n": Counts(
        norms=("residual_norm", 1),
        rotations="norm_rope",
        products=9,
        beside=(2, 7),
        gate=("gated_gelu_tanh", 2),
    ),
    **dict.fromkeys(
        ("gemma4", "gemma4-images", "gemma4-sound"),
        Counts(
            norms=("residual_norm", 1),
            rotations="norm_rope",
            products=7,
            beside=(2, 1),
            gate=("gated_gelu_tanh", 2),
        ),
    ),
    **dict.fromkeys(
        ("gemma4-moe", "gemma4-moe-images"),
        Counts(norms=("residual_norm", 2), rotations="norm_rope", gate=GELU),
    ),
    "gemma4-unified": Counts(norms=("residual_norm", 1), rotations="norm_rope", gate=GELU),
    **dict.fromkeys(
        ("glm4", "glm4v", "glm4v-images", "glm-ocr"), Counts(norms=("residual_norm", 2), products=4)
    ),
    "gpt-oss": Counts(gate=("clamped_swiglu", 1)),
    "granitehybrid": Counts(rotations=""),
    "granitehybrid-moe": Counts(rotations=""),
    "bailingmoe3": Counts(products=7, stacked=False, by_head=2, by_gate=1),
    "kimi-linear": Counts(rotations="", products=7, stacked=False, by_head=2),
    "lfm3": Counts(norms=("residual_norm", 2), rotations="norm_rope", by_gate=1),
    "jamba": Counts(rotations=""),
    "mamba": Counts(
        norms=("add_norm", 1), rotations="", products=2, needed=3, gate=("gated_silu", 0)
    ),
    "mamba2": Counts(norms=("add_norm", 1), rotations="", products=2, gate=("gated_silu", 0)),
    "hrm_text": Counts(norms=("", 0), gated=True),
    "muse-glimmer": Counts(rotations="norm_rope", gated=True),
    "plm": Counts(products=5, stacked=False, by_head=2, gate=SQUARE),
    "mimo2": Counts(products=6, needed=2),  # values are narrower than the heads of the stack
    "minicpm3": Counts(products=7, stacked=False, by_head=2),
    "nemotron_h": Counts(norms=("add_norm", 1), rotations="", products=2, gate=("gated_silu", 0)),
    "nemotron_h_moe": Counts(
        norms=("add_norm", 1),
        rotations="",
        products=2,
        gate=("gated_silu", 0),
        experts=2,
        beside=(1, 2),  # around the experts of a layer
    ),
    "olmo2": Counts(norms=("residual_norm", 0), products=7, needed=2, stacked=False),
    **dict.fromkeys(("minimax-m2", "olmoe"), Counts(products=7, needed=2, stacked=False)),
    "laguna": Counts(rotations="norm_rope", products=6),  # its gates are no sigmoids
    "phimoe": Counts(norms=("", 0), head="matrix"),
    "refact": Counts(rotations=""),
    "phi3": Counts(products=4, stacked=False),
    "smallthinker": Counts(gate=("gated_silu", 0)),
    "step35": Counts(rotations="norm_rope", gate=("gated_silu", 0), by_gate=1),
    "spark2_5": Counts(gate=("gated_silu", 0), by_gate=1),
    **dict.fromkeys(NORMED_HEADS, Counts(rotations="norm_rope")),
    **dict.fromkeys(
        ("qwen3next", "qwen35", "qwen35-images", "qwen35moe", "qwen35moe-images"),
        Counts(rotations="norm_rope"),
    ),
    # Their norms are no RMSNorm, and stay plain.
    **dict.fromkeys(
        ("cohere2", "cohere2moe", "command-r", "dbrx", "olmo", "orion", "stablelm"),
        Counts(norms=("", 0)),
    ),
    **dict.fromkeys(
        ("falcon", "gptneox"), Counts(norms=("", 0), products=4, gate=("gated_silu", 0))
    ),
    **dict.fromkeys(
        ("bloom", "gpt2", "mpt", "starcoder"),
        Counts(norms=("", 0), rotations="", products=4, gate=("gated_silu", 0)),
    ),
    "gptj": Counts(norms=("", 0), products=4, gate=("gated_silu", 0), head="matrix"),
    "openelm": Counts(rotations="norm_rope", stacked=False),
    **dict.fromkeys(("jais2", "nemotron"), Counts(norms=("", 0), products=4, gate=SQUARE)),
    # Its head has a bias.
    "phi2": Counts(norms=("", 0), products=4, gate=("gated_silu", 0), head="matrix"),
    "starcoder2": Counts(norms=("", 0), products=4, gate=("gated_silu", 0)),
}


# Architectures whose last layer here reads the cache of another one.
SHARED_LAST = ("gemma3n", "gemma4", "gemma4-images", "gemma4-sound")
# Architectures whose last layer here has no positions.
LAST_UNTURNED = (
    "afmoe", "cohere2", "cohere2moe", "exaone-moe", "llama4", "maple", "muse-glimmer",
    "smollm3",
)  # fmt: skip
# Architectures whose first layer here has none.
FIRST_UNTURNED = ("granite_swa", "granitemoe_swa", "smallthinker")
# Layers without attention here, where they are not the recurrent ones.
NOT_ATTENDING = {
    "deci": 1, "falcon-h1": 0, "lfm2": 1, "lfm2moe": 1, "lfm2-vl": 1, "lfm3": 1,
    "nemotron_h": 2, "nemotron_h_moe": 2,
}  # fmt: skip


def _routed(architecture: str, layers: int) -> tuple[int, int]:
    """How many of the first layers have experts, and how many of those an MLP beside them."""
    config = tiny(architecture)
    routed = sum(config.routed[:layers]) if isinstance(config, ExpertsConfig) else 0
    beside_experts = getattr(config, "shared_ffn", None) or architecture.startswith("gemma4-moe")
    return routed, routed if beside_experts else 0


def _of_router(architecture: str, routed: int) -> dict[str, int]:
    """How often the rules of a router apply: it may choose groups, by their two best experts."""
    choices = 3 if getattr(tiny(architecture), "groups", 1) > 1 else 1
    counts = dict.fromkeys(ROUTER, routed) | {"top_indices": choices * routed}
    if architecture == "llama4":  # its factors multiply inputs, and nothing is added
        counts["expert_sum"] = 0
    if architecture == "phimoe":  # its factors are of its own
        counts["expert_factors"] = 0
    return counts


def _unturned(architecture: str, *, is_whole: bool) -> int:
    """Queries and keys without positions, of the last layer the queries where it is complete."""
    if architecture in LAST_UNTURNED:
        return 2 if is_whole else 1
    return 2 if architecture in FIRST_UNTURNED else 0


def _of_recurrence(architecture: str, whole: int, sequences: int, gates: int) -> dict[str, int]:
    """How often the rules for a recurrence and around it apply, with `whole` complete layers.

    `gates` are of the other layers.
    """
    if architecture not in RECURRENCES:
        return {}
    recurrence, layers = RECURRENCES[architecture]
    rules = (recurrence, "row_before", "causal_conv", "latest_inputs")
    counts = dict.fromkeys(rules, layers * sequences)
    if recurrence == "selective_scan":  # of time steps, keys and queries
        counts["grouped_rms_norm"] = 3 * layers
    elif recurrence == "channel_delta_rule":  # of keys and queries
        counts["grouped_rms_norm"] = 2 * layers * sequences
        counts["gated_heads"] = gates + layers * sequences
    elif architecture != "falcon-h1":
        counts[OUTPUT_NORMS[recurrence]] = min(layers, whole) * sequences
    if recurrence == "gated_delta_rule":
        counts["gated_heads"] = whole - layers
    return counts


def _of_rwkv7(point: str, layers: int, sequences: int) -> dict[str, int]:
    """As `expected`: layers without attention, whose MLPs read the token before too."""
    mlps = layers - point.startswith("prefill")
    counts = {
        "matrix": 12 * layers + 2 * mlps - 2,  # the first layer needs no share of its own values
        "embedding": 1,
        "grouped_rms_norm": layers,
        "squared_relu": mlps,
        "row_before": 2 * layers * sequences,
        "latest_inputs": 2 * layers * sequences,
        "channel_delta_rule": layers * sequences,
    }
    has_head = not point.startswith(("prefill", "embed"))
    return counts | ({"two_part_head": 1} if has_head else {})


def expected(architecture: str, point: str, layers: int) -> dict[str, int]:
    """How often each rule applies: a fact of the architecture, and of what the entry point needs.

    A prefill needs of its last layer with keys and values those alone.
    """
    sequences = 2 if point == "decode_2" else 1
    if architecture == "rwkv7":
        return _of_rwkv7(point, layers, sequences)
    shared = 1 if architecture in SHARED_LAST else 0
    partial = 1 if point.startswith("prefill") else 0
    whole = layers - (shared + 1) * partial
    per_layer = COUNTS.get(architecture, Counts())
    (norm, norms), (gate, gates) = per_layer.norms, per_layer.gate
    tables, matrices = per_layer.beside
    recurrence, recurrent = RECURRENCES.get(architecture, ("", 0))
    attending = max(0, whole - (convolutions := NOT_ATTENDING.get(architecture, recurrent)))
    routed, shared_mlps = _routed(architecture, whole)
    counts = {
        "stacked_heads": layers - convolutions - shared if per_layer.stacked else 0,
        "matrix": (
            per_layer.products * whole
            + per_layer.needed * partial
            - 3 * (routed - shared_mlps)
            + _OF_RECURRENCE.get(recurrence, 0) * min(recurrent, whole)
            + per_layer.by_gate * attending
            + matrices
        ),
        "gated_heads": (per_layer.by_gate or int(per_layer.gated)) * attending,
        **_of_recurrence(architecture, whole, sequences, per_layer.by_gate * attending),
        "experts": per_layer.experts * routed + per_layer.by_head * attending,
        **_of_router(architecture, routed),
        "embedding": tables,
        # Without norms before the sublayers, the model's last norm alone follows a sum.
        norm: norms * whole if norms else int(whole == layers),
        per_layer.rotations: (
            2 * attending + (partial or -shared) - _unturned(architecture, is_whole=whole == layers)
        ),
        "squared_relu": {"nemotron_h": 1, "nemotron_h_moe": 2}.get(architecture, 0),
        gate: gates * whole + (shared_mlps if per_layer.experts > 2 else 0),
        "write_f16_rows": 2 * (layers - shared - convolutions) * sequences,
        "cached_attention": 0 if per_layer.capped else attending * sequences,
    }
    # A layer has one in place of attention, and a delta net none of low rank.
    counts["matrix"] -= {"deci": 1, "bailingmoe3": 2}.get(architecture, 0)
    if architecture == "gemma3n":  # a layer reads a corrected sum; a head reads a mean of streams
        counts["add_norm"] = whole + partial - 1
        counts["matrix"] -= 3 * partial
    if not ("prefill" in point or "embed" in point):
        counts[per_layer.head] = counts.get(per_layer.head, 0) + 1
    return {rule: count for rule, count in counts.items() if rule and count}
