"""`python -m hearth`: the same as the command `hearth`."""

from hearth.cli import main

if __name__ == "__main__":
    main()
