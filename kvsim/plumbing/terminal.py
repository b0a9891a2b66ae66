"""Safe stdout and stderr: for a pipe closed by its reader, a closed stream, control characters."""

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
    """A file descriptor that ignores output once the reader of its pipe is gone."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(memoryview(data).cast("B"))


class _Terminal(TextIOWrapper):
    """A text stream that escapes control codes, so that other people's text cannot control the
    terminal.
    """

    def write(self, text: str) -> int:
        super().write(_OBEYED.sub(_shown, text))
        return len(text)


def guard_streams() -> None:
    """Make `sys.stdout` and `sys.stderr` safe to write to, whatever they are connected to.

    Output to a closed stream is dropped. When the reader of a pipe exits (`kvsim models | head`),
    further output is dropped and the command still finishes its work. A character that the encoding
    lacks is written as its code. Streams that a test replaced are not changed.
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
    """A stream to the null device, under the file descriptor of a closed stream.

    Otherwise the next opened file would get that descriptor, and a library's messages to standard
    error would be written into it.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
    return open(number, "w", encoding="utf-8", closefd=False)
