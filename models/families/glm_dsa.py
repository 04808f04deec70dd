"""GLM-5: the layers of DeepSeek-V3.2, some of which read the tokens that an earlier one chose.

Source: the model `glm_moe_dsa` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import replace

from hearthd.models.families import deepseek32

ARCHITECTURE = replace(deepseek32.ARCHITECTURE, name="glm-dsa", model_types=("glm_moe_dsa",))
