"""``python -m creditrl.cli`` is ``creditrl``."""

from creditrl.cli import main

if __name__ == "__main__":
    main()
