"""Base of sources that contain a server's command line, with common recognition."""

from typing import ClassVar

from kvsim.readers.parsing.commands import Arguments, Program
from kvsim.readers.parsing.ledger import FLAGS, VARIABLES
from kvsim.readers.parsing.manifests import StartedServer
from kvsim.readers.parsing.raw_flags import flags_in, variables_in
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source


class CommandSource(Source):
    """A source with a command line. program is the server's program. quoting has words of logs that
    only quote the command.
    """

    rank = ASKED_FOR
    gives = SERVER
    program: ClassVar[Program]
    quoting: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def asked(cls, source: Sniffed) -> Arguments:
        """Parse the arguments of the server's command. Flags and variables elsewhere in the text
        stay in the ledger as unread.
        """
        text = source.string()
        found = cls.program.arguments(text, source.name, source.variables, source.server)
        record(source, found)
        return found

    @classmethod
    def servers(cls, source: Sniffed) -> list[StartedServer]:
        """The servers that a manifest starts with different flags; empty for other sources."""
        return cls.program.servers(source.string(), source.name, source.variables)

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the text by the command, unless a log quotes it."""
        return (
            source.document is None
            and not (cls.quoting and source.holds(*cls.quoting))
            and cls.program.stands_in(source.text)
        )


def record(source: Sniffed, found: Arguments) -> None:
    """Record in the ledger all flags and variables of a text, and which of them these arguments
    use.
    """
    if (ledger := source.ledger) is None:
        return
    text = source.string()
    ledger.there(FLAGS, "", flags_in(text))
    ledger.there(VARIABLES, "", variables_in(text))
    for each in found.flags:
        ledger.take(FLAGS, "", each)
    for each in (*found.environment, *found.used):
        ledger.take(VARIABLES, "", each)
