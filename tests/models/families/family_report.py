"""Write the table of docs/supported-models.md.

    python -m tests.models.families.family_report
    python -m tests.models.families.family_report olmo2

Computes every row, or the rows of the named files and keeps the others. Hearth computes in NumPy;
what transformers computed is recorded in tests/golden.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.tokenizer.gguf_vocabulary import SUPPORTED_TYPES
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.dsl.evaluate import evaluate
from tests.models.families import ours
from tests.models.families.cases import CASES, TOKENS
from tests.models.families.encoders.encoder_cases import (
    ENCODER_CASES,
    LENGTH,
    TEXTS,
    recorded_encoder,
)
from tests.models.families.encoders.test_encoders import opened, padded
from tests.models.families.family_recording import ROWS, recorded, write_folder
from tests.text.template_cases import CASES as TEMPLATE_CASES
from tests.text.written_templates import recorded as recorded_prompts
from tests.text.written_templates import written

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "supported-models.md"
TABLE = re.compile(r"\| File \| Kind \|.*?\n(?=\n)", re.S)
MAX_LINES = {"family": 200, "variant": 60}


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of an architecture.

    varies     the file whose blocks its models are built of; a family has a block or a head of its
               own
    templates  chat templates of its models, names of tests/text/family_templates.py
    tokenizer  the types of vocabularies in GGUF files of its models; none if it reads no such files
    """

    varies: str | None = None
    templates: tuple[str, ...] = ()
    tokenizer: tuple[str, ...] = ("gpt2",)

    @property
    def kind(self) -> str:
        """`family` or `variant`."""
        return "variant" if self.varies else "family"


