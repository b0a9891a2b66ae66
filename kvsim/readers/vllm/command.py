"""A `vllm serve` command line, in a shell script, a text file, a manifest, or as an argument of
kvsim.

A file given by `--config` is read too, if it is next to the script.
"""

from pathlib import Path
from typing import Any

from kvsim.readers.description import Description
from kvsim.readers.parsing.command_source import CommandSource
from kvsim.readers.reader import Sniffed, look
from kvsim.readers.vllm.args import role_of, setting_of, settings_of, vllm_notes
from kvsim.readers.vllm.program import PROGRAM
from kvsim.readers.vllm.yaml_arguments import config_words


class VllmCommand(CommandSource):
    """A command `vllm serve MODEL --flags`, the API server's Python module, or vLLM's container
    image.
    """

    what = "a `vllm serve` command line"
    program = PROGRAM

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the flags of the first vLLM command in the text, and the file given by
        `--config`.
        """
        found = cls.asked(source)
        notes: list[str] = []
        asked: dict[str, Any] = {}
        for name in found.flagged:
            path = source.path.parent / name
            if path.is_file():
                words = config_words(look(path).string(), path.name)
                inner = PROGRAM.of_words(words, path.name)
                asked |= inner.known
                found.unread.update(inner.unread)
                found.missing.update(inner.missing)
                notes.append(f"--config {Path(name).name}: read too; flags count before it")
            else:
                notes.append(f"--config {name}: no such file beside it; import that file too")
        asked |= found.known
        settings = settings_of(asked, source.name).model_copy(update={"engine": "vllm"})
        if found.version:
            settings = settings.model_copy(update={"engine_version": found.version})
        notes += [*vllm_notes(asked, found.unread), *found.environment_notes(), *found.remarks]
        lost = {setting_of(name): each for name, each in found.missing.items()}
        return Description(settings, notes=tuple(notes), missing=lost, role=role_of(settings))
