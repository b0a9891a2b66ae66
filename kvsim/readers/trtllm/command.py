"""TensorRT-LLM's command line: `trtllm-serve MODEL --flags`."""

from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.command_source import CommandSource
from kvsim.readers.reader import Sniffed
from kvsim.readers.trtllm.args import KNOWN, PROGRAM


class TrtLlmCommand(CommandSource):
    """A command such as `trtllm-serve MODEL --tp_size 2 --max_batch_size 64`."""

    what = "a `trtllm-serve` command line"
    program = PROGRAM
    quoting = (
        "[TensorRT-LLM][",
        "[TRT-LLM] [",
    )

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the flags of the first trtllm-serve command in the text."""
        asked = cls.asked(source)
        found: dict[str, Any] = {"engine": "tensorrt-llm"}
        if asked.version is not None:
            found["engine_version"] = asked.version
        for name, value in asked.known.items():
            setting, read = KNOWN[name]
            try:
                found[setting] = read(value)
            except ValueError as fault:
                raise InputError(str(fault), where=f"{source.name}: {name}", value=value) from None
        settings = ServerSettings.parse(found, source.name)
        lost = {KNOWN[name][0] if name else "": each for name, each in asked.missing.items()}
        return Description(settings, notes=tuple(asked.notes()), missing=lost)