FILES = {
    "afmoe": File(templates=("chatml",)),
    "apertus": File(templates=("apertus",)),
    "arcee": File(varies="llama", templates=("chatml",)),
    "baichuan": File(varies="llama", tokenizer=("llama",)),
    "bailingmoe": File(varies="deepseek"),
    "bailingmoe2": File(templates=("ling 2",)),
    "bailingmoe3": File(templates=("ling 2",)),
    "bert": File(tokenizer=("bert",)),
    "bitnet": File(templates=("chatml",), tokenizer=()),
    "bloom": File(),
    "chatglm": File(templates=("glm",), tokenizer=("gpt2", "llama")),
    "cohere2": File(varies="command_r", templates=("command r",)),
    "cohere2_moe": File(templates=("command r",)),
    "command_r": File(templates=("command r",)),
    "dbrx": File(templates=("chatml",)),
    "deci": File(templates=("llama 3",), tokenizer=("gpt2", "llama")),
    "deepseek": File(),
    "deepseek2": File(templates=("glm",)),
    "deepseek32": File(varies="deepseek2"),
    "dots1": File(varies="qwen3moe", templates=("dots 1",)),
    "embeddinggemma": File(tokenizer=("llama",)),
    "ernie4_5": File(varies="llama", templates=("ernie 4.5",), tokenizer=("llama",)),
    "ernie4_5_moe": File(templates=("ernie 4.5",), tokenizer=("llama",)),
    "eurobert": File(),
    "exaone": File(varies="llama", templates=("exaone 4",)),
    "exaone4": File(templates=("exaone 4",)),
    "exaone_moe": File(varies="dots1", templates=("k-exaone",)),
    "falcon": File(),
    "falcon_h1": File(templates=("chatml",)),
    "gemma": File(varies="llama", templates=("gemma",), tokenizer=("llama",)),
    "gemma2": File(varies="gemma3", templates=("gemma",), tokenizer=("llama",)),
    "gemma3": File(templates=("gemma", "function gemma"), tokenizer=("llama",)),
    "gemma3_images": File(),
    "gemma3n": File(templates=("gemma",), tokenizer=("llama",)),
    "gemma4": File(templates=("gemma 4",), tokenizer=("gemma4",)),
    "gemma4_images": File(),
    "gemma4_sound": File(),
    "gemma4_unified": File(),
    "gemma4moe": File(templates=("gemma 4",), tokenizer=("gemma4",)),
    "gemma4moe_images": File(varies="gemma4_images"),
    "glm_dsa": File(varies="deepseek32", templates=("glm",)),
    "glm4": File(templates=("glm",)),
    "glm4moe": File(templates=("glm",)),
    "glm_ocr": File(),
    "glm4v": File(templates=("glm",)),
    "glm4v_images": File(),
    "glm4vmoe_images": File(),
    "gpt_oss": File(templates=("harmony",)),
    "gpt2": File(),
    "gptj": File(tokenizer=()),
    "gptneox": File(),
    "granite": File(templates=("granite",)),
    "granite_vision": File(),
    "granite_swa": File(templates=("granite 4",)),
    "granitehybrid": File(templates=("granite 4",)),
    "granitehybridmoe": File(varies="granitehybrid", templates=("granite 4",)),
    "granitemoe": File(templates=("granite",)),
    "granitemoe_swa": File(varies="granite_swa", templates=("granite 4",)),
    "gte": File(tokenizer=()),
    "hrm_text": File(templates=("chatml",)),
    "hunyuan": File(templates=("hunyuan",)),
    "hunyuan_moe": File(templates=("hunyuan",)),
    "hy_v3": File(),
    "internlm2": File(varies="llama", templates=("chatml",), tokenizer=("llama",)),
    "internvl": File(),
    "internvl35": File(varies="internvl"),
    "jais2": File(varies="nemotron"),
    "jamba": File(tokenizer=("llama",)),
    "jina_bert": File(tokenizer=("bert", "gpt2")),
    "jina_bert_code": File(),
    "jina_bert_v3": File(tokenizer=("t5",)),
    "kimi_linear": File(templates=("chatml",)),
    "laguna": File(),
    "lfm2": File(templates=("lfm 2",)),
    "lfm3": File(templates=("lfm 2",), tokenizer=()),
    "lfm2moe": File(templates=("lfm 2",)),
    "lfm2vl": File(),
    "llama": File(templates=("llama 3", "mistral", "chatml"), tokenizer=("llama", "gpt2")),
    "llama_embed": File(varies="eurobert"),
    "lightonocr": File(),
    "llava": File(),
    "llava_next": File(),
    "llama4": File(templates=("llama 4",)),
    "maincoder": File(varies="hunyuan", templates=("chatml",)),
    "mamba": File(),
    "mamba2": File(),
    "maple": File(templates=("chatml",)),
    "mellum": File(varies="qwen3moe", templates=("chatml",)),
    "mimo2": File(),
    "minicpm": File(varies="granite", templates=("chatml",), tokenizer=("llama",)),
    "minicpm3": File(templates=("chatml",), tokenizer=("llama",)),
    "minimax_m2": File(templates=("minimax m2",)),
    "minicpmv": File(),
    "minicpmv4": File(varies="minicpmv"),
    "minicpmv45": File(varies="minicpmv"),
    "mistral3": File(templates=("ministral 3",)),
    "mistral3_images": File(),
    "mistral4": File(templates=("ministral 3",)),
    "mixtral": File(varies="llama", templates=("mistral",), tokenizer=("llama",)),
    "modernbert": File(),
    "mpt": File(),
    "muse_glimmer": File(),
    "nanbeige": File(templates=("chatml",), tokenizer=("llama",)),
    "nemotron": File(tokenizer=("llama",)),
    "nemotron_h": File(),
    "nemotron_h_moe": File(),
    "nomic_bert": File(tokenizer=("bert",)),
    "nomic_bert_moe": File(tokenizer=("t5",)),
    "olmo": File(),
    "olmo2": File(templates=("olmo 2", "chatml")),
    "olmoe": File(varies="olmo2", templates=("olmo 2",)),
    "openelm": File(tokenizer=("llama",)),
    "orion": File(varies="stablelm", tokenizer=("llama",)),
    "paddleocr_vl": File(),
    "pangu_embedded": File(varies="llama", tokenizer=("llama",)),
    "phi2": File(),
    "phi3": File(templates=("phi 4",), tokenizer=("llama", "gpt2")),
    "phimoe": File(templates=("phi 4",), tokenizer=("llama",)),
    "pixtral": File(),
    "plm": File(templates=("chatml",)),
    "qwen": File(templates=("chatml",)),
    "qwen2": File(varies="llama", templates=("chatml",)),
    "qwen2audio": File(),
    "qwen2moe": File(varies="qwen2", templates=("chatml",)),
    "qwen2vl": File(varies="qwen2", templates=("chatml",)),
    "qwen25omni": File(),
    "qwen25vl_images": File(),
    "qwen2vl_images": File(),
    "qwen3": File(varies="llama", templates=("qwen 3",)),
    "qwen3_reranker": File(),
    "qwen3next": File(varies="qwen35moe", templates=("qwen 3",)),
    "qwen3vl": File(varies="qwen3", templates=("qwen 3",)),
    "qwen3vl_images": File(),
    "qwen3vlmoe": File(varies="qwen3moe", templates=("qwen 3",)),
    "qwen3vlmoe_images": File(varies="qwen3vl_images"),
    "qwen35": File(templates=("qwen 3.5",)),
    "qwen35_images": File(),
    "qwen35moe": File(templates=("qwen 3.5",)),
    "qwen35moe_images": File(varies="qwen35_images"),
    "qwen3moe": File(varies="qwen3", templates=("qwen 3",)),
    "refact": File(templates=("chatml",)),
    "rwkv7": File(tokenizer=("rwkv",)),
    "seed_oss": File(varies="llama", templates=("chatml",)),
    "smallthinker": File(templates=("chatml",)),
    "smollm3": File(varies="llama", templates=("smollm 3",)),
    "smolvlm": File(),
    "spark2_5": File(),
    "step35": File(),
    "stablelm": File(templates=("chatml",)),
    "starcoder": File(),
    "starcoder2": File(),
    "ultravox": File(),
    "voxtral": File(),
    "xlm_roberta": File(varies="bert", tokenizer=("t5",)),
    "xverse": File(varies="llama", tokenizer=("llama",)),
}
# Files whose names differ from their architectures'.
_RENAMED = {
    "hunyuan-moe": "hunyuan_moe",
    "cohere2moe": "cohere2_moe",
    "command-r": "command_r",
    "falcon-h1": "falcon_h1",
    "gemma3-images": "gemma3_images",
    "gemma4-images": "gemma4_images",
    "gemma4-moe": "gemma4moe",
    "gemma4-moe-images": "gemma4moe_images",
    "gemma4-sound": "gemma4_sound",
    "gemma4-unified": "gemma4_unified",
    "granitehybrid-moe": "granitehybridmoe",
    "ernie4_5-moe": "ernie4_5_moe",
    "exaone-moe": "exaone_moe",
    "gemma-embedding": "embeddinggemma",
    "glm-dsa": "glm_dsa",
    "gpt-oss": "gpt_oss",
    "hunyuan-dense": "hunyuan",
    "jina-bert-v2": "jina_bert",
    "jina-bert-v2-code": "jina_bert_code",
    "jina-bert-v3": "jina_bert_v3",
    "glm4v-images": "glm4v_images",
    "glm4vmoe-images": "glm4vmoe_images",
    "glm-ocr": "glm_ocr",
    "paddleocr-vl": "paddleocr_vl",
    "kimi-linear": "kimi_linear",
    "granite-vision": "granite_vision",
    "lfm2-vl": "lfm2vl",
    "llama-embed": "llama_embed",
    "llava-next": "llava_next",
    "minimax-m2": "minimax_m2",
    "mistral3-images": "mistral3_images",
    "modern-bert": "modernbert",
    "muse-glimmer": "muse_glimmer",
    "nomic-bert": "nomic_bert",
    "nomic-bert-moe": "nomic_bert_moe",
    "pangu-embedded": "pangu_embedded",
    "qwen25vl-images": "qwen25vl_images",
    "qwen2vl-images": "qwen2vl_images",
    "qwen3-reranker": "qwen3_reranker",
    "qwen3vl-images": "qwen3vl_images",
    "qwen3vlmoe-images": "qwen3vlmoe_images",
    "qwen35-images": "qwen35_images",
    "qwen35moe-images": "qwen35moe_images",
    "xlm-roberta": "xlm_roberta",
}


