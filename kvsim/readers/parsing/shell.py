"""Parse a shell script into commands, with its variables replaced as far as the script gives their
values.

The script is never run. Assignments, arrays, defaults (`${TP:-2}`) and `"${ARGS[@]}"` are followed
in the order of the text, functions where they are called. Commands under a condition may or may not
run; they are included. A variable without a value stays in its word, between two marks, and so does
one that a loop changes. The text is read once, and a function's body once per call.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.shell_sums import whole_sum
from kvsim.readers.parsing.shell_values import changed, printed
from kvsim.readers.parsing.shell_words import PASSED, Word, has_text, missing, missing_in, shown

_PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_SPACE = re.compile(r"(?:[ \t]|\\\r?\n)+")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\s]{0,200})\])?(\+?)=")
_ITEM = re.compile(r"\[(.{1,200}?)\]=(.*)", re.DOTALL)  # of an array with keys
_FUNCTION = re.compile(
    r"(?:function[ \t]+([A-Za-z_][\w-]*)[ \t]*(?:\(\s*\))?|"
    r"([A-Za-z_][\w-]*)[ \t]*\([ \t]*\))\s*\{(?=\s)"
)
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_BRACED = re.compile(
    r"([A-Za-z_]\w*|[0-9]+|[@*#])(?:\[([^\[\]]{1,200})\])?(?:(:?[-=+?])|([:#%/^,].*)|$)", re.DOTALL
)
_LENGTH = re.compile(r"#([A-Za-z_]\w*|[@*])(?:\[[@*]\])?")
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_REDIRECT = re.compile(r"(?:[0-9]*(?:>>|>&|>|<)|&>>?)&?[ \t]*(?:[0-9-](?=\s|$))?")
_BEGINS = {"if": 1, "case": 1, "for": 1, "while": 1, "until": 1, "fi": -1, "esac": -1, "done": -1}
_DECLARES = ("export", "local", "declare", "readonly", "typeset")
_VARIABLES = re.compile(r"\b\w+\b")
_LOOPS = ("for", "while", "until")
_DEEPEST = 8  # defaults in defaults
_MOST_WORDS = 1 << 16  # of one expansion of an array
_MOST_VALUE = 1 << 16  # characters of a variable
_MOST_CALLS = 64  # of functions

Value = str | list[str]


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command: its words, the names of variables set before it on the same line, and the
    variables that its words contain.
    """

    words: tuple[str, ...]
    environment: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()


@dataclass(slots=True)
class ShellScript:
    """The commands of a script, as far as it can be followed.

    commands are in order. assumed has (reason, value) of variables with a value that a run may
    change: defaults, and assignments under a condition. exported has the variables put into the
    environment. doubtful has variables with several possible values, with the value used.
    """

    commands: list[ShellCommand] = field(default_factory=list)
    assumed: dict[str, tuple[str, str]] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, str] = field(default_factory=dict)


def _has_missing(value: Value) -> bool:
    return any(missing_in(each) for each in ([value] if isinstance(value, str) else value))


def read_script(text: str, given: Mapping[str, Value] | None = None) -> ShellScript:
    """The commands of a script. given has values of variables, which override the script's own.
    InputError for an unclosed quote or bracket.
    """
    reader = _Reader(text, dict(given or {}))
    reader.run()
    return reader.script


def _passed(words: list[str]) -> dict[str, Value]:
    """The positional variables ($1, $2, ..., $@, $#) for a function call with these words."""
    numbered = {str(at): each for at, each in enumerate(words[:9], 1)}
    return {**numbered, "@": words, "*": words, "#": str(len(words))}


class _Function(NamedTuple):
    """A function of a script. commands are those of its body, read without call arguments."""

    body: str
    commands: list[ShellCommand]


class _Open(NamedTuple):
    """A function definition that is being read. before has the commands above it. values are the
    variables at its start, which hold again after its end. braces counts the open ones around it.
    """

    name: str
    begin: int
    before: list[ShellCommand]
    values: dict[str, Value]
    braces: int


