"""jina-embeddings-v3 as its own code saves it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load_file, save_file

from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import BakeOptions
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.dsl.evaluate import evaluate
from tests.models.families.encoders.encoder_cases import LENGTH, TEXTS, recorded_encoder
from tests.models.families.encoders.test_encoders import TOLERANCE, opened, padded
from tests.models.families.test_families import close
from tests.server.encoders import word_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

MATRICES = ("Wqkv.weight", "proj.weight", "fc1.weight", "fc2.weight", "embeddings.weight")


def test_jina_v3_is_read_without_the_adapters_of_its_tasks(tmp_path: Path) -> None:
    folder, recording = tmp_path / "model", recorded_encoder("jina-v3")
    folder.mkdir()
    recording.write(folder)
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(MATRICES)]:
        part = f"roberta.{name.removesuffix('.weight')}.parametrizations.weight"
        (rows, columns), rank = tensors[name].shape, 2
        tensors[f"{part}.original"] = tensors.pop(name)
        tensors[f"{part}.0.lora_A"] = np.ones((5, rank, columns), np.float32)
        tensors[f"{part}.0.lora_B"] = np.ones((5, rows, rank), np.float32)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    theta = config.pop("rope_parameters")["rope_theta"]
    config |= {"model_type": "xlm-roberta", "rotary_emb_base": theta, "lora_rank": 2}
    config |= {"position_embedding_type": "rotary", "lora_adaptations": ["separation"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert identify(open_weights(folder), None).name == "jina-v3"
    word_tokenizer().save(str(folder / "tokenizer.json"))
    notes: list[str] = []
    resolve(BakeOptions(weights=folder), notes.append)
    assert notes == ["leaves out the adapters of tasks, as if no task is given: ['separation']"]
    model = opened(folder, "jina-bert-v3")
    (graph,) = model.program.graphs
    (actual,) = evaluate(graph, padded("jina-v3", LENGTH, TEXTS), model.parameters)
    close(actual, recording.vectors, TOLERANCE)
