"""vLLM's arguments in a YAML file: of `vllm serve --config`, or Helm values of production-stack."""

import re

from kvsim.readers.description import Description
from kvsim.readers.reader import ASKED_FOR, SERVER, Sniffed, Source
from kvsim.readers.vllm.args import settings_of, vllm_notes
from kvsim.readers.vllm.program import PROGRAM
from kvsim.readers.vllm.yaml_arguments import listed_flags, yaml_arguments

_TAG = re.compile(r"\btag:[ \t]*[\"']?v?(\d+\.\d+(?:\.\d+)?)")  # of its image
_LEAST_KNOWN = 2  # of its keys
_HELM = re.compile(r"^[ \t]*(?:-[ \t]+)?modelURL:", re.MULTILINE)
_OTHERS = ("trace_version:", "apiVersion:", "image:")  # of YAML that is something else


class VllmConfig(Source):
    """Keys are flags without their dashes, or in camelCase below `vllmConfig:`."""

    rank = ASKED_FOR
    what = "vLLM's arguments in YAML"
    gives = SERVER

    @classmethod
    def sniff(cls, source: Sniffed) -> bool:
        """By its keys, of which some are vLLM's own."""
        if source.is_folder or source.document is not None or "\0" in source.text:
            return False
        if _HELM.search(source.text):
            return True
        if PROGRAM.stands_in(source.text):
            return False
        others = any(line.startswith(_OTHERS) for line in source.text.splitlines())
        return not others and len(yaml_arguments(source.text)) >= _LEAST_KNOWN

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """The arguments of its first model."""
        text = source.string()
        notes = []
        models = len(_HELM.findall(text))
        if models > 1:
            notes.append(f"{models} models: the first one is taken")
        asked = yaml_arguments(text)
        words = " ".join(("vllm serve", *listed_flags(text))) if models == 1 else "vllm serve"
        more = PROGRAM.arguments(words, source.name)
        asked |= more.known
        settings = settings_of(asked, source.name).model_copy(update={"engine": "vllm"})
        tag = _TAG.search(text)
        if models and tag is not None:
            settings = settings.model_copy(update={"engine_version": tag[1]})
        return Description(settings, notes=(*notes, *vllm_notes(asked, more.unread)))
