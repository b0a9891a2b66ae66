"""vLLM's arguments in YAML: a file for `vllm serve --config`, or Helm values of
production-stack.
"""

import re

from kvsim.plumbing.errors import InputError
from kvsim.readers.description import Description
from kvsim.readers.parsing.command_source import record
from kvsim.readers.parsing.commands import Arguments
from kvsim.readers.parsing.manifests import StartedServer
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import role_of, setting_of, settings_of, vllm_notes
from kvsim.readers.vllm.program import PROGRAM
from kvsim.readers.vllm.yaml_arguments import (
    config_words,
    helm_keys,
    helm_models,
    known_keys,
)

_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)?)")
_LEAST_KNOWN = 2  # of its keys
_HELM = re.compile(r"^[ \t]*(?:-[ \t]+)?modelURL:", re.MULTILINE)
_READ = ("servingEngineSpec.modelSpec", "routerSpec.routingLogic")
_KEY = re.compile(r"^[A-Za-z_][\w-]*[ \t]*:", re.MULTILINE)
_OTHERS = ("trace_version:", "apiVersion:", "image:", "services:")  # of YAML of something else


class VllmConfig(Source):
    """A YAML file with vLLM's arguments.

    Keys are flags without dashes, or camelCase keys below `vllmConfig:`. They are converted to a
    command line and parsed as such.
    """

    rank = ASKED_FOR
    what = "vLLM's arguments in YAML"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """Recognise the file by keys that are vLLM's arguments."""
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
    def servers(cls, source: Sniffed) -> list[StartedServer]:
        """The models in Helm values; each one is a server."""
        try:
            models = helm_models(source.string(), source.name) if _HELM.search(source.text) else []
        except InputError:
            return []
        return [StartedServer(at, None, each.replicas) for at, each in enumerate(models)]

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the arguments of one model."""
        text, notes, tag = source.string(), list[str](), None
        if _HELM.search(text):
            models = helm_models(text, source.name)
            if not models:
                raise InputError("no modelURL within a model", where=source.name)
            model = models[source.server.at if source.server else 0]
            words, tag = list(model.words), model.tag
            if source.ledger is not None:
                source.ledger.there("keys", "", helm_keys(text, source.name))
                for key in _READ:
                    source.ledger.take("keys", "", key)
            if model.unread:
                notes.append(
                    "keys that may change memory or time, and are not read: "
                    f"{', '.join(model.unread)}"
                )
        else:
            words = config_words(text, source.name)
        found = PROGRAM.of_words(words, source.name)
        record(source, found)
        return described(found, source.name, notes, tag)


def described(found: Arguments, where: str, notes: list[str], tag: str | None) -> Description:
    """Describe a server by its arguments. tag is the container image's tag, which may give the
    version.
    """
    settings = settings_of(found.known, where).model_copy(update={"engine": "vllm"})
    version = _TAG.match(tag) if tag else None
    if version is not None:
        settings = settings.model_copy(update={"engine_version": version[1]})
    notes += vllm_notes(found.known, found.unread)
    lost = {setting_of(name): each for name, each in found.missing.items()}
    return Description(settings, notes=tuple(notes), missing=lost, role=role_of(settings))
