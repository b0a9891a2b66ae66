"""Notes on given options of `kvsim memory` that have no effect on its answer."""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any

import typer

from kvsim.commands.memory.engines import WAYS, flag, is_given
from kvsim.commands.memory.flags import PANELS
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.probing import decides

# A GPU is always named, and a way chooses the engine that answers.
_ASKED = ("device", "engine", *WAYS)


def idle_notes(
    context: typer.Context, flags: Mapping[str, Any], answer: Callable[[Mapping[str, Any]], Any]
) -> list[str]:
    """A note that lists the given options that have no effect; empty if all have one.

    An option has no effect if the answer is the same at the option's default and at other values of
    it. answer: computes all figures from the flags; raises InputError for flags it cannot answer.
    """
    full, idle = answer(flags), []

    def differs(name: str, value: Any) -> bool | None:
        found = _answer_or_none(answer, {**flags, name: value})
        return None if found is None else found != full

    for name, option in chain(*(panel.items() for panel in PANELS.values())):
        if name in _ASKED or not is_given(context, name) or flags[name] == option.default:
            continue
        if differs(name, option.default) is False and not decides(
            flags[name], partial(differs, name)
        ):
            idle.append(flag(name))
    if not idle:
        return []
    return [f"{', '.join(idle)} {'changes' if len(idle) == 1 else 'change'} nothing here."]


def _answer_or_none(answer: Callable[[Mapping[str, Any]], Any], flags: Mapping[str, Any]) -> Any:
    try:
        return answer(flags)
    except InputError:
        return None
