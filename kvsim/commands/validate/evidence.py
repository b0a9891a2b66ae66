"""The commands of `kvsim validate` whose code is in `evidence/`: a checkout has this folder, an
installed wheel has not.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import kvsim
from kvsim.commands.example import example
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.places import standing_at

# A command of `kvsim validate`: the function that is this command, and its help where the function
# cannot be imported.
COMMANDS = {
    "paper": (
        "evidence.paper.command:paper",
        "Reproduce the PagedAttention paper and its successors (in a checkout).",
    ),
    "cache": (
        "evidence.cache.command:validate_cache",
        "Compare decoding with a KV cache to recomputation (in a checkout).",
    ),
}
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_evidence(app: typer.Typer) -> None:
    """Register every command of COMMANDS with `app`; without `evidence/` the command raises
    InputError.
    """
    for name, (place, help_text) in COMMANDS.items():
        command = _imported(place)
        epilog = example(f"kvsim validate {name}")
        if command is not None:
            app.command(name, epilog=epilog)(command)
        else:
            register = app.command(
                name, context_settings=ANY_ARGUMENTS, help=help_text, epilog=epilog
            )
            register(_refusal(name))


def _imported(place: str) -> Callable[..., Any] | None:
    """The function `module:name`, searched beside kvsim's own folder last; None without evidence.

    An editable install puts kvsim on sys.path, but not the checkout that it lies in.
    """
    checkout = str(Path(kvsim.__file__).parents[1])
    if checkout not in sys.path:
        sys.path.append(checkout)
    try:
        found: Callable[..., Any] = standing_at(place)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "evidence":
            raise
        return None
    return found


def _refusal(name: str) -> Callable[[], None]:
    def refuse() -> None:
        raise InputError(
            "needs the folder evidence/, which a checkout has and an installed kvsim has not",
            where=f"kvsim validate {name}",
            remedy=f"in a checkout of kvsim run: python -m kvsim validate {name}",
        )

    return refuse
