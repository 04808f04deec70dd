"""Flags of llama-server, Ollama and vLLM that Hearth calls otherwise, or that it does not need.

Hearth has one name for each flag. Who types another one by habit reads which it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

# What to type in place of a flag: an option of Hearth, with a value where only one is meant, or the
# argument.
_CALLED = {
    'PROMPT "$(cat FILE)"': ("-f", "--file"),
    "MODEL": (
        "-m",
        "-f",
        "--model",
        "-hf",
        "-hfr",
        "--hf-repo",
        "-hff",
        "--hf-file",
        "--models-dir",
    ),
    "PROMPT": ("-p", "--prompt", "-st", "--single-turn"),
    "--adapter": ("--lora",),
    "--adapters": ("--enable-lora",),
    "--alias": ("-a", "--served-model-name"),
    "--api-prefix": ("--root-path",),
    "--cache-dir": ("--slot-save-path",),
    "--chat-template-kwargs '{\"enable_thinking\": false}'": (
        *("--think", "-rea", "--reasoning", "--reasoning-budget"),
    ),
    "--client-timeout": ("-to", "--timeout"),
    "--config": ("--models-preset",),
    "--context": ("-c", "--ctx-size", "--num-ctx", "--max-model-len"),
    "--drafter": ("-md", "--model-draft", "--spec-draft-model"),
    '--grammar "$(cat FILE)"': ("--grammar-file",),
    "--idle-timeout": ("--keepalive", "--sleep-idle-seconds"),
    "--json-schema": ("-j", "--format"),
    '--json-schema "$(cat FILE)"': ("-jf", "--json-schema-file"),
    "--kv-cache": ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v", "--kv-cache-dtype"),
    "--log-level debug": ("-v", "--verbose", "-lv", "--verbosity", "--log-verbosity"),
    "--log-level error": ("--log-disable",),
    "--logit-bias": ("-l",),
    "--lora": ("--lora-modules",),
    "--max-tokens": ("-n", "--predict", "--n-predict", "--num-predict"),
    "--mirostat-eta": ("--mirostat-lr",),
    "--mirostat-tau": ("--mirostat-ent",),
    "--mmproj": ("-mm", "-mmu", "--mmproj-url"),
    "--mmproj none": ("--no-mmproj", "--no-mmproj-auto"),
    "--out": ("-o", "--output", "--outfile"),
    "--overflow": ("--context-shift", "--no-context-shift"),
    "--precision": ("-q", "--quantize", "--quantization", "--outtype", "--dtype"),
    "--repeat-penalty": ("--repetition-penalty",),
    "--seed": ("-s",),
    "--slots": ("-np", "--parallel", "--max-num-seqs"),
    "--stop": ("-r", "--reverse-prompt"),
    "--system": ("-sys", "--system-prompt"),
    '--system "$(cat FILE)"': ("-sysf", "--system-prompt-file"),
    "--temperature": ("--temp",),
    "--threads": ("-t",),
    "--tls-cert": ("--ssl-cert-file", "--ssl-certfile"),
    "--tls-key": ("--ssl-key-file", "--ssl-keyfile"),
    "--typical-p": ("--typical",),
}
# Why a flag is not needed.
_NOT_NEEDED = {
    "Hearth computes on the CPU": (
        *("-ngl", "--ngl", "--gpu", "--gpu-layers", "--n-gpu-layers", "-dev", "--device"),
        *("-sm", "--split-mode", "-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"),
        *("-mg", "--main-gpu", "-ts", "--tensor-split", "-ncmoe", "--n-cpu-moe", "-cmoe"),
        *("--cpu-moe", "-ot", "--override-tensor", "--gpu-memory-utilization"),
        *("-tp", "--tensor-parallel-size", "--enforce-eager"),
    ),
    "it is always on": (
        *("--jinja", "-fa", "--flash-attn", "-cb", "--cont-batching", "--metrics", "--props"),
        *("--embedding", "--embeddings", "--rerank", "--reranking", "-cnv", "--conversation"),
        *("--enable-prefix-caching", "--enable-auto-tool-choice", "--repack", "--mmproj-auto"),
    ),
    "Hearth chooses it": (
        *("-b", "--batch-size", "-ub", "--ubatch-size", "-tb", "--threads-batch"),
        *("--pooling", "--tool-call-parser", "--reasoning-parser", "--threads-http"),
        *("--warmup", "--no-warmup", "--cache-reuse", "--swa-full", "-kvu", "--kv-unified"),
        *("--draft", "--draft-n", "--draft-max", "--draft-min", "--max-num-batched-tokens"),
        *("--block-size", "--swap-space", "--numa", "-fit", "--fit", "--prio", "--poll"),
    ),
    "the model says it": (
        *("--rope-scaling", "--rope-scale", "--rope-freq-base", "--rope-freq-scale"),
        *("--yarn-orig-ctx", "--yarn-ext-factor", "--yarn-attn-factor", "--yarn-beta-slow"),
        *("--yarn-beta-fast", "--hf-overrides"),
    ),
    "each request sets it": (
        *("-s", "--seed", "-n", "--predict", "--n-predict", "--max-tokens"),
        *("-sys", "--system-prompt", "--chat-template-kwargs", "--reasoning-format"),
        *("-rea", "--reasoning", "--reasoning-budget", "--grammar-file", "-jf"),
        *("--json-schema-file", "-st", "--single-turn", "-sysf", "--system-prompt-file"),
    ),
    "Hearth runs no code of a model": ("--trust-remote-code",),
    "the last line has the speed": ("--verbose",),
    "the model is unloaded at the end": ("--keepalive",),
}


def instead_of(flag: str, known: Container[str]) -> str | None:
    """What to do in place of a flag of another program; None if that is not known.

    `known` are the options and the arguments of the command, as --help calls them. Underscores in
    a flag are read as hyphens.
    """
    flag = flag.replace("_", "-")
    for called, others in _CALLED.items():
        if flag in others and called.partition(" ")[0] in known:
            is_argument = not called.startswith("-")
            return f"give it as {called}, without a flag" if is_argument else f"use {called}"
    return next((f"omit it: {why}" for why, names in _NOT_NEEDED.items() if flag in names), None)
