"""Words of a shell as they are put together, and the marks of variables without a value in them."""

import re

_OPEN, _CLOSE = "\ue000", "\ue001"  # around the name of a variable that has no value
_MISSING = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#]")
_TEXT = re.compile(f"{_OPEN}(?!(?:{_PLAIN_NAME.pattern}){_CLOSE})")
_PROGRAM = re.compile(
    f"{_OPEN}\\w*?(vllm|sglang|trtllm-serve|llama-server)\\w*{_CLOSE}", re.IGNORECASE
)
PASSED = ("@", "*", "#", *"0123456789")  # what a script is given by whoever starts it


def missing_in(word: str) -> list[str]:
    """Names of the variables in a word that have no value."""
    return _MISSING.findall(word)


def is_passed(name: str) -> bool:
    """Whether a variable holds what a script was started with."""
    return name in PASSED


def shown(word: str) -> str:
    """A word for messages: its variables as they were written."""
    return _MISSING.sub(r"$\1", word)


def has_text(word: str) -> bool:
    """Whether a word lacks more than variables: what a command prints, or the script computes."""
    return _TEXT.search(word) is not None


def is_name(name: str) -> bool:
    """Whether it is the name of a variable, that a user can give, and no text of a script."""
    return _PLAIN_NAME.fullmatch(name) is not None


def named(word: str) -> str:
    """A word for whoever looks for a program: a variable without a value as the program that its
    name has in it (`$VLLM`, `${VLLM_BIN}`).
    """
    return _PROGRAM.sub(lambda found: found[1].lower(), word)


def missing(name: str) -> str:
    """A word that is a variable without a value."""
    return f"{_OPEN}{name}{_CLOSE}"


class Word:
    """A word while it is read; one expansion may make several of it."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self.parts: list[str] = []
        self.begun = False

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.begun = True

    def add_fields(self, fields: list[str]) -> None:
        """Several words: the first goes on what is there, and what follows on the last."""
        if not fields:
            return
        for each in fields[:-1]:
            self.parts.append(each)
            self.fields.append("".join(self.parts))
            self.parts = []
        self.parts.append(fields[-1])
        self.begun = True

    def done(self) -> list[str]:
        return [*self.fields, "".join(self.parts)] if self.begun else self.fields
