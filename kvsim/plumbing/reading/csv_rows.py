"""CSV by column name: further columns are allowed, missing columns and short rows are refused."""

import csv
from collections.abc import Iterator, Sequence

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.files import Text, row_error


def header_of(head: str) -> list[str]:
    """The column names on a file's first line; [] if the line is not CSV. Never raises."""
    try:
        return [name.strip() for name in next(csv.reader([head]), [])]
    except csv.Error:
        return []


def has_columns(head: str, columns: Sequence[str]) -> bool:
    """Whether the header names all `columns`."""
    return set(columns) <= set(header_of(head))


def columns(text: Text, names: Sequence[str]) -> list[int]:
    """Indices of the columns with these names; InputError if one is missing."""
    header = header_of(text.lines[0])
    missing = [name for name in names if name not in header]
    if missing:
        raise row_error(
            text.name,
            1,
            f"missing column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
            ",".join(header),
            remedy=f"expected {','.join(names)}",
        )
    return [header.index(name) for name in names]


def numbered_rows(text: Text) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of each row below the header; InputError for a row with fewer or more
    fields than the header.
    """
    reader = csv.reader(text.lines, strict=True)
    try:
        width = len(next(reader))
        for fields in reader:
            if len(fields) != width:
                what = "the row is cut short" if len(fields) < width else "the row is too long"
                raise row_error(
                    text.name, reader.line_num, what, f"{len(fields)} fields", f"{width} columns"
                )
            yield reader.line_num, fields
    except csv.Error as error:
        raise row_error(text.name, reader.line_num, f"not CSV: {error}") from None


def records(text: Text) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, {column: field}) of each row, without empty fields. InputError for a duplicate
    column.
    """
    header = header_of(text.lines[0])
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise row_error(text.name, 1, "a column is there twice", repr(twice))
    for line, fields in numbered_rows(text):
        yield line, {name: field for name, field in zip(header, fields, strict=True) if field}


def one_line(fields: Sequence[object]) -> str:
    """A CSV line, quoted where needed, without its line end."""
    texts = [str(field) for field in fields]
    if any(char in text for text in texts for char in ',"\r\n'):
        if any(char in text for text in texts for char in "\r\n"):
            raise InputError("a field holds a line break", value=repr(texts))
        texts = ['"' + t.replace('"', '""') + '"' if "," in t or '"' in t else t for t in texts]
    return ",".join(texts)
