"""Find and parse a server's command line: in a shell script, a Kubernetes or compose manifest, or
by itself.

Only arguments that a reader knows are parsed. Other arguments are reported by name; their values,
which may be API keys, are ignored.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing import manifests, shell
from kvsim.readers.parsing.manifests import StartedServer
from kvsim.readers.parsing.raw_flags import OF_ENGINES, SECRET
from kvsim.readers.parsing.shell_words import is_passed, missing_in, named, shown
from kvsim.readers.parsing.unread_flags import unread_notes

_MANIFEST = re.compile(r"^[ \t]*(?:-[ \t]+)?(?:command|args|entrypoint):", re.MULTILINE)
_BLOCK = re.compile(r"^[ \t]*(?:-[ \t]+)?[\w.-]+:[ \t]*[|>][-+]?\d?[ \t]*$", re.MULTILINE)
_NESTED = 3  # scripts in words of scripts
# Commands that run a text; whatever a word without a flag says to another one may be a message.
_SHELLS = re.compile(
    r"(?:\S*/)?(?:ba|z|da|k)?sh|ssh|srun|sbatch|tmux|screen|eval|exec|nohup|su|sudo|timeout|env|"
    r"setsid|docker|podman|time|numactl|mpirun"
)
_OTHERS = re.compile(r"(?:\S*/)?(?:(?:ba|z|da|k)?sh|python[\d.]*|ray|sleep|tail|nginx)")
_ASKS = frozenset(("--version", "--help", "-h", "-V"))
# Commands of which no word is a command.
_ONLY_TELL = re.compile(
    r"(?:\S*/)?(?:\w*kill\w*|pgrep|grep|egrep|rg|awk|sed|ps|echo|printf|\w*log\w*|"
    r"warn\w*|err\w*|die|info|fail\w*|usage|trap|"
    r"git|cmake|make|ninja|cp|mv|rm|ls|ln|mkdir|chmod|chown|find|test|cd|cat|tee|head|tail|curl|"
    r"wget|pip3?|apt|apt-get|brew|kubectl|systemctl|which|type|hash|jq|\[|\[\[)"
)
_CONTAINERS = ("docker", "podman")
_NO_RUN = (
    "build",
    "buildx",
    "pull",
    "push",
    "tag",
    "images",
    "inspect",
    "stop",
    "rm",
    "logs",
    "ps",
)
_COMMENT_BELOW = re.compile(r"\\[ \t]{1,8}(?:#[^\n]{0,200})?\n")
_FLAG_BELOW = re.compile(r"(?<![\\\s;|&])[ \t]{0,8}\n(?=[ \t]{1,80}--?[A-Za-z])")


class Program(NamedTuple):
    """A server program, and how its command line looks.

    serves matches the command up to its arguments. image matches the container image, with the
    version as a group. known are the names of parsed arguments, short maps other spellings to
    these. switches are arguments without a value. bare matches unparsed arguments without a value,
    after which the model may follow. lists are arguments that take several numbers. abbreviates: a
    unique prefix of a name is accepted, as in Python's argparse.
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
        """Whether the text contains such a command and is not a log."""
        text = text.replace("\r\n", "\n")
        if self._is_manifest(text):
            return True
        lines = text.splitlines()
        return any(self._starts(line) for line in lines) and not any(
            " INFO " in line or "non-default args" in line for line in lines
        )

    def arguments(
        self,
        text: str,
        where: str,
        given: Mapping[str, str] | None = None,
        server: StartedServer | None = None,
    ) -> "Arguments":
        """Parse the arguments of the first such command; InputError for a flag without its value,
        or for several different servers.

        given has values of shell variables. server chooses one of several servers in a manifest.
        """
        text = text.replace("\r\n", "\n")
        if self._is_manifest(text):
            found = self._of_manifest(text, where, given or {}, server)
        else:
            found = self._of_script(text, where, given or {})
        if not found.words:
            found.remarks.append("no flag of the server is found in it")
        return self.of_words(found.words, where)._replace(
            version=found.version,
            environment=found.environment,
            remarks=found.remarks,
            used=found.used,
        )

    def servers(self, text: str, where: str, given: Mapping[str, str]) -> list[StartedServer]:
        """The servers that a manifest starts with different flags; empty for any other text."""
        text = text.replace("\r\n", "\n")
        try:
            found = self._in_manifest(text, where, given) if self._is_manifest(text) else []
        except InputError:
            return []
        return [StartedServer(at, each.role, each.replicas) for at, each in enumerate(found)]

    def of_words(self, words: Sequence[str], where: str) -> "Arguments":
        """Parse a command's words into arguments."""
        return _arguments(list(words), where, self)

    def full(self, name: str) -> str:
        """Complete an abbreviated argument name, such as `max_num_b`; it is unchanged if several
        names begin so, or none.
        """
        if not self.abbreviates or name in self.known or "_" not in name:
            return name
        begun = [each for each in self.known if each.startswith(name)]
        return begun[0] if len(begun) == 1 else name

    def _starts(self, line: str) -> re.Match[str] | None:
        if line.lstrip().startswith("#"):
            return None
        return self.serves.search(line) or self.image.search(line)

    def _is_manifest(self, text: str) -> bool:
        """Whether the text is YAML that contains the command, as a list of words or as one text."""
        if not _MANIFEST.search(text):
            return (
                not text.startswith("#!")
                and _BLOCK.search(text) is not None
                and self.serves.search(text) is not None
            )
        bare = re.sub(r"[\"',\[\]]+|^\s*-\s|\s-\s", " ", text, flags=re.MULTILINE)
        return self.serves.search(re.sub(r"\s+", " ", bare)) is not None or (
            "--" in text and self.image.search(text) is not None
        )

    def _of_script(self, text: str, where: str, given: Mapping[str, str]) -> "_Command":
        text = self._joined(text)
        try:
            found = list(self._commands(text, given))
        except InputError as fault:
            found = self._of_one_line(text, where, given, fault)
        if not found:
            found = self._of_one_line(text, where, given, None)
        found = [each for each in found if {*each.words} - _ASKS] or found
        found = [each for each in found if not _follows(each.words)] or found
        first = found[0]
        several = {each.words for each in found}
        if len(several) > 1:
            first.remarks.append(f"{len(several)} commands start a server: the first is taken")
        return first

    def _joined(self, text: str) -> str:
        """The text with the command joined into one logical line.

        Pasted commands may have comments after a backslash, or flags on separate lines without
        backslashes.
        """
        text = _COMMENT_BELOW.sub("\\\\\n", text)
        match = self.serves.search(text)
        if match is None:
            return text
        return text[: match.start()] + _FLAG_BELOW.sub(" \\\\\n", text[match.start() :])

    def _of_one_line(
        self, text: str, where: str, given: Mapping[str, str], fault: InputError | None
    ) -> "list[_Command]":
        """The commands in the line that has the server's command, with its continuation lines; used
        if the whole text is not a valid script.
        """
        lines = text.splitlines()
        start = next(at for at, line in enumerate(lines) if self._starts(line))
        end = start
        while end + 1 < len(lines) and lines[end].rstrip().endswith("\\"):
            end += 1
        try:
            found = list(self._commands("\n".join(lines[start : end + 1]), given))
        except InputError as its_own:
            raise InputError(f"not a command line: {its_own.what}", where=where) from None
        if not found and fault is not None:
            raise InputError(f"not a command line: {fault.what}", where=where)
        if not found:
            raise InputError(
                "the server is named, and no command of the file starts it",
                where=where,
                remedy="give the script that does, or the server's log",
            )
        return found

    def _commands(
        self, text: str, given: Mapping[str, str], depth: int = 0
    ) -> "Iterator[_Command]":
        """All commands in a script that start this server."""
        script = shell.read_script(text, given)
        for command in script.commands:
            if _only_tells(command.words):
                continue
            found = self._behind(command.words)
            nested = list(self._nested(command.words, {**script.exported, **given}, depth))
            if nested:
                yield from nested
            elif found is not None and not any(map(self._is_nested, command.words)):
                words, version = found
                variables = sorted({*script.exported, *command.environment})
                remarks = _remarks(script, command.used)
                yield _Command(tuple(words), version, variables, remarks, command.used)

    def _nested(
        self, words: Sequence[str], given: Mapping[str, str], depth: int
    ) -> "Iterator[_Command]":
        """Commands inside words that are scripts themselves, as in `bash -c "..."`."""
        if depth >= _NESTED or _only_tells(words):
            return
        runs_text = any(_SHELLS.fullmatch(word) for word in words)
        for word in words:
            if self._is_nested(word):
                for each in self._commands(word, given, depth + 1):
                    if runs_text or any(inner.startswith("-") for inner in each.words):
                        yield each

    def _is_nested(self, word: str) -> bool:
        """Whether a word is itself a script that may start the server."""
        return (" " in word or "\n" in word) and self.serves.search(word) is not None

    def _behind(self, words: Sequence[str]) -> tuple[list[str], str | None] | None:
        """The words after the server's command, and the version of its container image; None if the
        command is not there.
        """
        shown_words = [named(word) for word in words]
        joined = " ".join(shown_words)
        ends = list(accumulate((len(word) + 1 for word in shown_words), initial=0))
        image = self.image.search(joined)
        for match in (*self.serves.finditer(joined), *([image] if image else ())):
            first = bisect_right(ends, match.start()) - 1
            at = bisect_left(ends, match.end())
            before, after = joined[ends[first] : match.start()], joined[match.end() : ends[at] - 1]
            # A program is a word, perhaps with its folder; a mount or a text only names it.
            if match is image or (not after and before[-1:] in ("", "/", "\\")):
                return list(words[at:]), image and image[1]
        return None

    def _of_manifest(
        self, text: str, where: str, given: Mapping[str, str], server: StartedServer | None
    ) -> "_Command":
        try:
            found = self._in_manifest(text, where, given)
        except InputError as fault:
            try:
                command = self._of_script(text, where, given)
            except (InputError, StopIteration):
                raise fault from None
            if not command.words:  # the flags are in what is no YAML
                raise fault from None
            return command
        if not found:
            return self._of_script(text, where, given)
        if len(found) > 1 and server is None:
            raise InputError(
                "the file starts servers with different flags",
                where=where,
                value=len(found),
                limit=1,
                remedy="give a file of each server alone, or kvsim import '<command line>'",
            )
        return found[server.at if server else 0]

    def _in_manifest(self, text: str, where: str, given: Mapping[str, str]) -> "list[_Command]":
        """The commands in a manifest that start this server, one for each set of settings."""
        found: list[_Command] = []
        documents = manifests.documents(text, where, given)
        for container in manifests.containers(documents, given):
            command = self._of_container(container, given)
            if command is not None:
                command = command._replace(role=container.role, replicas=container.replicas)
                found.append(command._replace(environment=sorted(container.environment)))
        for script, known in [] if found else manifests.scripts(documents, given):
            if self._is_nested(script):
                with suppress(InputError):  # a text of people, that has a command in it
                    of_it = self._commands(script, {**known, **given})
                    found += [each._replace(environment=sorted(known)) for each in of_it]
        return self._different([each for each in found if not _follows(each.words)] or found, where)

    def _different(self, found: "Sequence[_Command]", where: str) -> "list[_Command]":
        """One command for each set of settings; a remark says how many servers share it."""
        equal: dict[tuple[str, str | None], list[_Command]] = {}
        for each in found:
            try:
                arguments = self.of_words(each.words, where)
                settings = repr((sorted(arguments.known.items()), arguments.missing))
            except InputError:  # which whoever reads it meets again
                settings = repr(each.words)
            equal.setdefault((settings, each.role), []).append(each)
        for first, *others in equal.values():
            if others:
                first.remarks.append(f"{1 + len(others)} servers have these settings: one is taken")
        return [each[0] for each in equal.values()]

    def _of_container(
        self, container: manifests.Container, given: Mapping[str, str]
    ) -> "_Command | None":
        """The command with which a container starts this server; None if it starts none."""
        known = {k: v for k, v in container.environment.items() if v is not None} | dict(given)
        nested = list(self._nested(container.words, known, 0))
        version = image[1] if (image := self.image.search(container.image)) else None
        if nested:
            return nested[0]._replace(version=version)
        behind = self._behind(container.words)
        if behind is not None and not behind[0] and container.inner:
            return _Command(container.inner, version, [], [])
        if behind is not None:
            return _Command(tuple(behind[0]), version, [], [])
        runs_other = container.words and _OTHERS.fullmatch(container.words[0])
        if image and not runs_other and any(word.startswith("-") for word in container.words):
            words = container.words
            if len(words) == 1:
                words = shell.read_script(words[0], known).commands[0].words
            return _Command(words, version, [], [])
        return None


