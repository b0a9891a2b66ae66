"""Write plain values as TOML; the standard library only reads TOML."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_BARE_KEY = r"[A-Za-z0-9_-]+"


def to_toml(table: Mapping[str, Any]) -> str:
    """TOML text of nested mappings, lists, strings, numbers and booleans; `None` is left out.

    `tomllib.loads(to_toml(table)) == table` for every table without `None`. Raises TypeError for
    any other type of value.
    """
    lines: list[str] = []
    _write(table, (), lines)
    return "\n".join(lines).strip() + "\n"


def _write(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    """Append the lines of `table` under the header `path`: values first, then sub-tables."""
    kept = {key: value for key, value in table.items() if value is not None}
    nested = {key: value for key, value in kept.items() if _is_table(value) or _is_tables(value)}
    lines.extend(
        f"{_key(key)} = {value_text(value)}" for key, value in kept.items() if key not in nested
    )
    for key, value in nested.items():
        inner = (*path, _key(key))
        header = ".".join(inner)
        for element in [value] if _is_table(value) else value:
            lines.extend(["", f"[{header}]" if _is_table(value) else f"[[{header}]]"])
            _write(element, inner, lines)


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_table, value))


def _key(key: str) -> str:
    return key if re.fullmatch(_BARE_KEY, key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which JSON leaves bare and TOML does not allow.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def value_text(value: object) -> str:
    """One value as TOML text on one line; a mapping becomes an inline table."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {value_text(v)}" for key, v in value.items() if v is not None)
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(value_text(element) for element in value)}]"
    raise TypeError(f"no TOML for {type(value).__name__}: {value!r}")
