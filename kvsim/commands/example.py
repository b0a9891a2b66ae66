"""The example at the end of a command's `--help`."""


def example(line: str) -> str:
    """The epilog of a command that shows this line."""
    return f"Example: `{line}`"
