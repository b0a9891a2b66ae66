"""Commands of a shell script, with what the script itself says of its variables put in.

The script is never run. Assignments, arrays, defaults (`${TP:-2}`) and `"${ARGS[@]}"` are followed
in the order of the text. Commands under a condition may or may not have run, and are reported. A
variable without a value is left in its word, between two marks. One pass over the text.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvsim.plumbing.errors import InputError

_OPEN, _CLOSE = "\ue000", "\ue001"  # around the name of a variable that has no value
_MISSING = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_SPACE = re.compile(r"(?:[ \t]|\\\r?\n)+")
_ASSIGN = re.compile(r"([A-Za-z_]\w*)(?:\[\w*\])?(\+?)=")
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]")
_BRACED = re.compile(r"([A-Za-z_]\w*|[0-9]+|[@*#])(\[[@*0-9]\])?(?:(:?[-=+?])|(:|[#%/^,].*)|$)")
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_REDIRECT = re.compile(r"(?:[0-9]*(?:>>|>&|>|<)|&>>?)&?[ \t]*(?:[0-9-](?=\s|$))?")
_BEGINS = {"if": 1, "case": 1, "for": 1, "while": 1, "until": 1, "fi": -1, "esac": -1, "done": -1}
_DECLARES = ("export", "local", "declare", "readonly", "typeset")
_VARIABLES = re.compile(r"\b\w+\b")
_SUM = re.compile(r"[0-9+*/%() -]+")
_LONGEST_SUM = 200
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
_PASSED = ("@", "*", "#", *"0123456789")  # what a script is given by whoever starts it
_DEEPEST = 8  # defaults in defaults
_MOST_WORDS = 1 << 16  # of one expansion of an array
_MOST_VALUE = 1 << 20  # characters of a variable

Value = str | list[str]


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """Words of one command, the variables set before it, on its own line, and those that its words
    were made from.
    """

    words: tuple[str, ...]
    environment: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()


@dataclass(slots=True)
class ShellScript:
    """The commands of a script, as far as it can be followed.

    commands: in order. assumed: values that a run may have otherwise: defaults, and those set under
    a condition. exported: names that were put into the environment.
    """

    commands: list[ShellCommand] = field(default_factory=list)
    assumed: dict[str, tuple[str, str]] = field(default_factory=dict)
    exported: dict[str, str] = field(default_factory=dict)
    doubtful: list[str] = field(default_factory=list)


def missing_in(word: str) -> list[str]:
    """Names of the variables in a word that have no value."""
    return _MISSING.findall(word)


def is_passed(name: str) -> bool:
    """Whether a variable holds what a script was started with."""
    return name in _PASSED


def shown(word: str) -> str:
    """A word for messages: its variables as they were written."""
    return _MISSING.sub(r"$\1", word)


def missing(name: str) -> str:
    """A word that is a variable without a value."""
    return f"{_OPEN}{name}{_CLOSE}"


def _has_missing(value: Value) -> bool:
    return any(missing_in(each) for each in ([value] if isinstance(value, str) else value))


def read_script(text: str, given: Mapping[str, Value] | None = None) -> ShellScript:
    """The commands of a script. given: variables that are known, which count before the script's
    own. InputError for quotes that never close.
    """
    reader = _Reader(text, dict(given or {}))
    reader.run()
    return reader.script


class _Word:
    """A word while it is read; one expansion may make several of it."""

    def __init__(self) -> None:
        self.fields: list[str] = []
        self.parts: list[str] = []
        self.begun = False
        self.literal = True  # nothing of it was quoted or expanded yet

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


class _Reader:
    def __init__(self, text: str, given: dict[str, Value], nested: int = 0) -> None:
        self.text = text
        self.nested = nested
        self.at = 0
        self.given = given
        self.values: dict[str, Value] = dict(given)
        self.depth = 0  # of conditions and loops
        self.script = ShellScript()
        self.none_left: set[str] = set()  # brackets and quotes that never close from here on
        self.heredocs: list[str] = []
        self.used: set[str] = set()  # variables of the words that are being read
        self.made_of: dict[str, set[str]] = {}  # of each variable, those in its value

    def run(self) -> None:
        while self.at < len(self.text):
            self._command()

    def _command(self) -> None:
        words: list[str] = []
        environment: list[str] = []
        declares = False
        self.used = set()
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
                self.depth = max(0, self.depth + _BEGINS[fields[0]])
                continue
            if not words and fields and fields[0] in ("then", "else", "elif", "do", "!", "{", "}"):
                continue
            if not words and fields and fields[0] in _DECLARES:
                declares = True
            words += fields
        if words and words[0] not in (*_DECLARES, "echo", "printf", "unset", ":", "[", "[["):
            for name in environment:
                self.script.exported.setdefault(name, self._text(name))
            used = frozenset(self._closed(self.used))
            self.script.commands.append(ShellCommand(tuple(words), tuple(environment), used))

    def _closed(self, names: set[str]) -> set[str]:
        return names.union(*(self.made_of.get(name, ()) for name in names))

    def _text(self, name: str) -> str:
        value = self.values.get(name, "")
        return value if isinstance(value, str) else " ".join(value)

    def _next(
        self, *, arrays: bool, closing: bool = False
    ) -> tuple[Literal["end", "word", "assignment", "close"], list[str], str] | None:
        """The next word. arrays: whether `NAME=` assigns here. closing: whether a bracket ends."""
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
                self.at += 1
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
        if self.text[self.at : self.at + 1] == "(":
            self.at += 1
            value = self._array()
        else:
            value = " ".join(self._word(splits=False))[:_MOST_VALUE]
        made_of = self._closed(self.used)
        if match[2]:
            made_of |= self.made_of.get(match[1], set())
        self.made_of[match[1]], self.used = made_of, before
        self._assign(match[1], value, adds=bool(match[2]))
        return "assignment", [], match[1]

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
        if adds and before is not None:
            if isinstance(before, list):
                value = [*before, *([value] if isinstance(value, str) else value)]
                value = value[:_MOST_WORDS]
            else:
                more = value if isinstance(value, str) else " ".join(value)
                value = (before + more)[:_MOST_VALUE]
        if self.depth and before is not None and before != value:
            self.script.doubtful.append(name)
            if _has_missing(value) and not _has_missing(before):
                return  # what stands under no condition has a value
        elif self.depth:
            text = value if isinstance(value, str) else " ".join(value)
            self.script.assumed[name] = ("set under a condition of the script", text)
        self.values[name] = value

    def _skip_heredocs(self) -> None:
        for end in self.heredocs:
            match = re.compile(rf"^[ \t]*{end}[ \t]*$", re.MULTILINE).search(self.text, self.at)
            self.at = match.end() if match else len(self.text)
        self.heredocs.clear()

    def _word(self, *, splits: bool = True) -> list[str]:
        word = _Word()
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
                word.add(missing(f"`{self._until('`')[:40]}`"))
            else:
                break
        return word.done()

    def _until(self, sign: str) -> str:
        """The text up to the closing sign."""
        end = -1 if sign in self.none_left else self.text.find(sign, self.at + 1)
        if end < 0:
            raise InputError("a quotation that never closes", where="script", value=sign)
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def _quoted(self, word: _Word) -> None:
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
                word.add(missing(f"`{self._until('`')[:40]}`"))
        raise InputError("a quotation that never closes", where="script", value='"')

    def _expand(self, word: _Word, *, quoted: bool) -> None:
        text, begin = self.text, self.at
        if text.startswith("$((", begin):
            word.add(self._sum(self._bracketed("(", ")")[3:-2]))
        elif text.startswith("$(", begin):
            word.add(missing(self._bracketed("(", ")")[:40]))
        elif text.startswith("${", begin):
            self._braced(word, self._bracketed("{", "}")[2:-1], quoted=quoted)
        elif text.startswith("$'", begin):
            self.at += 1
            word.add(self._until("'"))
        elif match := _NAME.match(text, begin + 1):
            self.at = match.end()
            self.used.add(match[0])
            self._put(word, match[0], self.values.get(match[0]), quoted=quoted)
        else:
            self.at += 1
            word.add("$")

    def _sum(self, text: str) -> str:
        """`$((...))` of whole numbers, or the first variable in it that has no value."""
        names = [each for each in _VARIABLES.findall(text) if not each.isdigit()]
        self.used.update(names)
        lost = [each for each in names if not self._text(each).lstrip("-").isdigit()]
        if lost:
            return missing(lost[0])
        found = whole_sum(_VARIABLES.sub(lambda each: self._number(each[0]), text))
        return missing(f"(({text[:40]}))") if found is None else str(found)

    def _number(self, name: str) -> str:
        return name if name.isdigit() else self._text(name)

    def _bracketed(self, opens: str, closes: str) -> str:
        """`$(...)` or `${...}` with what is nested in it."""
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

    def _braced(self, word: _Word, inner: str, *, quoted: bool) -> None:
        match = _BRACED.match(inner)
        if match is None:
            word.add(missing(inner[:40]))
            return
        name, index, operator, other = match.groups()
        self.used.add(name)
        value = self.values.get(name)
        if other is not None:
            word.add(missing(inner[:40]))
            return
        empty = value is None or (value in ("", []) and (operator or "").startswith(":"))
        if operator is None:
            self._put(word, name, value, quoted=quoted, whole=index in ("[@]", "[*]"))
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
            self._put(word, name, value, quoted=quoted, whole=index in ("[@]", "[*]"))

    def _default(self, text: str) -> list[str]:
        """The words after `:-`, which may have variables in them."""
        if self.nested >= _DEEPEST:
            return [missing(text[:40])]
        inner = _Reader(text, self.given, self.nested + 1)
        inner.values, inner.used, inner.script = self.values, self.used, self.script
        found: list[str] = []
        while inner.at < len(text):
            begin = inner.at
            found += inner._word(splits=False)
            inner.at += inner.at == begin
        return found

    def _put(
        self, word: _Word, name: str, value: Value | None, *, quoted: bool, whole: bool = False
    ) -> None:
        """A variable's value. whole: all of an array, each item a word."""
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


def whole_sum(text: str) -> int | None:
    """A sum of whole numbers with + - * / % and brackets; None for anything else."""
    text = text.replace("$", "")
    if len(text) > _LONGEST_SUM or not _SUM.fullmatch(text) or "**" in text or "//" in text:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _evaluated(tree)


def _evaluated(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _evaluated(node.operand)
        return None if inner is None else -inner
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATIONS:
        return None
    left, right = _evaluated(node.left), _evaluated(node.right)
    if left is None or right is None or (not right and isinstance(node.op, ast.Div | ast.Mod)):
        return None
    return _OPERATIONS[type(node.op)](left, right)
