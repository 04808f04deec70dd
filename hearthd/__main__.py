"""`python -m hearthd`: the same as the command `hearth`."""

from hearthd.cli import main

if __name__ == "__main__":
    main()
