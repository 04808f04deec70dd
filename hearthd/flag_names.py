"""The names of command-line flags, for modules that do not import Typer."""


def flag(name: str) -> str:
    """The flag of a field. A name that is a keyword of Python has an underscore behind it."""
    return f"--{name.rstrip('_').replace('_', '-')}"
