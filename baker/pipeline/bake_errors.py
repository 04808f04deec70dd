"""Every exception that ends a bake and has a message for the user."""

from __future__ import annotations

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.compiler.compilation import CompileError
from hearthd.baker.compiler.kernel_objects import KernelError
from hearthd.baker.compiler.targets import TargetError
from hearthd.baker.parameters.quantization import NotFiniteError
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.weights.source import WeightsError
from hearthd.bundle import BundleError
from hearthd.models.config import ConfigError
from hearthd.models.dsl.types import DslError

BAKE_ERRORS: tuple[type[Exception], ...] = (
    BakeError, BundleError, CompileError, ConfigError, DslError, KernelError,
    NotFiniteError, OSError, RecipeError, TargetError, WeightsError,
)  # fmt: skip