def _follows(words: Sequence[str]) -> bool:
    """Whether a command is for a further node of a multi-node server; it has the first node's
    settings.
    """
    joined = " ".join(words)
    return "--headless" in words or re.search(r"--node[-_]rank[ =](?!0\b)", joined) is not None


def _only_tells(words: Sequence[str]) -> bool:
    """Whether a command only prints or inspects, and starts nothing."""
    if len(words) > 1 and words[0] in _CONTAINERS and words[1] in _NO_RUN:
        return True
    return bool(words) and _ONLY_TELL.fullmatch(words[0]) is not None


def _remarks(script: shell.ShellScript, used: Collection[str]) -> list[str]:
    """Sentences on variables that may have another value in a run of the script."""
    return [
        f"${name} = {value}: {why}"
        for name, (why, value) in sorted(script.assumed.items())
        if name in used
    ] + [
        f"${name} has several values in the script, of which one is taken: {value}"
        for name, value in sorted(script.doubtful.items())
        if name in used
    ]


class _Command(NamedTuple):
    """A command that starts a server.

    words follow the server's command. version is the container image's. environment has the names
    of environment variables. remarks are sentences on assumed values. used has the variables that
    the words contain. role and replicas come from the manifest.
    """

    words: tuple[str, ...]
    version: str | None
    environment: list[str]
    remarks: list[str]
    used: frozenset[str] = frozenset()
    role: str | None = None
    replicas: int | None = None


