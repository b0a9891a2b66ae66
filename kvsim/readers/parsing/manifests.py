"""YAML manifests: the containers of Kubernetes and compose, with their commands and environment.

YAML is parsed by PyYAML's safe loader, within bounds. A Helm template (`{{ .Values.x }}`) counts as
a variable without a value.
"""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.readers.parsing.shell_words import missing

_TEMPLATE = re.compile(r"\{\{-?\s*([^{}]*?)\s*-?\}\}")
_CONTROL = re.compile(r"^[ \t]*(?:\{\{[^{}]*\}\}[ \t]*)+$", re.MULTILINE)
_CONDITION = re.compile(r"\{\{-?\s*(?:if|else|end|range|with|define|block)\b[^{}]*\}\}")
_REFERENCE = re.compile(r"\$\$|\$\((\w[\w.-]*)\)")
_INTERPOLATED = re.compile(r"\$\$|\$\{(\w+)(?:(:?[-+?])([^{}]*))?\}|\$(\w+)")
_SUBSTITUTED = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_MOST_BYTES, _MOST_KEYS, _DEEPEST = 1 << 20, 10_000, 200
WORDS = ("entrypoint", "command", "args")  # in the order in which they are run
_ROLES = ("prefill", "decode")
ENVIRONMENTS = ("env", "environment", "envs")


class Container(NamedTuple):
    """A container that a manifest starts.

    words are those of its entry point, command and arguments; a word may be a whole script. image
    includes the tag. environment has values by name; None if the manifest gives only the name.
    inner has arguments that are nested deeper than the command. role is prefill or decode, if names
    or labels say so. replicas is the manifest's number.
    """

    words: tuple[str, ...]
    image: str
    environment: Mapping[str, str | None]
    inner: tuple[str, ...] = ()
    role: str | None = None
    replicas: int | None = None


class StartedServer(NamedTuple):
    """One of several servers that a file starts: its index `at`, and role and replicas as in
    `Container`.
    """

    at: int
    role: str | None = None
    replicas: int | None = None


