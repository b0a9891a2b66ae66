"""Entry point of the commands `kvsim` and `python -m kvsim`.

Ctrl-C ends the command silently at any time, with the shells' exit code for an interrupt. That
includes the time when the command's modules are imported.
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
