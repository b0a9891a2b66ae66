"""vLLM's arguments in a YAML file: of `vllm serve --config`, or Helm values of production-stack."""

import re

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description
from kvsim.readers.parsing.commands import Arguments
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import setting_of, settings_of, vllm_notes
from kvsim.readers.vllm.program import PROGRAM
from kvsim.readers.vllm.yaml_arguments import config_words, helm_models, known_keys

_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")
_LEAST_KNOWN = 2  # of its keys
_HELM = re.compile(r"^[ \t]*(?:-[ \t]+)?modelURL:", re.MULTILINE)
_KEY = re.compile(r"^[A-Za-z_][\w-]*[ \t]*:", re.MULTILINE)
_OTHERS = ("trace_version:", "apiVersion:", "image:", "services:")  # of YAML of something else


class VllmConfig(Source):
    """Keys are flags without their dashes, or in camelCase below `vllmConfig:`. They become the
    words of a command line, and are read as such.
    """

    rank = ASKED_FOR
    what = "vLLM's arguments in YAML"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognised by its keys, some of which are vLLM's own."""
        if source.is_folder or source.document is not None or "\0" in source.text:
            return False
        if _HELM.search(source.text):
            return True
        if PROGRAM.stands_in(source.text) or not _KEY.search(source.text):
            return False
        if any(line.startswith(_OTHERS) for line in source.text.splitlines()):
            return False
        try:
            return known_keys(source.text, source.name) >= _LEAST_KNOWN
        except InputError:
            return False

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The arguments of its first model."""
        text, notes, tag = source.string(), list[str](), None
        if _HELM.search(text):
            models = helm_models(text, source.name)
            if not models:
                raise InputError("no modelURL within a model", where=source.name)
            words, tag = list(models[0].words), models[0].tag
            if len(models) > 1:
                notes.append(f"{len(models)} models: the first one is taken")
            if models[0].unread:
                notes.append(
                    "keys that may change memory or time, and are not read: "
                    f"{', '.join(models[0].unread)}"
                )
        else:
            words = config_words(text, source.name)
        return described(PROGRAM.of_words(words, source.name), source.name, notes, tag)


def described(found: Arguments, where: str, notes: list[str], tag: str | None) -> Description:
    """Describe a server by its arguments. tag: of its image."""
    settings = settings_of(found.known, where).model_copy(update={"engine": "vllm"})
    version = _TAG.match(tag) if tag else None
    if version is not None:
        settings = settings.model_copy(update={"engine_version": version[1]})
    notes += vllm_notes(found.known, found.unread)
    lost = {setting_of(name): each for name, each in found.missing.items()}
    return Description(settings, notes=tuple(notes), missing=lost)