def cases_of(file: str) -> list[str]:
    """The names of a file's cases."""
    architectures = {name: case.architecture for name, case in CASES.items()}
    architectures |= {name: case.architecture for name, case in ENCODER_CASES.items()}
    return [name for name, one in architectures.items() if _RENAMED.get(one, one) == file]


def lines_of(file: str) -> int:
    """The lines of a file, without those that only mark methods as overrides."""
    text = (ROOT / "models/families" / f"{file}.py").read_text(encoding="utf-8")
    marks = r"from typing_extensions import override\n\n?| *@override\n"
    return len(re.sub(marks, "", text).splitlines())


def equal_templates(file: str) -> str:
    """Of the conversations in the templates of a file's models, how many prompts are equal."""
    pairs = [(name, case) for name in FILES[file].templates for case in TEMPLATE_CASES]
    equal = sum(written(name, case) == recorded_prompts()[name][case] for name, case in pairs)
    return f"{equal} of {len(pairs)}" if pairs else "none"


def facts(file: str) -> list[str]:
    """The first and the last cells of a row: those that take no computation with a model."""
    one = FILES[file]
    return [
        f"`{file}`",
        f"variant of `{one.varies}`" if one.varies else "family",
        str(lines_of(file)),
        str(len(cases_of(file))),
        equal_templates(file),
        "yes",
        gguf_support(file),
    ]


