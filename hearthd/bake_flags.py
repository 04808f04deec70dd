"""Flags of `hearth bake` for commands that bake a model first if it is missing.

They are derived from the schema of a bake when one of them is typed, and for --help. A command that
opens a bundle imports no baker.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import typer
from typing_extensions import override

from hearthd import flags
from hearthd.cli import missing_baker

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "bake_"
_SECTION = "Bake, if the model is not a bundle yet (more: hearth bake --help)"


class BakesFirst(flags.GroupedOptions):
    """A command that takes flags of a bake besides its own.

    The context's `obj` has the typed texts by the names of fields. A flag that the command has
    itself keeps its meaning there.
    """

    _derived = False

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Called by Typer."""
        unknown = next(self._unknown(args), None)
        if unknown:
            try:
                self._derive()
            except ModuleNotFoundError as error:
                problem = flags.UsageError(
                    f"No such option: {unknown}; for an option of `hearth bake`, "
                    f"{missing_baker(error)}.",
                    ctx,
                )
                problem.option_name = unknown  # as of Typer's error
                raise problem from error
        try:
            remaining: list[str] = super().parse_args(ctx, args)
        except flags.UsageError:  # whose message can name an option of `hearth bake`
            with contextlib.suppress(ModuleNotFoundError):
                self._derive()
            raise
        names = [name for name in ctx.params if name.startswith(_PREFIX)]
        typed = {name.removeprefix(_PREFIX): ctx.params.pop(name) for name in names}
        ctx.obj = {name: text for name, text in typed.items() if text is not None}
        return remaining

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Called by Typer, for --help. On a device without the baker, its flags are not listed."""
        try:
            self._derive()
        except ModuleNotFoundError as error:
            missing_baker(error)
        super().format_options(ctx, formatter)

    def _unknown(self, args: list[str]) -> Iterator[str]:
        """The options among arguments that the command itself does not have."""
        known = {"--help", *self._options()}
        for argument in args:
            if argument == "--":
                return
            option = argument.partition("=")[0]
            if option.startswith("--") and option not in known:
                yield option

    def _options(self) -> Iterator[str]:
        for parameter in self.params:
            yield from (*parameter.opts, *parameter.secondary_opts)

    def _derive(self) -> None:
        """Add the flags of a bake, once; raises ModuleNotFoundError without the baker."""
        if not self._derived:
            taken = set(self._options())
            self.params += [flag for flag in _parameters() if not taken & {*flag.opts}]
            self._derived = True


def _parameters() -> Iterator[Any]:
    """Typer's parameters for the options of a bake of a text model that its record has."""
    from hearthd.baker.pipeline.bake_options import BakeOptions, options_recorded_for

    derived = options_recorded_for("language model")
    app = typer.Typer(add_completion=False)

    @app.command()
    @flags.takes(BakeOptions, leave_out=frozenset(BakeOptions.model_fields) - derived)
    def command(**options: Any) -> None:
        """Has the flags."""

    for parameter in typer.main.get_command(app).params:
        parameter.name = f"{_PREFIX}{parameter.name}"
        vars(parameter)["rich_help_panel"] = _SECTION
        yield parameter
