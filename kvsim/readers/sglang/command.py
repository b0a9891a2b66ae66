"""SGLang's command line: `python -m sglang.launch_server`, `sglang serve`, or its image."""

import re

from kvsim.readers.description import Description, ServerSettings
from kvsim.readers.parsing.command_source import CommandSource
from kvsim.readers.parsing.commands import Program
from kvsim.readers.reader import Sniffed
from kvsim.readers.sglang.args import KNOWN, SWITCHES, left_out_notes, split_attention, take

PROGRAM = Program(
    serves=re.compile(r"\bsglang\.launch_server\b|\bsglang\s+serve\b"),
    image=re.compile(r"lmsysorg/sglang(?::v?(\d+\.\d+(?:\.\d+)?))?\S*"),
    known={*KNOWN, "disaggregation_mode"},
    short={
        "--model": "model_path",
        "--tp": "tp_size",
        "--tensor-parallel-size": "tp_size",
        "--pp": "pp_size",
        "--pipeline-parallel-size": "pp_size",
        "--dp": "dp_size",
        "--data-parallel-size": "dp_size",
        "--attention-data-parallel-size": "attn_dp_size",
        "--ep": "ep_size",
        "--expert-parallel-size": "ep_size",
    },
    switches=SWITCHES,
    bare=re.compile(r"(trust_remote_code|enable_\w+|disable_\w+|log_requests|skip_\w+)$"),
    abbreviates=True,
)


class SGLangCommand(CommandSource):
    """`python -m sglang.launch_server --model-path MODEL --flags`."""

    what = "an SGLang command line"
    program = PROGRAM
    quoting = ("server_args=ServerArgs(",)

    @classmethod
    def read(cls, source: Sniffed) -> Description:
        """Read the flags of the first SGLang command in the text."""
        asked = cls.asked(source)
        pairs = dict(asked.known)
        if "model" in pairs:  # `sglang serve MODEL`
            pairs.setdefault("model_path", pairs.pop("model"))
        found = {"engine": "sglang", "engine_version": asked.version}
        take(found, pairs, source.name)
        split_attention(found, source.name, resolved=False)
        notes = [*asked.notes(), *left_out_notes(pairs)]
        settings = {name: value for name, value in found.items() if value is not None}
        lost = {
            KNOWN[name][0] if name in KNOWN else name: each for name, each in asked.missing.items()
        }
        described = ServerSettings.parse(settings, source.name)
        role = pairs.get("disaggregation_mode")
        role = role if role in ("prefill", "decode") else None
        return Description(described, notes=tuple(notes), missing=lost, role=role)
