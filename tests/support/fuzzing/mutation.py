"""Spoil a file as files are spoilt: by the byte, by the field, by the nested value.

All from one `random.Random`, so that a seed names a case.
"""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from support.fuzzing.structure import restructured

NUMBERS = [
    "0", "-0", "1", "2", "-1", "0.5", "-0.5", "3", "7", "16", "64", "1000", "1e3", "1E+2", "1e-3",
    "65536", "1000000", "1000000000", "2147483648", "1e18", "1000000000000000000",
    "4611686018427387904", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "99999999999999999999", "1" + "0" * 40, "9" * 5000, "1e29", "1e31", "1e300", "-1e300", "1e400",
    "1e-300", "1e-29", "5e-324", "NaN", "nan", "Infinity", "-Infinity", "0x10", "1_0", "٣", "½",
    "1.5e9", "999999999999.5", "0.1" + "1" * 600,
]  # fmt: skip
WORDS = [
    '""', '" "', '"x"', '"auto"', '"max_model_len"', '"none"', '"paged"', '"\\ud800"', '"\\u0000"',
    '"a\\nb"', '"é\U0001f600"', '"' + "y" * 1000 + '"', "null", "true", "false", "[]", "{}",
    "[[]]", "[1]", '["x"]', '{"x": 1}', '{"kind": "paged"}', "[" * 70 + "]" * 70, "[null]",
    '[1, "x", null]', "[1e300, 2]", "inf", "1979-05-27",
]  # fmt: skip
BYTES = [b"\x00", b"\xff", b"\xed\xa0\x80", b"\n", b"\r", b'"', b",", b"{", b"[", b"\xe2\x80\xa8",
         b"\x1f\x8b", b"=", b"#", b"'", b'"""', b"\x1c", b"\x0b"]  # fmt: skip
MOST_BYTES = 200_000


def spoilt(random: Random, seed: bytes, kind: str) -> bytes:
    """A file like `seed`, with one to four things wrong. kind: json, jsonl, csv, toml, scenario,
    binary."""
    data = seed
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
        ways = STRUCTURED.get(kind, ()) if random.random() < 0.8 else ANY
        data = random.choice(ways or ANY)(random, data)[:MOST_BYTES]
    return data


def value(random: Random) -> str:
    """A JSON value, or nearly one, as text."""
    return random.choice(NUMBERS if random.random() < 0.6 else WORDS)


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(BYTES) * random.choice((1, 1, 2, 100)) + data[at:]


def _cut(random: Random, data: bytes) -> bytes:
    first, last = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[last:] if random.random() < 0.5 else data[:last]


def _again(random: Random, data: bytes) -> bytes:
    first, last = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:last] * random.choice((1, 1, 3)) + data[last:]


def _number(random: Random, data: bytes) -> bytes:
    """One run of digits becomes another number."""
    spans = list(_digits(data))
    if not spans:
        return _insert(random, data)
    first, last = random.choice(spans)
    return data[:first] + random.choice(NUMBERS).encode() + data[last:]


def _digits(data: bytes) -> Iterator[tuple[int, int]]:
    first = None
    for at, byte in enumerate(data):
        if 48 <= byte <= 57 or (byte == 46 and first is not None):
            first = at if first is None else first
        elif first is not None:
            yield first, at
            first = None
    if first is not None:
        yield first, len(data)


ANY = (_flip, _insert, _cut, _again, _number)


def _json(random: Random, data: bytes) -> bytes:
    """One node of a JSON document is replaced, removed or repeated."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return random.choice(ANY)(random, data)
    mark = "@@here@@"
    places = list(_places(document))
    if not places:
        return value(random).encode()
    holder, key = random.choice(places)
    way = random.random()
    if way < 0.7:
        holder[key] = mark
    elif way < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder.extend([holder[key]] * random.choice((1, 5)))
    else:
        holder[random.choice(("x", "kind", "", str(key) + "s"))] = mark
    return json.dumps(document).replace(f'"{mark}"', value(random)).encode()


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of the nodes of a document, level by level, up to about 3,000."""
    level, found = ([document] if isinstance(document, dict | list) else []), 0
    while level and found < 3000:
        inner = []
        for holder in level:
            pairs = holder.items() if isinstance(holder, dict) else enumerate(holder)
            for key, child in pairs:
                yield holder, key
                found += 1
                if isinstance(child, dict | list):
                    inner.append(child)
        level = inner


def _json_line(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    lines[at] = _json(random, lines[at])
    return b"\n".join(lines)


def _lines(random: Random, data: bytes) -> bytes:
    """A line goes missing, comes twice, or changes places."""
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    way = random.randrange(4)
    if way == 0:
        del lines[at]
    elif way == 1:
        lines.insert(at, lines[other])
    elif way == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = b""
    return b"\n".join(lines)


def _cell(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    cells = lines[at].split(b",")
    place = random.randrange(len(cells))
    cells[place] = b"" if random.random() < 0.1 else value(random).encode()
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


def _column(random: Random, data: bytes) -> bytes:
    """A column goes missing or comes twice."""
    rows = [line.split(b",") for line in data.split(b"\n")]
    place = random.randrange(len(rows[0]))
    twice = random.random() < 0.5
    for row in rows:
        if place < len(row):
            row[place : place + 1] = row[place : place + 1] * 2 if twice else []
    return b"\n".join(b",".join(row) for row in rows)


def _toml_value(random: Random, data: bytes) -> bytes:
    """Replace the value after one equals sign, sometimes with another key."""
    lines = data.split(b"\n")
    places = [at for at, line in enumerate(lines) if b"=" in line]
    if not places:
        return _insert(random, data)
    at = random.choice(places)
    key, _, _ = lines[at].partition(b"=")
    if random.random() < 0.15:
        key = random.choice((key + b"x", key + b".x", b"kind ", b"name "))
    lines[at] = key + b"= " + value(random).encode()
    return b"\n".join(lines)


Way = Callable[[Random, bytes], bytes]
STRUCTURED: dict[str, tuple[Way, ...]] = {
    "json": (_json, _json, _json, _number),
    "jsonl": (_json_line, _json_line, _lines, _number),
    "csv": (_cell, _cell, _column, _lines, _number),
    "toml": (_toml_value, _toml_value, _lines, _number),
    "scenario": (restructured,),
    "binary": (_flip, _insert, _cut, _again),
}
