"""`python -m deuteron` is the command `deuteron`."""

import sys

from deuteron.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
