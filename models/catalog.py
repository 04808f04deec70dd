"""The architectures that Hearth runs. Other modules do not name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.families import (
    apertus,
    arcee,
    bert,
    bitnet,
    cohere2,
    command_r,
    deepseek2,
    dots1,
    embeddinggemma,
    ernie4_5,
    ernie4_5_moe,
    exaone,
    exaone4,
    falcon_h1,
    gemma,
    gemma2,
    gemma3,
    gemma3_images,
    gemma3n,
    gemma4,
    gemma4_assistant,
    gemma4_images,
    gemma4_sound,
    gemma4_unified,
    gemma4moe,
    gemma4moe_images,
    glm4,
    glm4moe,
    gpt_oss,
    granite,
    granite_swa,
    granitehybrid,
    granitehybridmoe,
    granitemoe,
    granitemoe_swa,
    hunyuan,
    hunyuan_moe,
    lfm2,
    lfm2moe,
    lfm2vl,
    lfm3,
    llama,
    minicpm,
    minicpm3,
    mistral3,
    mixtral,
    modernbert,
    nemotron,
    nemotron_h,
    nemotron_h_moe,
    nomic_bert,
    olmo2,
    olmoe,
    phi3,
    qwen2,
    qwen2moe,
    qwen2vl,
    qwen3,
    qwen3_reranker,
    qwen3moe,
    qwen3next,
    qwen3vl,
    qwen3vlmoe,
    qwen35,
    qwen35_images,
    qwen35moe,
    qwen35moe_images,
    seed_oss,
    smollm3,
    smolvlm,
    stablelm,
    starcoder2,
    whisper,
    xlm_roberta,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
    from hearthd.models.speech.speech_architecture import SpeechArchitecture

ARCHITECTURES: Mapping[str, Architecture[Any]] = {
    family.ARCHITECTURE.name: family.ARCHITECTURE
    for family in (
        apertus,
        arcee,
        bitnet,
        cohere2,
        command_r,
        deepseek2,
        dots1,
        ernie4_5,
        ernie4_5_moe,
        exaone,
        exaone4,
        falcon_h1,
        gemma,
        gemma2,
        gemma3,
        gemma3_images,
        gemma3n,
        gemma4,
        gemma4_images,
        gemma4_sound,
        gemma4_unified,
        gemma4moe,
        gemma4moe_images,
        glm4,
        glm4moe,
        gpt_oss,
        granite,
        granite_swa,
        granitehybrid,
        granitehybridmoe,
        granitemoe,
        granitemoe_swa,
        hunyuan,
        hunyuan_moe,
        lfm2,
        lfm2moe,
        lfm2vl,
        lfm3,
        llama,
        minicpm,
        minicpm3,
        mistral3,
        mixtral,
        nemotron,
        nemotron_h,
        nemotron_h_moe,
        olmo2,
        olmoe,
        phi3,
        qwen2,
        qwen2moe,
        qwen2vl,
        qwen3,
        qwen3moe,
        qwen3next,
        qwen3vl,
        qwen3vlmoe,
        qwen35,
        qwen35_images,
        qwen35moe,
        qwen35moe_images,
        seed_oss,
        smollm3,
        smolvlm,
        stablelm,
        starcoder2,
    )
}

# They draft tokens for another model.
ASSISTANTS: Mapping[str, Architecture[Any]] = {
    family.ARCHITECTURE.name: family.ARCHITECTURE for family in (gemma4_assistant,)
}

ENCODERS: Mapping[str, EncoderArchitecture[Any]] = {
    family.ARCHITECTURE.name: family.ARCHITECTURE
    for family in (bert, embeddinggemma, modernbert, nomic_bert, qwen3_reranker, xlm_roberta)
}

SPEECH: Mapping[str, SpeechArchitecture[Any]] = {
    family.ARCHITECTURE.name: family.ARCHITECTURE for family in (whisper,)
}
