"""The clients, and environments with the packages of one client each.

The packages of two clients may exclude each other, so each client has an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CHECKS = "tools.clients.checks"


@dataclass(frozen=True)
class PipClient:
    """A client of the Python Package Index; `script` is a module in a folder of `checks`."""

    packages: tuple[str, ...]
    script: str
    python: str = "3.12"
    options: tuple[str, ...] = ()  # of the installation
    is_agent: bool = False  # it asks scripted_model.py

    def install(self, folder: Path) -> None:
        """Install the newest packages; raises CalledProcessError."""
        _run("uv", "venv", "--quiet", "--allow-existing", "--python", self.python, str(folder))
        python = str(_python(folder))
        install = ("uv", "pip", "install", "--quiet", "--upgrade", "--python", python)
        _run(*install, *self.options, *self.packages)

    def command(self, folder: Path) -> list[str]:
        """The command that checks the features."""
        return [str(_python(folder)), "-m", f"{_CHECKS}.{self.script}"]


@dataclass(frozen=True)
class NpmClient:
    """A client of npm; `script` is a module in a folder of `checks`, or a file of JavaScript."""

    packages: tuple[str, ...]
    script: str
    is_agent: bool = False  # it asks scripted_model.py

    def install(self, folder: Path) -> None:
        """Install the newest packages; raises CalledProcessError."""
        folder.mkdir(parents=True, exist_ok=True)
        packages = [f"{package}@latest" for package in self.packages]
        _run("npm", "install", "--silent", "--prefix", str(folder), *packages)

    def command(self, _folder: Path) -> list[str]:
        """The command that checks the features, in the folder."""
        if self.script.endswith(".mjs"):
            return ["node", str(ROOT / "tools/clients/checks" / self.script)]
        return [sys.executable, "-m", f"{_CHECKS}.{self.script}"]


CLIENTS: dict[str, PipClient | NpmClient] = {
    "openai": PipClient(("openai",), "sdks.openai_package"),
    "openai-agents": PipClient(("openai-agents",), "frameworks.openai_agents"),
    "anthropic": PipClient(("anthropic",), "sdks.anthropic_package"),
    "ollama": PipClient(("ollama", "pydantic"), "sdks.ollama_package"),
    "google-genai": PipClient(("google-genai",), "sdks.google_genai_package"),
    "mistralai": PipClient(("mistralai",), "sdks.mistral_package"),
    "huggingface_hub": PipClient(("huggingface_hub",), "sdks.hugging_face_package"),
    "AI SDK": NpmClient(
        (
            "ai",
            "@ai-sdk/openai",
            "@ai-sdk/openai-compatible",
            "@ai-sdk/anthropic",
            "@ai-sdk/google",
            "ollama-ai-provider-v2",
            "zod",
        ),
        "frameworks/ai_sdk.mjs",
    ),
    "SDKs for JavaScript": NpmClient(
        (
            "openai",
            "@anthropic-ai/sdk",
            "@google/genai",
            "ollama",
            "@mistralai/mistralai",
            "@huggingface/inference",
            "zod",
        ),
        "sdks/javascript.mjs",
        is_agent=True,
    ),
    "Codex": NpmClient(("@openai/codex",), "coding_agents.codex", is_agent=True),
    "Claude Code": NpmClient(
        ("@anthropic-ai/claude-code",), "coding_agents.claude_code", is_agent=True
    ),
    "Claude Agent SDK": PipClient(
        ("claude-agent-sdk",), "coding_agents.claude_agent_package", is_agent=True
    ),
    "Copilot CLI": NpmClient(("@github/copilot",), "coding_agents.copilot", is_agent=True),
    "Cline": NpmClient(("cline",), "coding_agents.cline", is_agent=True),
    "Continue": NpmClient(("@continuedev/cli",), "coding_agents.continue_cli", is_agent=True),
    "opencode": NpmClient(("opencode-ai",), "coding_agents.opencode", is_agent=True),
    "Gemini CLI": NpmClient(("@google/gemini-cli",), "coding_agents.gemini_cli", is_agent=True),
    "Qwen Code": NpmClient(("@qwen-code/qwen-code",), "coding_agents.qwen_code", is_agent=True),
    "Kimi Code": NpmClient(("@moonshot-ai/kimi-code",), "coding_agents.kimi_code", is_agent=True),
    "Pi": NpmClient(("@earendil-works/pi-coding-agent",), "coding_agents.pi", is_agent=True),
    "langchain-openai": PipClient(("langchain-openai",), "frameworks.langchain"),
    "langchain-ollama": PipClient(("langchain-ollama",), "frameworks.langchain"),
    "LangChain.js": NpmClient(
        (
            "@langchain/core",
            "@langchain/openai",
            "@langchain/anthropic",
            "@langchain/ollama",
            "zod",
        ),
        "frameworks/langchain.mjs",
    ),
    "langgraph": PipClient(
        ("langgraph", "langchain", "langchain-openai", "langchain-mcp-adapters"),
        "frameworks.langgraph_package",
        is_agent=True,
    ),
    "litellm": PipClient(("litellm",), "frameworks.litellm_package"),
    "jupyter-ai": PipClient(
        ("jupyter-ai-magic-commands", "ipython"), "applications.jupyter_ai_package"
    ),
    "llama-index": PipClient(
        (
            "llama-index-llms-openai-like",
            "llama-index-llms-ollama",
            "llama-index-embeddings-openai-like",
            "llama-index-embeddings-ollama",
        ),
        "frameworks.llama_index_packages",
    ),
    "instructor": PipClient(("instructor",), "frameworks.instructor_package"),
    "pydantic-ai": PipClient(
        ("pydantic-ai-slim[openai,anthropic]",), "frameworks.pydantic_ai_package"
    ),
    "agent-framework": PipClient(
        ("agent-framework-openai", "mcp", "tenacity"),
        "frameworks.agent_framework_package",
        is_agent=True,
    ),
    "agno": PipClient(("agno", "openai"), "frameworks.agno_package", is_agent=True),
    "autogen": PipClient(
        ("autogen-ext[openai,ollama]", "autogen-agentchat"),
        "frameworks.autogen_packages",
        is_agent=True,
    ),
    "strands-agents": PipClient(
        ("strands-agents[openai,anthropic,ollama]",), "frameworks.strands_package", is_agent=True
    ),
    "crewai": PipClient(("crewai", "litellm"), "frameworks.crewai_package", is_agent=True),
    "outlines": PipClient(("outlines[openai,ollama]",), "frameworks.outlines_package"),
    "Mastra": NpmClient(("@mastra/core", "zod"), "frameworks/mastra.mjs", is_agent=True),
    "OpenAI Agents for JavaScript": NpmClient(
        ("@openai/agents", "zod"), "frameworks/openai_agents.mjs", is_agent=True
    ),
    "LlamaIndex.TS": NpmClient(
        ("llamaindex", "@llamaindex/openai", "@llamaindex/ollama", "@llamaindex/workflow", "zod"),
        "frameworks/llama_index.mjs",
        is_agent=True,
    ),
    "Genkit": NpmClient(
        ("genkit", "@genkit-ai/compat-oai", "genkitx-ollama"),
        "frameworks/genkit.mjs",
        is_agent=True,
    ),
    "semantic-kernel": PipClient(("semantic-kernel",), "frameworks.semantic_kernel_package"),
    "haystack": PipClient(("haystack-ai",), "frameworks.haystack_package"),
    "dspy": PipClient(("dspy", "numpy"), "frameworks.dspy_package"),
    "smolagents": PipClient(("smolagents[openai]",), "frameworks.smolagents_package"),
    "aider": PipClient(("aider-chat",), "coding_agents.aider_package"),
    "llm": PipClient(("llm",), "applications.llm_package", is_agent=True),
    # It has 1.7 GB of packages, without PyTorch for CUDA.
    "Open WebUI": PipClient(
        ("open-webui",), "applications.open_webui", options=("--torch-backend", "cpu")
    ),
    "Home Assistant": PipClient(
        (
            "homeassistant>=2026.11",
            "ollama",
            "voluptuous-openapi",
            "hassil",
            "home-assistant-intents",
            "gazetteer-matcher",
        ),
        "applications.home_assistant",
        python="3.14",
    ),
}


def environment() -> dict[str, str]:
    """The variables of a check, which finds this repository in any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
