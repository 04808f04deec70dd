"""Record how PEFT trains the adapters of tests/models/lora/lora_cases.py, in lora_peft.npz.

    python -m tests.golden.record_lora_peft

Recorded with torch 2.13.0, transformers 5.23.0 and PEFT 0.21.2, which the tests do not need. For
each case the file has the loss of each step, float64 (STEPS,), and for each adapter its gradient
in the first step and its values after the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import peft
import torch
import transformers

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.families.gemma3 import Config as Gemma3Config
from tests.models.lora.lora_cases import CASES, GOLDEN, OPTIMIZER, SCHEDULE, STEPS
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from tests.models.lora.lora_cases import Array, LoraCase

PREFIX = "base_model.model.model."


def base_model(case: LoraCase) -> Any:
    """The model in transformers, float64."""
    config = case.config
    shape: dict[str, Any] = {
        **text_sizes(config),
        "rms_norm_eps": config.norm_eps,
        "attn_implementation": "eager",
    }
    if isinstance(config, Gemma3Config):
        layer_types = ["sliding_attention", "full_attention"]
        layers = [layer_types[window is None] for window in config.windows]
        bases = (config.local_rope_base, config.rope_base)
        model = transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(
                **shape,
                query_pre_attn_scalar=round(config.query_scale**-2),
                sliding_window=config.windows[0],
                layer_types=layers,
                rope_parameters={
                    layer_type: {"rope_type": "default", "rope_theta": base}
                    for layer_type, base in zip(layer_types, bases, strict=True)
                },
            )
        )
    else:
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                **shape,
                tie_word_embeddings=config.tied,
                rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
            )
        )
    architecture, state = ARCHITECTURES[case.architecture], {}
    for name, array in case.weights().items():
        stored = architecture.tensors.find(config, name, (), gguf=False)
        state[stored.name] = torch.tensor(array, dtype=torch.float64) - stored.offset
    missing, unexpected = model.double().load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    return model


def trained(case: LoraCase) -> dict[str, Array]:
    """The losses, first gradients and last adapters of a case."""
    lora = case.lora
    config = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=list(lora.projections), lora_dropout=0.0
    )
    model = peft.get_peft_model(base_model(case), config, autocast_adapter_dtype=False)
    adapters = {
        name.removeprefix(PREFIX).replace(".default", ""): weight
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }
    assert sorted(adapters) == sorted(case.adapters)
    with torch.no_grad():
        for name, array in case.initial().items():
            adapters[name].copy_(torch.tensor(array))
    weights = [adapters[name] for name in case.adapters]
    optimizer = torch.optim.AdamW(
        weights,
        lr=SCHEDULE.peak,
        betas=(OPTIMIZER.beta1, OPTIMIZER.beta2),
        eps=OPTIMIZER.eps,
        weight_decay=OPTIMIZER.decay,
    )
    schedulers = torch.optim.lr_scheduler
    warmup, total = SCHEDULE.warmup, SCHEDULE.total
    rising = schedulers.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
    falling = schedulers.CosineAnnealingLR(optimizer, T_max=total - warmup)
    schedule = schedulers.SequentialLR(optimizer, [rising, falling], milestones=[warmup])
    losses, recorded = [], {}
    for step in range(STEPS):
        tokens, targets = (torch.tensor(ids, dtype=torch.int64) for ids in case.batch(step))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens[None]).logits[0], targets)
        loss.backward()
        if step == 0:
            recorded = {
                f"{name}.gradient": adapters[name].grad.numpy().copy() for name in case.adapters
            }
        torch.nn.utils.clip_grad_norm_(weights, OPTIMIZER.max_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    recorded |= {name: adapters[name].detach().numpy() for name in case.adapters}
    return {"losses": np.array(losses), **recorded}


def main() -> None:
    """Write the file."""
    arrays: dict[str, Any] = {
        f"{case}/{name}": array for case in CASES for name, array in trained(CASES[case]).items()
    }
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    main()
