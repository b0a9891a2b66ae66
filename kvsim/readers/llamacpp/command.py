"""llama-server's command line, in a script, in a manifest, or by itself."""

import re

from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.llamacpp.args import KNOWN, SHORT, SWITCHES, left_out_notes, take
from kvsim.readers.parsing.command_source import CommandSource
from kvsim.readers.parsing.commands import Program
from kvsim.readers.reader import Sniffed

PROGRAM = Program(
    serves=re.compile(r"(?<![\w=-])llama-server(?:\.exe)?(?=\s|$)"),
    image=re.compile(r"ghcr\.io/ggml-org/llama\.cpp:server()\S*"),
    known=KNOWN,
    short=SHORT,
    switches=SWITCHES,
    bare=re.compile(r"(jinja|metrics|slots|mlock|no_\w+|cont_batching|fit_print)$"),
)


class LlamaCommand(CommandSource):
    """A command `llama-server -m MODEL.gguf --flags`."""

    what = "a llama-server command line"
    program = PROGRAM
    quoting = (
        "llama_context:",
        "srv  ",
        "slot ",
    )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the flags of the first llama-server command in the text."""
        asked = cls.asked(source)
        found = {"engine": "llama.cpp", **take(asked.known, source.name)}
        found.setdefault("kv_unified", "n_parallel" not in found)
        notes = (*asked.notes(), *left_out_notes(asked.known))
        lost = {
            (KNOWN[name][0] if name in KNOWN else name) or name: each
            for name, each in asked.missing.items()
        }
        described = ServerSettings.parse(found, source.name)
        return Description(described, notes=notes, missing=lost)
