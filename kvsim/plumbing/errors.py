"""The exceptions of kvsim, which the command line turns into exit codes.

    KvsimError
    |- InputError       the user's input is wrong: one line, exit 2
    `- InvariantError   kvsim is wrong: exit 1

An `InputError` reads as one line: what is wrong, where, the value found, the limit it met and the
remedy.
"""

import re


class KvsimError(Exception):
    """Base of all exceptions that kvsim raises on purpose."""


class InputError(KvsimError):
    """The user's input cannot be used; the message is one line.

    what is the fault, where the file, row, key or flag, value the value found. limit says what
    would have been accepted, remedy what the user can do.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        value: object = None,
        limit: object = None,
        remedy: str | None = None,
    ) -> None:
        self.what, self.value, self.limit = what, value, limit
        self.where, self.remedy = where, remedy
        place = "" if where is None else f"{_one_line(where)}: "
        parts = [place + _one_line(what)]
        if value is not None:
            parts.append(f"got {_one_line(value)}")
        if limit is not None:
            parts.append(f"limit {_one_line(limit)}")
        if remedy is not None:
            parts.append(_one_line(remedy, MOST_OF_REMEDY))
        super().__init__("; ".join(parts))

    def at(self, where: str | None) -> "InputError":
        """A copy of the error with another `where`."""
        return InputError(
            self.what, where=where, value=self.value, limit=self.limit, remedy=self.remedy
        )


class InvariantError(KvsimError):
    """Something that must always hold did not: a fault of kvsim, never of the user's input."""


MISSING = "required key is missing"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # a label quoted in a place, a file's name
MOST_OF_REMEDY = 600  # characters: it may list the keys of a table


def _one_line(value: object, most: int = 300) -> str:
    text = _CONTROL.sub(lambda sign: f"\\u{ord(sign[0]):04x}", " ".join(str(value).split()))
    return text if len(text) <= most else text[: most - 3] + "..."
