"""A `vllm serve` command line: in a shell script, a file of its own, a manifest, or on kvsim's own
command line.

A file that `--config` names is read too, if it is next to the script.
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
    """`vllm serve MODEL --flags`, or the API server's module, or its image."""

    what = "a `vllm serve` command line"
    program = PROGRAM

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The flags of the first such command, and what the file says that `--config` names."""
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
