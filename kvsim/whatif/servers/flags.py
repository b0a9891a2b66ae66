"""Command-line flags of a server, from the options of a scenario."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kvsim.model.catalogue import named_model
from kvsim.plumbing.options import Options
from kvsim.whatif.advice.change import value_text

# Keys that name or wire a table, and set nothing of a server.
_OURS = ("kind", "label", "scheduler", "preemption_mode", "victim")


def changed(options: Options) -> Iterator[tuple[str, Any]]:
    """(name, value) of the options that are not at their defaults."""
    for name, field in type(options).model_fields.items():
        value = getattr(options, name)
        if name not in _OURS and value is not None and value != field.get_default():
            yield name, value


def flags(options: Options, names: Mapping[str, str], where: str) -> tuple[list[str], list[str]]:
    """Flags for the options that are not at their defaults, and comments on those without a flag.

    names: flag without dashes, by option. where: name of the options' table.
    """
    found, left = [], []
    for name, value in changed(options):
        flag = names.get(name)
        if flag is None:
            left.append(f"# no flag sets {where}.{name} = {value_text(value)}")
        elif isinstance(value, bool):
            found.append(f"--{'' if value else 'no-'}{flag}")
        else:
            found.append(f"--{flag} {value:g}" if isinstance(value, float) else f"--{flag} {value}")
    return found, left


def together(words: Iterable[str]) -> list[str]:
    """Join each flag with its value, quoted for a shell: `--port`, `80` becomes `--port 80`."""
    found: list[str] = []
    for word in words:
        if word.startswith("--"):
            found.append(word)
        else:
            found[-1] += f" {shlex.quote(word)}"
    return found


def written(program: str, arguments: Iterable[str], comments: Iterable[str]) -> str:
    """A command with one argument per line, followed by its comments."""
    lines = [program, *(f"    {each}" for each in arguments if each)]
    return "\n".join([" \\\n".join(lines), *comments])


def hub_id(name: str) -> str:
    """The model's id on Hugging Face, if the catalogue has one; else the name."""
    match = re.fullmatch(r"config\.json of (\S+) on Hugging Face", named_model(name).source)
    return name if "/" in name or match is None else match[1]


def changed_flags(before: str, after: str) -> str:
    """The arguments in which two commands differ, one per line, each with its value before the
    change.

    before, after: commands in the form that `written` returns.
    """
    was, now = ([each.removesuffix("\\").strip() for each in text.splitlines()]
                for text in (before, after))  # fmt: skip
    old = {_flag_name(each): each for each in was}
    new = {_flag_name(each) for each in now}
    lines = []
    for each in now:
        if each in was:
            continue
        today = old.get(_flag_name(each), "not set")
        lines.append(each if each.startswith("#") else f"{each}  # today: {today}")
    return "\n".join(
        [*lines, *(f"# without {each}" for name, each in old.items() if name not in new)]
    )


def _flag_name(argument: str) -> str:
    """The name of an argument, equal for `--flag` and `--no-flag`; for a comment or the program,
    its first words.
    """
    if not argument.startswith("--"):
        return " ".join(argument.split(" = ")[0].split()[:5])
    return "--" + argument.split()[0].removeprefix("--").removeprefix("no-")