class Arguments(NamedTuple):
    """The parsed arguments of a command.

    known has values by name. unread has the names of flags that are not parsed. flagged has values
    of `--config`, which are files with further arguments. missing maps an argument to the shell
    variable that has no value; under "" is a variable in a word that may be a flag. version is the
    container image's. names are those of all arguments that can be parsed. environment has names of
    environment variables. remarks are sentences on assumed values. flags are the command's flags as
    written. used has the variables that the words contain.
    """

    known: dict[str, Any]
    unread: set[str]
    flagged: list[str]
    missing: dict[str, str]
    version: str | None = None
    names: Collection[str] = ()
    environment: Sequence[str] = ()
    remarks: Sequence[str] = ()
    flags: Collection[str] = ()
    used: Collection[str] = ()

    def notes(self) -> list[str]:
        """Sentences on flags and variables that are not read, and on assumed values."""
        asked = [*self.unread, *(f"--config {each}" for each in self.flagged)]
        return [*unread_notes(asked, self.names), *self.environment_notes(), *self.remarks]

    def environment_notes(self) -> list[str]:
        """A note that lists the engine's own environment variables, which are not read."""
        named = [
            name for name in self.environment if OF_ENGINES.match(name) and not SECRET.search(name)
        ]
        if not named:
            return []
        return [f"variables that may change memory or time, and are not read: {', '.join(named)}"]


def number_or_text(text: str) -> Any:
    """Parse a word as JSON; if that fails, return it as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _arguments(words: list[str], where: str, program: Program) -> Arguments:
    written = {word.partition("=")[0] for word in words if word.startswith("-")}
    found = Arguments({}, set(), [], {}, names=program.known, flags=written)
    arguments = found.known
    at = 0
    is_model = True
    while at < len(words):
        word, at = words[at], at + 1
        if not word.startswith("-"):
            lost = [each for each in missing_in(word) if not is_passed(each)]
            named = "model" in arguments or "model" in found.missing
            if is_model and not named and not word.isdigit():
                _put(found, "model", word)
            elif is_model and lost:  # no value of a flag before it
                found.missing.setdefault("", lost[0])
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
            found.flagged.append(shown(value if equals else words[at]))
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
            found.unread.add(shown(flag))
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
        _put(found, name, value)
    return found


def _put(found: Arguments, name: str, value: str) -> None:
    """Store an argument's value, or the shell variable in it that has no value."""
    lost = missing_in(value)
    if lost:
        found.missing[name] = lost[0]
    else:
        found.missing.pop(name, None)
        found.known[name] = value
