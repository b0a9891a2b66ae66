"""A source that is a server's command line: the same sniffing for each program."""

from typing import ClassVar

from kvsim.readers.parsing.commands import Program
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source


class CommandSource(Source):
    """program: the command. quoting: words of logs that quote the command without being one."""

    rank = ASKED_FOR
    gives = SERVER
    program: ClassVar[Program]
    quoting: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognised by the command, unless a log quotes it."""
        return (
            source.document is None
            and not (cls.quoting and source.holds(*cls.quoting))
            and cls.program.stands_in(source.text)
        )