def documents(text: str, where: str, given: Mapping[str, str] | None = None) -> list[Any]:
    """Parse the documents of a YAML file; InputError if it is invalid, too deep or too large.

    given has values for Helm templates: `{{ .Values.a.b }}` is looked up as Values_a_b.
    """
    import yaml

    if len(text) > _MOST_BYTES or _depth(text) > _DEEPEST:
        raise InputError("too large or too deep for a manifest", where=where)
    text = _CONDITION.sub("", _CONTROL.sub("", text))
    plain = _TEMPLATE.sub(partial(_filled, given=given or {}), text).expandtabs(2)
    try:
        return [each for each in yaml.load_all(plain, _loader()) if each is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        what = getattr(fault, "problem", None) or "not YAML"
        raise InputError(f"not YAML: {what}", where=f"{where}{line}") from None


def _filled(template: re.Match[str], given: Mapping[str, str]) -> str:
    name = re.sub(r"\W+", "_", template[1]).strip("_")[:60]
    return given[name] if name in given else missing(name)


def _loader() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Bounded(base):  # type: ignore[misc]
        """A YAML loader that limits the size of merged mappings (`<<: *common`)."""

        def flatten_mapping(self, node: Any) -> None:
            size = sum(
                len(part.value)
                for key, value in node.value
                if key.tag == "tag:yaml.org,2002:merge"
                for part in (value.value if isinstance(value, yaml.SequenceNode) else [value])
                if isinstance(part.value, list)
            )
            if size > _MOST_KEYS:
                raise ValueError("merged mappings of too many keys")
            super().flatten_mapping(node)

    return Bounded


def _depth(text: str) -> int:
    """The maximum depth of nested brackets, and of nested list dashes within one line."""
    depth = deepest = 0
    for sign in re.finditer(r"[\[{\]}]", text):
        depth = depth + 1 if sign[0] in "[{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    dashes = max((len(found[0]) // 2 for found in re.finditer(r"(?:- )+", text)), default=0)
    return max(deepest, dashes)


def containers(found: list[Any], given: Mapping[str, str]) -> Iterator[Container]:
    """Every container in these documents, in order. given has values of variables."""
    seen: set[int] = set()
    waiting: list[tuple[Any, str | None, int | None]] = [(found, None, None)]
    while waiting:
        value, role, replicas = waiting.pop()
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            waiting.extend((each, role, replicas) for each in reversed(value))
            continue
        table = {str(key): inner for key, inner in value.items()}
        role = _role(_names(table)) or role
        if type(table.get("replicas")) is int:
            replicas = table["replicas"]
        if any(key in table for key in WORDS) or isinstance(table.get("image"), str):
            yield _container(table, given)._replace(role=role, replicas=replicas)
        for key, inner in reversed(table.items()):
            waiting.append((inner, _role([key]) or role, replicas))


def _names(table: Mapping[str, Any]) -> list[str]:
    """The name and the labels of a mapping."""
    metadata = table.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    labels = about.get("labels")
    named = [table.get("name"), table.get("container_name"), about.get("name")]
    return [*map(str, named), *(map(str, labels.values()) if isinstance(labels, dict) else ())]


def _role(names: Collection[str]) -> str | None:
    """The role prefill or decode, if exactly one of both words is in the names; else None."""
    roles = {role for name in names for role in _ROLES if role in name.lower()}
    return roles.pop() if len(roles) == 1 else None


def scripts(found: list[Any], given: Mapping[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(text, variables next to it) for every text at any depth that does not belong to
    a container.
    """
    for table in mappings(found):
        environment = next((table[key] for key in ENVIRONMENTS if key in table), None)
        known = {k: v for k, v in _environment(environment, given).items() if v is not None}
        for key, value in table.items():
            if isinstance(value, str) and key not in WORDS:
                yield value, known


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping at any depth; one that several anchors refer to is listed once."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop(0) if len(waiting) < 64 else waiting.pop()
        if not isinstance(each, dict | list) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            yield {str(key): inner for key, inner in each.items()}
            waiting[:0] = each.values()
        else:
            waiting[:0] = each


def _container(table: Mapping[str, Any], given: Mapping[str, str]) -> Container:
    environment = _environment(table.get("env", table.get("environment")), given)
    is_compose = "entrypoint" in table or "environment" in table or "env" not in table

    def words_of(value: Any) -> Iterator[str]:
        for item in value if isinstance(value, list) else [value]:
            if item is None or isinstance(item, dict | list):
                continue
            text = _referred(str(item), {**environment, **given})
            if is_compose:
                text = _interpolated(text, given)
            if " " not in text:  # no script, whose shell knows its variables
                text = _substituted(text, given)
            yield from _split(text) if isinstance(value, str) else [text]

    words = [word for key in WORDS for word in words_of(table.get(key))]
    deeper = mappings([each for key, each in table.items() if key not in ENVIRONMENTS])
    inner = next((each["args"] for each in deeper if {*WORDS} & each.keys() == {"args"}), None)
    image = table.get("image")
    if isinstance(image, dict):
        image = ":".join(str(image[key]) for key in ("repository", "tag") if image.get(key))
    image = _interpolated(str(image), given) if image and is_compose else str(image or "")
    return Container(tuple(words), image, environment, tuple(words_of(inner)))


def _environment(value: Any, given: Mapping[str, str]) -> dict[str, str | None]:
    """Environment variables: a list of tables in Kubernetes, a mapping or a list of `NAME=VALUE` in
    compose.
    """
    if isinstance(value, dict):
        return {str(key): None if each is None else _interpolated(str(each), given)
                for key, each in value.items()}  # fmt: skip
    found: dict[str, str | None] = {}
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict) and "name" in each:
            its_own = each.get("value")
            found[str(each["name"])] = None if its_own is None else str(its_own)
        elif isinstance(each, str):
            name, equals, value = each.partition("=")
            found[name] = _interpolated(value, given) if equals else None
    return found


def _referred(text: str, environment: Mapping[str, str | None]) -> str:
    """Replace Kubernetes' references `$(NAME)` by values of the container's environment."""

    def put(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        value = environment.get(match[1])
        return missing(match[1]) if value is None else value

    return _REFERENCE.sub(put, text)


def _split(text: str) -> list[str]:
    """Split a command given as one text into words; a text of several lines is a script, and
    remains one word.
    """
    if "\n" in text.strip():
        return [text]
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def _substituted(text: str, given: Mapping[str, str]) -> str:
    """Replace `${NAME}`, which Kubernetes leaves to templating tools, by given values.

    In names such as `${a.b}` dots count as underscores.
    """

    def put(match: re.Match[str]) -> str:
        name = match[1].replace(".", "_")
        return given[name] if name in given else missing(name)

    return _SUBSTITUTED.sub(put, text)


def _interpolated(text: str, given: Mapping[str, str]) -> str:
    """Replace compose's variables, which come from the shell that starts compose."""

    def put(match: re.Match[str]) -> str:
        braced, operator, default, plain = match.groups()
        if match[0] == "$$":
            return "$"
        if (value := given.get(braced or plain)) is not None:
            return value
        if operator and operator.endswith("-"):
            return str(default)
        return "" if operator and operator.endswith("+") else missing(braced or plain)

    return _INTERPOLATED.sub(put, text)
