"""The command as it is started, by its name or as `python -m kvsim`.

Ctrl-C ends it without a word at any time, with the code that shells report for it: while what the
command needs is imported too, where nobody else minds it yet.
"""

import sys

from kvsim.plumbing.process import INTERRUPTED, lean


def main() -> None:
    """Run the command line, and leave quietly when interrupted."""
    try:
        lean()
        from kvsim.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
