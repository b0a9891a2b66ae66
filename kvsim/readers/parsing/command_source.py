"""A source that is a server's command line: the same sniffing for each program."""

from typing import ClassVar

from kvsim.readers.parsing.commands import Arguments, Program
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source


class CommandSource(Source):
    """program: the command. quoting: words of logs that quote the command without being one."""

    rank = ASKED_FOR
    gives = SERVER
    program: ClassVar[Program]
    quoting: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def asked(cls, source: Sniffed) -> Arguments:
        """The arguments of the server's command."""
        return cls.program.arguments(source.string(), source.name, source.variables, source.server)

    @classmethod
    def servers(cls, source: Sniffed) -> int:
        """How many servers with flags of their own a manifest starts; 0 for any other source."""
        return cls.program.servers(source.string(), source.name, source.variables)

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognised by the command, unless a log quotes it."""
        return (
            source.document is None
            and not (cls.quoting and source.holds(*cls.quoting))
            and cls.program.stands_in(source.text)
        )
