"""A server's command line: in a shell script, in a manifest of Kubernetes or compose, or by itself.

Only arguments that a reader knows are read; of the others the names are reported and the values,
which may be keys and tokens, are not looked at.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Container, Mapping
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.listed_words import listed_words, lists
from kvsim.readers.parsing.unread_flags import unread_notes

_MANIFEST = re.compile(r"^[ \t]*(?:-[ \t]+)?(?:command|args|entrypoint):", re.MULTILINE)
_VARIABLE = re.compile(r"\$[{(]?\w+")
_MODEL = ("--model", "--model-path", "--model_path")
_OPERATORS = frozenset(("&&", "||", ";", "|", "&", ">", ">>", "2>&1", "&>", "<", "2>"))


class Program(NamedTuple):
    """A server's program. serves: the command, up to where its arguments begin. image: its
    container's image, the version in a group. known: names of the arguments that are read; short:
    other spellings of them; switches: those without a value; bare: names without a value that
    are not read, behind which the model may stand. lists: names whose numbers may be several words.
    abbreviates: the start of a name stands for it, where no other begins so (Python's argparse).
    """

    serves: re.Pattern[str]
    image: re.Pattern[str]
    known: Collection[str]
    short: Mapping[str, str]
    switches: Container[str]
    bare: re.Pattern[str]
    lists: Container[str] = ()
    abbreviates: bool = False

    def stands_in(self, text: str) -> bool:
        """Whether the text, which is no log, has such a command."""
        if self._is_manifest(text):
            return True
        lines = text.splitlines()
        return any(self._starts(line) for line in lines) and not any(
            " INFO " in line or "non-default args" in line for line in lines
        )

    def arguments(self, text: str, where: str) -> "Arguments":
        """The arguments of the first such command; InputError names a flag that cannot be read."""
        words, version = self._words(text, where)
        known, unread, flagged = _arguments(words, where, self)
        return Arguments(known, unread, flagged, version, self.known)

    def full(self, name: str) -> str:
        """The name that these words are the start of; themselves where they are of none."""
        if not self.abbreviates or name in self.known or "_" not in name:
            return name
        begun = [each for each in self.known if each.startswith(name)]
        return begun[0] if len(begun) == 1 else name

    def _starts(self, line: str) -> re.Match[str] | None:
        if line.lstrip().startswith("#"):
            return None
        return self.serves.search(line) or self.image.search(line)

    def _is_manifest(self, text: str) -> bool:
        """Whether it lists the words of the command."""
        if not _MANIFEST.search(text):
            return False
        words = listed_words(text)
        return self.serves.search(" ".join(words)) is not None or (
            any(word.startswith("--") for word in words) and self.image.search(text) is not None
        )

    def _words(self, text: str, where: str) -> tuple[list[str], str | None]:
        """The words behind the command, and the version that its image names."""
        if self._is_manifest(text):
            self._check_one(text, where)
            listed = " ".join(shlex.quote(word) for word in listed_words(text))
            serves = self.serves.search(listed)
            image = self.image.search(text)
            words = shlex.split(listed[serves.end() :] if serves else listed)
        else:
            lines = re.sub(r"\\\r?\n", " ", text).splitlines()
            line, start = next(
                (line, start) for line in lines if (start := self._starts(line)) is not None
            )
            image = self.image.search(line)
            try:
                words = shlex.split(line[start.end() :], comments=True)
            except ValueError as fault:
                raise InputError(f"not a command line: {fault}", where=where) from None
        stop = next((at for at, word in enumerate(words) if word in _OPERATORS), len(words))
        return words[:stop], image and image[1]

    def _check_one(self, text: str, where: str) -> None:
        """InputError if the manifest starts servers with different flags. A command and its
        arguments may be two lists, so those under the same key are counted.
        """
        servers = Counter(
            key
            for key, words in {(key, tuple(words)) for key, words in lists(text)}
            if self.serves.search(" ".join(words))
            or any(word.partition("=")[0] in _MODEL for word in words)
        )
        if servers and (most := max(servers.values())) > 1:
            raise InputError(
                "the file starts servers with different flags",
                where=where,
                value=most,
                limit=1,
                remedy="give a file of each server alone, or kvsim import '<command line>'",
            )


class Arguments(NamedTuple):
    """known: arguments by name. unread: names of the flags that are not read. flagged: values of
    `--config`, which name files with more arguments. version: of the container's image. names: of
    the arguments that are read.
    """

    known: dict[str, Any]
    unread: set[str]
    flagged: list[str]
    version: str | None
    names: Collection[str] = ()

    def notes(self) -> list[str]:
        """Notes on what is not read."""
        return unread_notes(
            [*self.unread, *(f"--config {each}" for each in self.flagged)], self.names
        )


def number_or_text(text: str) -> Any:
    """What JSON has for it, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _arguments(
    words: list[str], where: str, program: Program
) -> tuple[dict[str, Any], set[str], list[str]]:
    arguments: dict[str, Any] = {}
    unread: set[str] = set()
    files: list[str] = []
    at = 0
    is_model = True
    while at < len(words):
        word, at = words[at], at + 1
        if not word.startswith("-"):
            if is_model and "model" not in arguments and not word.isdigit():
                arguments["model"] = _written_out(word, where)
            is_model = True  # behind the value of a flag that is not read
            continue
        is_model = False
        flag, equals, value = word.partition("=")
        head, dot, key = flag.partition(".")
        name = program.short.get(head, head.lstrip("-").replace("-", "_"))
        off = name.startswith("no_") and name[3:] in program.switches
        name = program.full(name[3:] if off else name)
        follows = at < len(words) and not words[at].startswith("--")
        if name == "config" and (equals or follows):
            files.append(value if equals else words[at])
            at += not equals
            is_model = True
            continue
        if dot and name in program.known and (equals or follows):
            table = arguments.setdefault(name, {})
            if isinstance(table, dict):
                table[key.replace("-", "_")] = number_or_text(value if equals else words[at])
            at += not equals
            is_model = True
            continue
        if dot or name not in program.known:
            unread.add(flag)
            is_model = bool(equals) or program.bare.match(name) is not None
            continue
        is_model = True  # what follows its value is a positional argument
        if off:
            value = "false"
        elif not equals and name in program.switches:
            value = "true"
            if follows and words[at].lower() in ("true", "false"):
                value, at = words[at], at + 1
        elif not equals:
            if not follows:
                raise InputError("a flag without its value", where=where, value=flag)
            value, at = words[at], at + 1
            while name in program.lists and at < len(words) and words[at].isdigit():
                value, at = f"{value},{words[at]}", at + 1
        arguments[name] = _written_out(value, f"{where}: {flag}")
    return arguments, unread, files


def _written_out(value: str, where: str) -> str:
    """The value; InputError if it is a variable of the shell or the manifest."""
    if _VARIABLE.match(value):
        raise InputError(
            "a shell variable, whose value is not here",
            where=where,
            value=value,
            remedy="write its value into the command line",
        )
    return value
