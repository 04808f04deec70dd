"""Record what llama.cpp's converter makes of the tiny models of every family.

    python -m tests.golden.record_converted LLAMA_CPP
    python -m tests.golden.record_converted LLAMA_CPP olmo2-olmo2 olmo2-linear

LLAMA_CPP is a folder with the source of llama.cpp: its packages `conversion` and `gguf-py`, which
need torch and transformers. Recorded with llama.cpp as in llama-cpp-python 0.3.36, torch 2.13.0 and
transformers 5.24.0. The models have no tokenizers, so the vocabulary that is written is made up.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import load_file, save_file

from tests.models.families.cases import CASES
from tests.models.families.converted_files import (
    NOT_CONVERTED,
    OF_OLDER_SCRIPT,
    PROJECTOR,
    Converted,
    converted,
    converted_names,
    digest,
    write,
)
from tests.models.families.encoders.encoder_cases import ENCODER_CASES, recorded_encoder
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.gguf_projector import PADDLE_PIXELS
from tests.models.families.grid_images import GRID_NAMES
from tests.models.families.images import NAMES as IMAGE_NAMES
from tests.models.families.images import ROWS
from tests.models.families.internvl_names import own_name
from tests.models.families.mtp_models import add_predicting_layer
from tests.models.families.whisper_sounds import SAMPLES as SOUND_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# By the start of a case's name: what published files have and transformers saves otherwise.
_PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "bailingmoe3-": {"architectures": ["BailingMoeV3ForCausalLM"]},
    "baichuan-": {"architectures": ["BaichuanForCausalLM"]},
    "cohere2": {"rotary_pct": 1.0},
    "deepseek2-glm": {"first_k_dense_replace": 1},
    "deepseek2-v3": {"scoring_func": "sigmoid"},
    "eurobert": {"classifier_pooling": None, "clf_pooling": "late"},
    "exaone-": {"architectures": ["ExaoneForCausalLM"]},
    "exaone-moe": {"architectures": ["ExaoneMoeForCausalLM"]},
    "falcon-falcon": {"num_kv_heads": None},
    "gpt2-": {"n_ctx": 512},
    "paddleocr-vl-": {"architectures": ["PaddleOCRVisionModel"]},  # of the projector
    "gptneox-gptneox": {"rotary_pct": 2 / 3},
    "gptneox-sequential": {"rotary_pct": 1 / 3},
    "hunyuan-moe": {
        "max_position_embeddings": 32768, "moe_intermediate_size": [56] * 3, "moe_topk": [2] * 3,
        "num_shared_expert": [1] * 3,
    },
    "granitemoe_swa-alone": {"no_rope_layers": [0, 1, 1]},
    "hunyuan-dense": {"max_position_embeddings": 32768},
    "kimi-linear-": {
        "linear_attn_config": {
            "full_attn_layers": [2], "head_dim": 16, "short_conv_kernel_size": 4,
        },
    },
    "internlm2-": {"architectures": ["InternLM2ForCausalLM"]},
    "llama-embed": {"architectures": ["LlamaBidirectionalModel"]},
    "lightonocr-": {"architectures": ["LightOnOCRForConditionalGeneration"]},
    "minicpm-": {"architectures": ["MiniCPMForCausalLM"]},
    "mistral4-": {"architectures": ["Mistral3ForConditionalGeneration"]},
    "mpt-": {"architectures": ["MPTForCausalLM"]},
    "nemotron_h-": {
        "num_hidden_layers": 5, "hybrid_override_pattern": "M-*-M", "d_head": 16,
    },
    "nemotron_h_moe": {"d_head": 16},
    "jina-v3": {
        "architectures": ["XLMRobertaModel"], "lora_adaptations": ["retrieval.query"],
        "lora_alpha": 1,
    },
    "nomic-moe": {"architectures": ["NomicBertModel"], "n_positions": 2048},
    "nomic-bert": {
        "n_positions": 8192, "max_trained_positions": 2048, "activation_function": "swiglu",
        "causal": False, "rotary_emb_fraction": 1.0, "rotary_emb_base": 1000.0, "prenorm": False,
        "rotary_emb_scale_base": None, "rotary_emb_interleaved": False, "qkv_proj_bias": False,
        "mlp_fc1_bias": False, "mlp_fc2_bias": False, "n_layer": 3,
    },
    "orion-": {"architectures": ["OrionForCausalLM"]},
    "pangu-embedded": {"architectures": ["PanguEmbeddedForCausalLM"]},
    "phimoe-": {"architectures": ["PhiMoEForCausalLM"]},
    "qwen25omni": {"architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni"},
    "qwen35": {"mtp_num_hidden_layers": 1},
    "qwen-": {"architectures": ["QWenLMHeadModel"]},
    "xverse-": {"architectures": ["XverseForCausalLM"]},
}  # fmt: skip
_LATER_NAMES = {
    "n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_inner": "intermediate_size",
    "n_head": "num_attention_heads", "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
}  # fmt: skip
# What transformers adds to a Nemotron-H without experts.
_ADDED = ("layers_block_type", "num_experts_per_tok", "n_routed_experts", "n_group", "topk_group")
_LAYERS = {"linear_attention": "mamba", "full_attention": "attention"}
_MODULES = {"1_Pooling": "Pooling", "2_Dense": "Dense", "3_Dense": "Dense"}


def prepare(name: str, folder: Path) -> dict[str, Any]:
    """Write the files that the converter expects beside a model; returns its configuration."""
    path = folder / "config.json"
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for start, more in _PUBLISHED.items():
        if name.startswith(start):
            config |= more
    if "granite" in name and "layer_types" in config:
        config["layer_types"] = [_LAYERS.get(kind, kind) for kind in config["layer_types"]]
    if name.startswith("qwen25omni"):
        config["thinker_config"] = dict(config)
    if name.startswith("internvl"):
        config["vision_config"]["architectures"] = ["InternVisionModel"]
    if name.startswith("nemotron_h-"):
        config = {key: value for key, value in config.items() if key not in _ADDED}
    if name.startswith("nomic-moe"):  # transformers adds its defaults under these names
        config |= {later: config[key] for key, later in _LATER_NAMES.items()}
        config["rope_parameters"] = {"rope_theta": config["rotary_emb_base"]}
    path.write_text(json.dumps(config), encoding="utf-8")
    vocabulary = {f"token{i}": i for i in range(vocabulary_size(config))}
    kinds = {"nomic-bert": "WordPiece", "nomic-moe": "Unigram", "jina-v3": "Unigram"}
    kind = next((kinds[start] for start in kinds if name.startswith(start)), "BPE")
    model = {"type": kind, "vocab": vocabulary, "merges": []}
    is_pixtral = name.startswith(("mistral3-images", "pixtral"))
    added = [{"content": "[IMG_BREAK]", "id": 95}] if is_pixtral else []
    tokenizer = {"added_tokens": added, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    modules = [
        {"idx": index, "path": path, "type": f"sentence_transformers.models.{module}"}
        for index, (path, module) in enumerate(_MODULES.items())
        if (folder / path).exists()
    ]
    if modules:
        (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    is_text = "text_config" not in config  # a text model alone
    if name.startswith(("qwen35", "qwen3next")) and is_text:
        add_predicting_layer(folder / "model.safetensors", config)
    return config


def vocabulary_size(config: Mapping[str, Any]) -> int:
    """V."""
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def set_vocab(model: Any) -> None:
    """Write a vocabulary, in place of the methods of the converter that read a tokenizer."""
    count, writer = vocabulary_size(model.hparams), model.gguf_writer
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"token{i}" for i in range(count)])
    writer.add_token_types([1] * count)
    writer.add_token_merges([])
    writer.add_eos_token_id(0)


def subclasses(base: Any) -> Iterator[Any]:
    """All of them."""
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def prepare_projector(folder: Path) -> None:
    """Write the files that the converter expects beside a tower, which it names as published."""
    processor = {
        "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "image_seq_length": ROWS,
        "min_pixels": PADDLE_PIXELS[0], "max_pixels": PADDLE_PIXELS[1],
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    path, start = folder / "model.safetensors", "vision_tower."
    tensors = load_file(path)
    is_siglip = any(name.endswith("post_layernorm.weight") for name in tensors)
    published = {
        name.replace(start, f"{start}vision_model.") if is_siglip else name: tensors[name].copy()
        for name in tensors
    }
    if any("layernorm_before" in name for name in tensors):
        published = {own_name(name): values for name, values in published.items()}
    save_file(published, path, metadata={"format": "pt"})


def convert(
    conversion: Any, gguf: Any, config: dict[str, Any], folder: Path, type_: Any
) -> Converted:
    """What the converter makes of a folder: a text model, or a projector."""
    if config["model_type"] != "nemotron_h":  # transformers adds experts to it
        config = conversion.ModelBase.load_hparams(folder, is_mistral_format=False) | config
    name = conversion.get_model_architecture(config, type_)
    is_projector = type_ is conversion.ModelType.MMPROJ
    model, out = conversion.get_model_class(name, mmproj=is_projector), folder / "model.gguf"
    model.module_paths = []  # a list of the class, which models share
    options = {"eager": True, "hparams": config, "sentence_transformers_dense_modules": True}
    model(folder, gguf.LlamaFileType.ALL_F32, out, **options).write()
    reader = gguf.GGUFReader(out)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    architecture = fields["general.architecture"]
    kept = {key: fields[key] for key in fields if key.startswith((f"{architecture}.", "xielu."))}
    tensors = {}
    for tensor in reader.tensors:
        shape = tuple(int(extent) for extent in reversed(tensor.shape))
        tensors[tensor.name] = (shape, digest(tensor.data))
    return Converted(metadata={"general.architecture": architecture, **kept}, tensors=tensors)


def main(source: str, *names: str) -> None:
    """Write the file: of all cases, or of those named beside those that are recorded."""
    sys.path[:0] = [source, f"{source}/gguf-py"]
    conversion, gguf = importlib.import_module("conversion"), importlib.import_module("gguf")
    conversion.load_all_models()
    for model in set(subclasses(conversion.ModelBase)):
        if "set_vocab" in vars(model):
            model.set_vocab = set_vocab
    every = [name for name in (*CASES, *ENCODER_CASES) if name not in NOT_CONVERTED]
    every += [f"{name}{PROJECTOR}" for name in (*IMAGE_NAMES, *GRID_NAMES, *SOUND_NAMES)]
    every = [name for name in every if name.removesuffix(PROJECTOR) not in OF_OLDER_SCRIPT]
    kept = converted_names() if names else set()
    recordings = {name: converted(name) for name in every if name in kept}
    for name in names or every:
        case, type_ = name.removesuffix(PROJECTOR), conversion.ModelType.TEXT
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            if case in CASES:
                write_folder(recorded(case), folder)
            else:
                recorded_encoder(case).write(folder)
            if name.endswith(PROJECTOR):
                prepare_projector(folder)
                type_ = conversion.ModelType.MMPROJ
            recordings[name] = convert(conversion, gguf, prepare(case, folder), folder, type_)
    write({name: recordings[name] for name in every if name in recordings})


if __name__ == "__main__":
    main(*sys.argv[1:])
