"""Standard output and standard error of a command: a reader that leaves, a stream that is closed,
and control characters in what others wrote.
"""

import os
import re
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

# Colours and the cursor's lines are rich's own (an allocator's label may use them: they do no more
# than colour a line). All else that a terminal obeys, or that turns the direction of text, is
# written as its number, in a form that JSON and TOML read back.
_OBEYED = re.compile(
    r"(\x1b\[[?\d;]*[mKAhl]|\r\n|\r(?=\x1b\[))|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def _shown(match: re.Match[str]) -> str:
    return match[1] or f"\\u{ord(match[0]):04x}"


class _Pipe(FileIO):
    """A file descriptor that outlives its reader: output without a reader is dropped."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(memoryview(data).cast("B"))


class _Terminal(TextIOWrapper):
    """Text for people, which a terminal shows and does not obey."""

    def write(self, text: str) -> int:
        super().write(_OBEYED.sub(_shown, text))
        return len(text)


def guard_streams() -> None:
    """Make `sys.stdout` and `sys.stderr` safe to write to, whatever they are connected to.

    Output to a closed stream is dropped. If the reader has left (`kvsim models | head`) it is
    dropped from then on, and the command does its work to the end. A character that an encoding
    lacks is written as its number. Streams that a test put in place stay.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            stream = _nowhere(number)
        elif type(stream) is TextIOWrapper:
            stream.flush()
            encoding, lines = stream.encoding, stream.line_buffering
            raw = BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False))
            stream = _Terminal(raw, encoding, "backslashreplace", line_buffering=lines)
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)


def _nowhere(number: int) -> TextIOWrapper:
    """A stream into nothing.

    It takes the descriptor of the closed one, which the next opened file would get. A library's
    output to standard error would then be written to that file.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
    return open(number, "w", encoding="utf-8", closefd=False)
