"""Every exception that ends a bake and has a message for the user."""

from __future__ import annotations

from baker.atomic_folder import BakeError
from baker.compiler.compilation import CompileError
from baker.compiler.kernel_objects import KernelError
from baker.compiler.targets import TargetError
from baker.parameters.quantization import NotFiniteError
from baker.pipeline.prompt_prefix import PrefixError
from baker.pipeline.recipe import RecipeError
from baker.weights.source import WeightsError
from models.bundle import BundleError
from models.config import ConfigError
from models.dsl.types import DslError

BAKE_ERRORS: tuple[type[Exception], ...] = (
    BakeError, BundleError, CompileError, ConfigError, DslError, KernelError,
    NotFiniteError, OSError, PrefixError, RecipeError, TargetError, WeightsError,
)  # fmt: skip
