"""Help of `kvsim memory`: the options of one engine at a time."""

from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from kvsim.commands.memory.flags import PANELS, PANELS_OF

ENGINE = "kvsim.engine"  # the key of the named engine in click's context


class EngineCommand(TyperCommand):
    """A command with the options of several engines. Its --help shows only the options of `--engine
    NAME`, or of vLLM by default; every option is still accepted.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, but read `--engine` first, because parsing ends at `--help`."""
        words = [part for word in args for part in word.split("=", 1)]
        named = dict(pairwise(words)).get("--engine")
        ctx.meta[ENGINE] = named if named in PANELS_OF else "vllm"
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without the panels of other engines."""
        others = set(PANELS) - set(PANELS_OF[ctx.meta[ENGINE]])
        hidden: list[Any] = [
            each for each in self.params if getattr(each, "rich_help_panel", None) in others
        ]
        for each in hidden:
            each.hidden = True
        try:
            super().format_help(ctx, formatter)
        finally:
            for each in hidden:
                each.hidden = False
