"""`python -m eqkin` is the same as the command `eqkin`."""

from eqkin.cli import main

if __name__ == "__main__":
    main()
