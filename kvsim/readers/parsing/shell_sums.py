"""Evaluate a shell's `$((...))`: integer arithmetic, comparisons and conditionals, without
assignments.
"""

import operator
import re
from collections.abc import Callable

_TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|[0-9]+|<=|>=|==|!=|&&|\|\||[-+*/%<>?:()!])")
_LONGEST = 200  # characters
_MOST = 1 << 62


def _quotient(one: int, other: int) -> int:
    """The quotient rounded towards zero, as in C."""
    found = abs(one) // abs(other)
    return found if (one < 0) == (other < 0) else -found


# Binary operators by precedence, the loosest first.
_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda one, other: int(bool(one or other))},
    {"&&": lambda one, other: int(bool(one and other))},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"+": operator.add, "-": operator.sub},
    {
        "*": operator.mul,
        "/": _quotient,
        "%": lambda one, other: one - other * _quotient(one, other),
    },
)


def whole_sum(text: str) -> int | None:
    """The value of an integer expression; None for anything else."""
    text = text.replace("$", "").strip()
    if len(text) > _LONGEST:
        return None
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[1])
        at = match.end()
    try:
        found, rest = _choice(tokens)
    except (ValueError, ZeroDivisionError, RecursionError):
        return None
    return found if not rest and abs(found) < _MOST else None


def _choice(tokens: list[str]) -> tuple[int, list[str]]:
    """(value, remaining tokens) of `CONDITION ? ONE : OTHER`."""
    found, rest = _binary(tokens, 0)
    if rest[:1] != ["?"]:
        return found, rest
    one, rest = _choice(rest[1:])
    if rest[:1] != [":"]:
        raise ValueError("no :")
    other, rest = _choice(rest[1:])
    return one if found else other, rest


def _binary(tokens: list[str], level: int) -> tuple[int, list[str]]:
    if level == len(_LEVELS):
        return _unary(tokens)
    found, rest = _binary(tokens, level + 1)
    while rest and rest[0] in _LEVELS[level]:
        other, after = _binary(rest[1:], level + 1)
        found, rest = int(_LEVELS[level][rest[0]](found, other)), after
    return found, rest


def _unary(tokens: list[str]) -> tuple[int, list[str]]:
    head, rest = tokens[:1], tokens[1:]
    if head == ["("]:
        found, rest = _choice(rest)
        if rest[:1] != [")"]:
            raise ValueError("no )")
        return found, rest[1:]
    if head and head[0] in "-+!":
        found, rest = _unary(rest)
        return {"-": -found, "+": found, "!": int(not found)}[head[0]], rest
    if not head or not head[0][0].isdigit():
        raise ValueError("no number")
    return int(head[0], 0) if head[0][:2] in ("0x", "0X") else int(head[0]), rest
