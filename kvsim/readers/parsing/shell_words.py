"""Build the words of a shell command, with marks around variables without a value."""

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
    """Whether a variable is a script's or function's argument, such as $1 or $@."""
    return name in PASSED


def shown(word: str) -> str:
    """A word for messages, with variables as they are written in the script."""
    return _MISSING.sub(r"$\1", word)


def has_text(word: str) -> bool:
    """Whether a word lacks more than plain variables, for example the output of a command."""
    return _TEXT.search(word) is not None


def is_name(name: str) -> bool:
    """Whether a missing value is a plain variable, which the user can set."""
    return _PLAIN_NAME.fullmatch(name) is not None


def named(word: str) -> str:
    """A word in which a variable without a value is replaced by the program in its name: `$VLLM`
    and `${VLLM_BIN}` become `vllm`.
    """
    return _PROGRAM.sub(lambda found: found[1].lower(), word)


def missing(name: str) -> str:
    """A marked word that represents a variable without a value."""
    return f"{_OPEN}{name}{_CLOSE}"


class Word:
    """A word while it is read; one expansion can split it into several."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self.parts: list[str] = []
        self.begun = False

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.begun = True

    def add_fields(self, fields: list[str]) -> None:
        """Add several words: the first is joined to the current word, and later text to
        the last.
        """
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
