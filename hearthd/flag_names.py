"""The names of command-line flags, for modules that do not import Typer."""


def flag(name: str) -> str:
    """The flag of a field."""
    return f"--{name.replace('_', '-')}"
