"""`python -m ckio` is the command `ckio`."""

from ckio.cli import main

if __name__ == "__main__":
    main()