def gguf_support(file: str) -> str:
    """What of a file's models GGUF files hold, for the last column."""
    if not FILES[file].tokenizer:
        return "no"
    known = set(FILES[file].tokenizer) <= set(SUPPORTED_TYPES)
    return "yes" if known else "without a tokenizer"


def difference(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def decoder(name: str, folder: Path) -> tuple[float, str]:
    """The difference of a case, and whether its most likely tokens are equal."""
    case, recording = CASES[name], recorded(name)
    write_folder(recording, folder)
    logits = ours.logits(open_weights(folder), case.architecture, folder, TOKENS)
    equal = logits.argmax(axis=1).tolist() == recording.greedy
    return difference(logits[ROWS], recording.logits), "all equal" if equal else "different"


def encoder(name: str, folder: Path) -> tuple[float, str]:
    """The difference of a case, which has no tokens."""
    case, recording = ENCODER_CASES[name], recorded_encoder(name)
    recording.write(folder)
    model = opened(folder, case.architecture)
    (graph,) = model.program.graphs
    (vectors,) = evaluate(graph, padded(name, LENGTH, TEXTS), model.parameters)
    return difference(vectors, recording.vectors), "vectors"


def row(file: str) -> list[str]:
    """The cells of a row."""
    results = []
    for name in cases_of(file):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            path.mkdir()
            results.append((decoder if name in CASES else encoder)(name, path))
    worst = max(difference_ for difference_, _ in results)
    tokens = ", ".join(sorted({words for _, words in results}))
    *first, templates, from_folder, from_gguf = facts(file)
    return [*first, f"{worst:.1e}", tokens, templates, from_folder, from_gguf]


HEADER = [
    "File", "Kind", "Lines", "Cases", "Largest difference", "Most likely tokens",
    "Equal templates", "Folder", "GGUF",
]  # fmt: skip


def main() -> None:
    """Write the table into the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.families.family_report")
    parser.add_argument("files", nargs="*", metavar="FILE", help="by default all of them")
    files = parser.parse_args().files or [*FILES]
    text = PAGE.read_text(encoding="utf-8")
    lines = {line.split("`")[1]: line for line in re.findall(r"^\| `.*\| yes \|.*\n", text, re.M)}
    lines |= {file: f"| {' | '.join(row(file))} |\n" for file in files}
    head = "".join(f"| {' | '.join(cells)} |\n" for cells in (HEADER, ["---"] * len(HEADER)))
    page, count = TABLE.subn(head + "".join(lines[file] for file in FILES), text)
    assert count == 1, f"{PAGE} has {count} tables of families"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