class _Reader:
    def __init__(self, text: str, given: dict[str, Value], nested: int = 0) -> None:
        self.text = text
        self.nested = nested
        self.at = 0
        self.given = given
        self.values: dict[str, Value] = dict(given)
        self.depth = 0  # of conditions and loops
        self.loops = 0
        self.perhaps = False  # after && or ||
        self.tables: dict[str, dict[str, str]] = {}  # arrays with keys
        self.functions: dict[str, _Function] = {}
        self.open: list[_Open] = []  # functions that are being defined
        self.braces = 0
        self.local: set[str] | None = None  # variables of the function that is called
        self.declares_local = False
        self.calls = 0
        self.script = ShellScript()
        self.none_left: set[str] = set()  # brackets and quotes that never close from here on
        self.heredocs: list[str] = []
        self.used: set[str] = set()  # variables of the words that are being read
        self.made_of: dict[str, set[str]] = {}  # of each variable, those in its value

    def run(self) -> None:
        while self.at < len(self.text):
            self._command()
        while self.open:  # a bracket that never closes is no function's
            self.script.commands[:0] = self.open.pop().before

    def _command(self) -> None:
        words: list[str] = []
        environment: list[str] = []
        declares = False
        self.used = set()
        self.declares_local = False
        self._skip_blanks()
        if match := _FUNCTION.match(self.text, self.at):
            self.at = match.end()
            name, before = match[1] or match[2], self.script.commands
            self.open.append(_Open(name, self.at, before, dict(self.values), self.braces))
            self.script.commands, self.braces = [], 0
            return
        begin, perhaps, loop = self.at, self.perhaps, False
        while (token := self._next(arrays=not words or declares)) is not None:
            kind, fields, name = token
            if kind == "end":
                break
            if kind == "assignment":
                environment.append(name)
                if declares:
                    self.script.exported[name] = self._text(name)
                continue
            if not words and fields and fields[0] in _BEGINS:
                step = _BEGINS[fields[0]]
                self.depth = max(0, self.depth + step)
                if fields[0] in (*_LOOPS, "done"):
                    self.loops = max(0, self.loops + step)
                loop = fields[0] == "for"
                continue
            if not words and fields == ["}"] and self.open and not self.braces:
                self._end_function(begin)
                continue
            if not words and fields in (["{"], ["}"]):
                self.braces = max(0, self.braces + (1 if fields == ["{"] else -1))
                continue
            if not words and fields and fields[0] in ("then", "else", "elif", "do", "!"):
                continue
            if not words and fields and fields[0] in _DECLARES:
                declares = True
                self.declares_local = fields[0] != "export"
            words += fields
        if perhaps:
            self.perhaps = False
        if loop and words and words[0] not in self.given:
            items = words[2:]
            self.values[words[0]] = items[0] if len(items) == 1 else missing(words[0])
            return
        if words and words[0] == "shift":
            self._shift(words[1:])
            return
        if words and words[0] not in (*_DECLARES, "echo", "printf", "unset", ":", "[", "[["):
            for name in environment:
                self.script.exported.setdefault(name, self._text(name))
            used = frozenset(self._closed(self.used))
            passes = words[0] in self.functions and self.calls < _MOST_CALLS and not self.open
            if not (passes and self._call(words)):
                self.script.commands.append(ShellCommand(tuple(words), tuple(environment), used))

    def _skip_blanks(self) -> None:
        while match := _SPACE.match(self.text, self.at):
            self.at = match.end()

    def _end_function(self, end: int) -> None:
        name, begin, before, self.values, self.braces = self.open.pop()
        self.functions[name] = _Function(self.text[begin:end], self.script.commands)
        self.script.commands = [*before, *self.script.commands]

    def _call(self, words: list[str]) -> bool:
        """Read a function's body with the words of this call. Returns whether one of its commands
        contains the call's last word.
        """
        self.calls += 1
        function = self.functions[words[0]]
        known = {id(each) for each in function.commands}
        self.script.commands = [each for each in self.script.commands if id(each) not in known]
        before = len(self.script.commands)
        passed = _passed(words[1:])
        inner = _Reader(function.body, self.given, self.nested)
        inner.values = {**self.values, **passed}
        inner.script, inner.tables, inner.made_of = self.script, self.tables, self.made_of
        inner.depth, inner.loops, inner.calls = self.depth, self.loops, self.calls
        inner.local = set()
        inner.functions = {k: v for k, v in self.functions.items() if k != words[0]}
        inner.run()
        self.calls = inner.calls
        for name, value in inner.values.items():
            if name not in PASSED and name not in inner.local:
                self.values[name] = value
        return any(words[-1] in each.words for each in self.script.commands[before:])

    def _shift(self, given: list[str]) -> None:
        words = self.values.get("@")
        if isinstance(words, list):
            by = int(given[0]) if given and given[0].isdigit() else 1
            kept = {name: value for name, value in self.values.items() if name not in PASSED}
            self.values = kept | _passed(words[by:])

    def _closed(self, names: set[str]) -> set[str]:
        return names.union(*(self.made_of.get(name, ()) for name in names))

    def _text(self, name: str) -> str:
        value = self.values.get(name, "")
        return value if isinstance(value, str) else " ".join(value)

    def _next(
        self, *, arrays: bool, closing: bool = False
    ) -> tuple[Literal["end", "word", "assignment", "close"], list[str], str] | None:
        """The next token: (kind, words, name). arrays: `NAME=` is an assignment here. closing: stop
        at a closing bracket.
        """
        text = self.text
        while self.at < len(text):
            if match := _SPACE.match(text, self.at):
                self.at = match.end()
            sign = text[self.at : self.at + 1]
            if sign == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif sign in ("\n", "\r"):
                self.at += 1
                if sign == "\n":
                    self._skip_heredocs()
                if not closing:
                    return "end", [], ""
            elif sign == ")" and closing:
                self.at += 1
                return "close", [], ""
            elif match := _HEREDOC.match(text, self.at):
                self.heredocs.append(match[2])
                self.at = match.end()
            elif match := _REDIRECT.match(text, self.at):
                if match[0] in ("<", ">") and text[match.end() : match.end() + 1] == "(":
                    self.at = match.end() + 1
                    continue
                self.at = match.end()
                if not match[0][-1:].isdigit() and match[0][-1:] != "-":
                    self._word()  # the file
            elif sign in (";", "&", "|", "(", ")"):
                self.perhaps = text.startswith(("&&", "||"), self.at)
                self.at += 1 + self.perhaps
                return "end", [], ""
            elif sign:
                return self._word_or_assignment(arrays)
        return None

    def _word_or_assignment(
        self, arrays: bool
    ) -> tuple[Literal["end", "word", "assignment", "close"], list[str], str]:
        match = _ASSIGN.match(self.text, self.at) if arrays else None
        if match is None:
            begin = self.at
            fields = self._word()
            if self.at == begin:  # a sign that begins no word
                self.at += 1
                return "word", [], ""
            return "word", fields, ""
        self.at = match.end()
        before, self.used = self.used, set()
        value: Value
        name, index, adds = match[1], match[2], bool(match[3])
        if self.text[self.at : self.at + 1] == "(":
            self.at += 1
            value = self._array()
            self._put_items(name, value, adds=adds)
        else:
            value = " ".join(self._word(splits=False))[:_MOST_VALUE]
        made_of = self._closed(self.used)
        if adds or index is not None:
            made_of |= self.made_of.get(name, set())
        self.made_of[name], self.used = made_of, before
        if index is None or isinstance(value, list):
            self._assign(name, value, adds=adds)
        else:
            self.tables.setdefault(name, {})[self._expanded(index)] = value
        return "assignment", [], name

    def _put_items(self, name: str, words: list[str], *, adds: bool) -> None:
        """Assign an associative array's items (`[KEY]=VALUE`)."""
        items = [item for each in words if (item := _ITEM.fullmatch(each))]
        if items:
            table = self.tables.setdefault(name, {}) if adds else {}
            self.tables[name] = table | {item[1]: item[2] for item in items}

    def _array(self) -> list[str]:
        found: list[str] = []
        while (token := self._next(arrays=False, closing=True)) is not None:
            if token[0] == "close":
                return found
            found += token[1][: _MOST_WORDS - len(found)]
        return found

    def _assign(self, name: str, value: Value, *, adds: bool) -> None:
        if name in self.given:
            return
        before = self.values.get(name)
        if self.local is not None and self.declares_local:
            self.local.add(name)
            before = None
        if isinstance(value, str) and has_text(value):
            value = missing(name)  # what the script computes, and a user can give
        if adds and before is not None:
            if isinstance(before, list):
                value = [*before, *([value] if isinstance(value, str) else value)]
                value = value[:_MOST_WORDS]
            else:
                more = value if isinstance(value, str) else " ".join(value)
                value = (before + more)[:_MOST_VALUE]
                if self.loops:
                    value = missing(name)  # as often as the loop runs
        if self.depth or self.perhaps:
            text = shown(value if isinstance(value, str) else " ".join(value))
            if before is None:
                self.script.assumed[name] = ("set under a condition of the script", text)
            elif before != value:
                if _has_missing(value) and not _has_missing(before) and not self.loops:
                    self.script.doubtful.setdefault(name, shown(self._text(name)))
                    return  # what stands under no condition has a value
                self.script.doubtful[name] = text
        self.values[name] = value

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            match = re.compile(rf"^[ \t]*{end}[ \t]*$", re.MULTILINE).search(self.text, self.at)
            self.at = match.end() if match else len(self.text)
        self.heredocs.clear()

    def _word(self, *, splits: bool = True) -> list[str]:
        word = Word()
        text = self.text
        while self.at < len(text):
            sign = text[self.at]
            if match := _PLAIN.match(text, self.at):
                word.add(match[0])
                self.at = match.end()
            elif sign == "'":
                word.add(self._until("'"))
            elif sign == '"':
                self._quoted(word)
            elif sign == "\\":
                if text.startswith(("\\\n", "\\\r\n"), self.at):
                    break
                word.add(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif sign == "$":
                self._expand(word, quoted=not splits)
            elif sign == "`":
                self._print(word, self._until("`"), quoted=not splits)
            else:
                break
        return word.done()

    def _until(self, sign: str) -> str:
        """The text from here to the next `sign`, which is skipped."""
        end = -1 if sign in self.none_left else self.text.find(sign, self.at + 1)
        if end < 0:
            raise InputError("a quotation that never closes", where="script", value=sign)
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def _quoted(self, word: Word) -> None:
        self.at += 1
        word.add("")
        text = self.text
        while self.at < len(text):
            sign = text[self.at]
            if match := _IN_QUOTES.match(text, self.at):
                word.add(match[0])
                self.at = match.end()
            elif sign == '"':
                self.at += 1
                return
            elif sign == "\\":
                escaped = text[self.at + 1 : self.at + 2]
                word.add(
                    escaped if escaped in '"\\$`' else "" if escaped == "\n" else f"\\{escaped}"
                )
                self.at += 2
            elif sign == "$":
                self._expand(word, quoted=True)
            else:
                self._print(word, self._until("`"), quoted=True)
        raise InputError("a quotation that never closes", where="script", value='"')

    def _expand(self, word: Word, *, quoted: bool) -> None:
        text, begin = self.text, self.at
        if text.startswith("$((", begin):
            word.add(self._sum(self._bracketed("(", ")")[3:-2]))
        elif text.startswith("$(", begin):
            self._print(word, self._bracketed("(", ")")[2:-1], quoted=quoted)
        elif text.startswith("${", begin):
            self._braced(word, self._bracketed("{", "}")[2:-1], quoted=quoted)
        elif text.startswith("$'", begin):
            self.at += 1
            word.add(self._until("'"))
        elif match := _NAME.match(text, begin + 1):
            self.at = match.end()
            self.used.add(match[0])
            every = match[0] == "@"
            self._put(word, match[0], self.values.get(match[0]), quoted=quoted, whole=every)
        else:
            self.at += 1
            word.add("$")

    def _print(self, word: Word, text: str, *, quoted: bool) -> None:
        """Add the output of a command that only prints; for any other command a missing value."""
        found = self._output(text) if self.nested < _DEEPEST else None
        if found is None:
            word.add(missing(f"({text[:40]})"))
        else:
            self._put(word, "", found[:_MOST_VALUE], quoted=quoted or bool(missing_in(found)))

    def _output(self, text: str) -> str | None:
        inner = self._within(text)
        words: list[str] = []
        while (token := inner._next(arrays=False)) is not None:
            if token[0] == "end":
                break
            words += token[1][: _MOST_WORDS - len(words)]
        if text[inner.at :].strip() or text[: inner.at].rstrip().endswith(("|", "&", ";", ")")):
            return None
        return printed(words)

    def _sum(self, text: str) -> str:
        """The value of `$((...))`, or its first variable without a value as a missing value."""
        if "$(" in text or "${" in text:
            text = self._expanded(text)
            if lost_in := missing_in(text):
                return missing(lost_in[0])
        names = [each for each in _VARIABLES.findall(text) if not each[0].isdigit()]
        self.used.update(names)
        lost = [each for each in names if not self._text(each).lstrip("-").isdigit()]
        if lost:
            return missing(next(iter(missing_in(self._text(lost[0]))), lost[0]))
        found = whole_sum(_VARIABLES.sub(lambda each: self._number(each[0]), text))
        return missing(f"(({text[:40]}))") if found is None else str(found)

    def _number(self, name: str) -> str:
        return name if name[0].isdigit() else self._text(name)

    def _bracketed(self, opens: str, closes: str) -> str:
        """The text of `$(...)` or `${...}`, up to its matching bracket."""
        depth, end = 0, self.at + 1
        if closes not in self.none_left:
            for match in re.compile(f"[{opens}{closes}]").finditer(self.text, self.at + 1):
                depth += 1 if match[0] == opens else -1
                if not depth:
                    end = match.end()
                    found = self.text[self.at : end]
                    self.at = end
                    return found
            self.none_left.add(closes)
        raise InputError("a bracket that never closes", where="script", value=f"${opens}")

    def _braced(self, word: Word, inner: str, *, quoted: bool) -> None:
        if length := _LENGTH.fullmatch(inner):
            counted = self.values.get(length[1])
            word.add(missing(length[1]) if counted is None else str(len(counted)))
            return
        match = _BRACED.match(inner)
        if match is None:
            word.add(missing(inner[:40]))
            return
        name, index, operator, operation = match.groups()
        self.used.add(name)
        whole = index in ("@", "*")
        value = self.values.get(name) if index is None or whole else self._item(name, index)
        empty = value is None or (value in ("", []) and (operator or "").startswith(":"))
        if operation is not None:
            self._put(word, name, self._changed(name, value, operation), quoted=quoted)
        elif operator is None:
            self._put(word, name, value, quoted=quoted, whole=whole or name == "@")
        elif operator[-1] == "+":
            if not empty:
                self._put(word, name, self._default(inner[match.end() :]), quoted=quoted)
        elif operator[-1] in "-=" and empty:
            default = self._default(inner[match.end() :])
            if default and not any(missing_in(each) for each in default):
                why = ("the script's own default", " ".join(default))
                self.script.assumed.setdefault(name, why)
            if operator[-1] == "=":
                self.values[name] = " ".join(default)
            self._put(word, name, default, quoted=quoted)
        elif empty:
            word.add(missing(name))
        else:
            self._put(word, name, value, quoted=quoted, whole=whole)

    def _item(self, name: str, index: str) -> str | None:
        """An item of an array, by key or index."""
        key = self._expanded(index)
        value = self.values.get(name)
        if name in self.tables:
            return self.tables[name].get(key)
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            return value[int(key)]
        return value if isinstance(value, str) and key == "0" else None

    def _changed(self, name: str, value: Value | None, operation: str) -> str:
        """Apply `${NAME<operation>}`; a missing value if the result cannot be computed."""
        if not isinstance(value, str):
            return missing(name)
        if lost := missing_in(value):
            return missing(lost[0])
        operation = self._expanded(operation)
        found = changed(value, operation)
        return missing(f"{name}{operation}"[:40]) if found is None else found

    def _expanded(self, text: str) -> str:
        """A text with its variables replaced, and everything else unchanged."""
        if "$" not in text or self.nested >= _DEEPEST:
            return text
        inner, word = self._within(text), Word()
        while (at := text.find("$", inner.at)) >= 0:
            word.add(text[inner.at : at])
            inner.at = at
            inner._expand(word, quoted=True)
        return "".join(word.done()) + text[inner.at :]

    def _within(self, text: str) -> "_Reader":
        """A reader for a part of the text, with the same variables."""
        inner = _Reader(text, self.given, self.nested + 1)
        inner.values, inner.used, inner.script = self.values, self.used, self.script
        inner.tables = self.tables
        return inner

    def _default(self, text: str) -> list[str]:
        """The words of the default in `${NAME:-default}`, with variables replaced."""
        if self.nested >= _DEEPEST:
            return [missing(text[:40])]
        inner = self._within(text)
        found: list[str] = []
        while inner.at < len(text):
            begin = inner.at
            found += inner._word(splits=False)
            inner.at += inner.at == begin
        return found

    def _put(
        self, word: Word, name: str, value: Value | None, *, quoted: bool, whole: bool = False
    ) -> None:
        """Add a variable's value to the word. whole: for an array, each item becomes a word."""
        if value is None:
            if name == "$":
                word.add("0")
            else:
                word.add(missing(name))
        elif isinstance(value, list):
            if quoted and not whole:
                word.add(" ".join(value))
            else:
                word.add_fields(
                    value if quoted else [part for each in value for part in each.split()]
                )
        elif quoted:
            word.add(value)
        else:
            word.add_fields(value.split())
