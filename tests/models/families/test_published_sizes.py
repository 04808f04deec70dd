"""Each family compiles at published widths: one precision and one size of a prefill each.

`python -m tests.models.families.published_sizes` compiles all of them, with every entry point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.recipe import recipes
from hearthd.models.catalog import ARCHITECTURES, ENCODERS, SPEECH
from hearthd.models.families.whisper import Config
from hearthd.models.speech.speech_entry_points import SpeechOptions
from tests.models.families.autumn_sizes import AUTUMN_SIZES
from tests.models.families.published_sizes import compile_program, graphs_of, is_function_of
from tests.models.families.size_table import SIZES

if TYPE_CHECKING:
    from pathlib import Path

# Without the barriers of models/dsl/iree_faults/barriers.py, gemma2's and gemma4's do not compile.
COVERED = (
    ("apertus", "native", "prefill_16"),
    ("arcee", "native", "prefill_16"),
    ("baichuan", "native", "prefill_16"),
    ("bitnet", "native", "prefill_16"),
    ("bloom", "native", "prefill_16"),
    ("gptj", "native", "prefill_16"),
    ("jamba", "native", "prefill_16"),
    ("ling2", "native", "prefill_16"),
    ("chatglm", "native", "prefill_16"),
    ("cohere2", "native", "prefill_16"),
    ("command-r", "bf16", "prefill_16"),
    ("dots1", "native", "prefill_16"),
    ("glm4.7-flash", "native", "prefill_16"),
    ("ernie4_5", "native", "prefill_16"),
    ("ernie4_5-moe", "native", "prefill_16"),
    ("exaone3.5", "native", "prefill_16"),
    ("exaone4", "bf16", "prefill_16"),
    ("falcon", "native", "prefill_16"),
    ("k-exaone", "native", "prefill_16"),
    ("falcon-h1", "native", "prefill_16"),
    ("gemma", "native", "prefill_16"),
    ("gemma2", "f32", "prefill_16"),
    ("gemma3", "bf16", "prefill_16"),
    ("gemma3-images", "int8-g32", "image"),
    ("gemma3n", "native", "prefill_16"),
    ("gemma4-images", "int8-g32", "image_256"),
    ("gemma4-sound", "int8-g32", "sound_750"),
    ("gemma4", "bf16", "prefill_128"),
    ("gemma4-unified", "int8-g32", "image_256"),
    ("gemma4-unified", "int8-g32", "sound_750"),
    ("gemma4-moe", "native", "prefill_16"),
    ("gemma4-moe-images", "int8-g32", "image_256"),
    ("gemma4-moe-images", "int8-g32", "prefill_block_256"),
    ("voxtral", "int8-g32", "sound_375"),
    ("ultravox", "int8-g32", "sound_188"),
    ("qwen2-audio", "int8-g32", "sound_750"),
    ("qwen2.5-omni", "int8-g32", "sound_50"),
    ("glm4", "bf16", "prefill_16"),
    ("glm4.1v", "native", "prefill_16"),
    ("glm4.1v-images", "int8-g32", "image_64"),
    ("glm4.5v-images", "native", "prefill_16"),
    ("glm-ocr", "native", "prefill_16"),
    ("paddleocr-vl", "int8-g32", "image_64"),
    ("minicpm-v2.6", "int8-g32", "image_64"),
    ("minicpm-v4", "native", "prefill_16"),
    ("minicpm-v4.5", "native", "prefill_16"),
    ("glm4.5", "native", "prefill_16"),
    ("gpt-oss", "native", "decode_4"),
    ("gpt2", "native", "prefill_16"),
    ("gptneox", "native", "prefill_16"),
    ("granite3", "native", "prefill_128"),
    ("granite-moe", "native", "decode_4"),
    ("granite-swash", "native", "prefill_128"),
    ("granite-swash-moe", "native", "decode_4"),
    ("granite4-h", "native", "prefill_128"),
    ("granite4-h-moe", "bf16", "prefill_16"),
    *((name, "native", "prefill_16") for name in AUTUMN_SIZES),
    ("hunyuan", "f32", "prefill_16"),
    ("hunyuan-a13b", "native", "prefill_16"),
    ("internlm2", "native", "prefill_16"),
    ("internvl", "int8-g32", "image"),
    ("internvl3.5", "native", "prefill_16"),
    ("jais2", "native", "prefill_16"),
    ("lfm2", "f32", "prefill_16"),
    ("lfm2-moe", "native", "prefill_128"),
    ("lfm3", "native", "prefill_128"),
    ("lfm2-vl", "int8-g32", "image_64"),
    ("lfm2-vl", "int8-g32", "image_256"),
    ("llama4", "native", "prefill_16"),
    ("lightonocr", "int8-g32", "image_64"),
    ("llava", "int8-g32", "image"),
    ("llava1.6", "int8-g32", "image"),
    ("granite-vision3", "int8-g32", "image"),
    ("mamba", "native", "prefill_16"),
    ("mamba2", "native", "prefill_16"),
    ("mpt", "native", "prefill_16"),
    ("openelm", "native", "prefill_16"),
    ("qwen", "native", "prefill_16"),
    ("refact", "native", "prefill_16"),
    ("smollm2", "bf16", "prefill_128"),
    ("minicpm", "native", "prefill_16"),
    ("minicpm3", "native", "prefill_16"),
    ("minimax-m2", "native", "prefill_16"),
    ("ministral3", "native", "prefill_16"),
    ("ministral3-images", "int8-g32", "image_64"),
    ("ministral3-images", "int8-g32", "image_256"),
    ("nemotron", "native", "prefill_16"),
    ("nemotron-h", "native", "prefill_16"),
    ("nemotron-h-moe", "native", "prefill_16"),
    ("mellum2", "native", "prefill_16"),
    ("deci", "native", "prefill_16"),
    ("rwkv7", "native", "prefill_16"),
    ("dbrx", "native", "prefill_16"),
    ("mimo2", "native", "prefill_16"),
    ("step35", "native", "prefill_16"),
    ("olmo", "native", "prefill_16"),
    ("olmo2", "native", "prefill_16"),
    ("olmoe", "native", "prefill_16"),
    ("orion", "native", "prefill_16"),
    ("phi2", "native", "prefill_16"),
    ("phi3", "f32", "prefill_128"),
    ("qwen2.5", "bf16", "prefill_16"),
    ("qwen2-moe", "native", "prefill_16"),
    ("qwen2.5-vl", "native", "prefill_16"),
    ("qwen2-vl-images", "int8-g32", "image_64"),
    ("qwen2.5-vl-images", "int8-g32", "image_64"),
    ("qwen2.5-vl-images", "int8-g32", "image_256"),
    ("qwen3-vl", "native", "prefill_16"),
    ("pixtral", "int8-g32", "image_64"),
    ("qwen3-vl-images", "int8-g32", "image_64"),
    ("qwen3-vl-images", "native", "prefill_rows_16"),
    ("qwen3-vl-moe", "native", "prefill_16"),
    ("qwen3-vl-moe-images", "native", "prefill_rows_16"),
    ("seed-oss", "native", "prefill_16"),
    ("mixtral", "native", "prefill_16"),
    ("qwen3", "native", "prefill_128"),
    ("qwen3-moe", "f32", "prefill_16"),
    ("qwen3-next", "native", "prefill_16"),
    ("qwen3.5", "native", "prefill_16"),
    ("qwen3.5-images", "int8-g32", "image_64"),
    ("qwen3.5-images", "int8-g32", "image_256"),
    ("qwen3.5-moe", "native", "prefill_16"),
    ("qwen3.5-moe-images", "native", "prefill_rows_16"),
    ("smollm3", "bf16", "prefill_128"),
    ("smolvlm", "int8-g32", "image"),
    ("stablelm", "native", "prefill_16"),
    ("starcoder", "native", "prefill_16"),
    ("starcoder2", "bf16", "prefill_128"),
    ("trinity", "native", "prefill_16"),
    ("xverse", "native", "prefill_16"),
    ("bert", "int8-g32", "encode_8x16"),
    ("embeddinggemma", "f32", "encode_1x128"),
    ("eurobert", "int8-g32", "encode_1x128"),
    ("llama-embed", "int8-g32", "encode_1x128"),
    ("gte", "bf16", "encode_1x128"),
    ("jina-v2", "int8-g32", "encode_1x128"),
    ("jina-v2-code", "bf16", "encode_8x16"),
    ("jina-v3", "int8-g32", "encode_1x128"),
    ("modernbert", "int8-g32", "encode_1x128"),
    ("nomic-bert", "f32", "encode_8x16"),
    ("nomic-bert-moe", "int8-g32", "encode_8x16"),
    ("qwen3-reranker", "int8-g32", "encode_1x128"),
    ("xlm-roberta", "bf16", "encode_1x128"),
)
# Two layers of the encoder and of the decoder. Source: config.json of openai/whisper-tiny.en,
# -small and -large-v3-turbo. (width, heads, vocabulary, bands of a spectrogram)
WHISPER = {
    "tiny.en": (384, 6, 51864, 80),
    "small": (768, 12, 51865, 80),
    "large-v3-turbo": (1280, 20, 51866, 128),
}
# The weights of a file; the others at night.
ALWAYS = ("qwen3",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "precision", "name"),
    [pytest.param(*one, marks=() if one[0] in ALWAYS else pytest.mark.nightly) for one in COVERED],
)
def test_a_family_compiles_at_a_published_width(
    model: str, precision: str, name: str, tmp_path: Path
) -> None:
    graphs = [graph for graph in graphs_of(model, precision) if is_function_of(graph, name)]
    assert graphs
    compile_program(graphs, tmp_path)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("precision", ["f32", "bf16", "int8-g32"])
@pytest.mark.parametrize("name", WHISPER)
def test_speech_compiles_at_a_published_width(name: str, precision: str, tmp_path: Path) -> None:
    hidden, heads, vocab_size, mels = WHISPER[name]
    config = Config(
        layers=2, hidden=hidden, ffn=4 * hidden, heads=heads, kv_heads=heads,
        head_dim=hidden // heads, max_context=448, vocab_size=vocab_size, norm_eps=1e-5, mels=mels,
        states=1500, encoder_layers=2, encoder_ffn=4 * hidden, encoder_heads=heads,
    )  # fmt: skip
    options = SpeechOptions(precision=precision, alignment_heads=((1, 0), (1, 3)))
    compile_program(SPEECH["whisper"].program(config, options).graphs, tmp_path)


def test_every_recipe_has_a_published_size_and_every_family_is_compiled_at_night() -> None:
    families = {name: sizes[0].architecture.name for name, sizes in recipes().items()}
    families |= {name: one.architecture for name, one in encoder_recipes().items()}
    assert SIZES.keys() == families.keys()
    assert {families[name] for name, _, _ in COVERED} == {*ARCHITECTURES, *ENCODERS}
