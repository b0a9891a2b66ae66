"""The commands of `kvsim validate` implemented in `evidence/`, a folder that a source checkout has
and an installed wheel lacks.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import typer

import kvsim
from kvsim.commands.example import example
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.places import standing_at


class EvidenceCommand(NamedTuple):
    """A command of `kvsim validate` that is implemented in `evidence/`.

    place: the function, as `module:name`. help: its --help text if the function cannot be imported.
    example: the example at the end of its --help.
    """

    place: str
    help: str
    example: str


COMMANDS = {
    "schedule": EvidenceCommand(
        "evidence.schedule.command:schedule",
        "Replay recorded schedules and compare every row (in a checkout).",
        "kvsim validate schedule tests/evidence/schedule/schedules",
    ),
    "logs": EvidenceCommand(
        "evidence.logs.command:logs",
        "Size the KV pool of servers and compare it with their logs (in a checkout).",
        "kvsim validate logs startup-logs.csv",
    ),
    "points": EvidenceCommand(
        "evidence.points.command:points",
        "Simulate measured serving points and compare TTFT and TPOT (in a checkout).",
        "kvsim validate points points.csv --half judge",
    ),
    "paper": EvidenceCommand(
        "evidence.paper.command:paper",
        "Reproduce the PagedAttention paper and its successors (in a checkout).",
        "kvsim validate paper",
    ),
    "cache": EvidenceCommand(
        "evidence.cache.command:validate_cache",
        "Compare decoding with a KV cache to recomputation (in a checkout).",
        "kvsim validate cache",
    ),
}
ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_evidence(app: typer.Typer) -> None:
    """Register every command of COMMANDS with `app`. Without `evidence/`, a command raises
    InputError when it is run.
    """
    for name, each in COMMANDS.items():
        command, epilog = _imported(each.place), example(each.example)
        if command is not None:
            app.command(name, epilog=epilog)(command)
        else:
            register = app.command(
                name, context_settings=ANY_ARGUMENTS, help=each.help, epilog=epilog
            )
            register(_refusal(name))


def _imported(place: str) -> Callable[..., Any] | None:
    """Import the function `module:name`; None if `evidence/` is not found on sys.path or in the
    checkout.

    The checkout's folder is searched last: an editable install puts kvsim on sys.path, but not the
    checkout that contains it.
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
