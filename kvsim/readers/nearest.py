"""For an unrecognised file: the most similar format, and what the file lacks."""

import re
from functools import partial
from typing import NamedTuple

from kvsim.readers.reader import Sniffed


class Nearest(NamedTuple):
    """A kind of file that kvsim recognises but cannot read.

    what is its name in messages. signs is a pattern found in such files. advice says what to give
    instead. is_json: a file of this kind may be a single JSON object.
    """

    what: str
    signs: re.Pattern[str]
    advice: str
    is_json: bool = False


_sign = partial(re.compile, flags=re.MULTILINE)
# In order: the first that fits is named.
_KINDS = (
    Nearest("a script", _sign(r"\A#!.{0,40}\bb?a?sh\b"),
            "it starts no server that kvsim knows: vllm serve, sglang, trtllm-serve, llama-server, "
            "or their images"),
    Nearest("Python code", _sign(r"^(?:from|import) (?:vllm|sglang|tensorrt_llm)\b"),
            "write the arguments of its LLM(...) or Engine(...) as flags of a command line"),
    Nearest("a point of InferenceX", _sign(r'"infmax_model_prefix"'),
            "it has no number of requests: give the result file of the benchmark that it was made "
            "of, with the server's command line or log", is_json=True),
    Nearest("requests of OpenAI's batch API", _sign(r'"custom_id".{0,400}"(?:method|url|body)"'),
            "it has prompts and no lengths in tokens: count them with the model's tokenizer, and "
            "write id,arrival_s,prompt_tokens,output_tokens (kvsim traces formats)", is_json=True),
    Nearest("ServeGen's workload", _sign(r'"(?:client_id|num_turns|reason_ratio)"|'
            r'"(?:in|out)put_tokens": "\{|client_id,.{0,80}(?:input|prompt)_tokens|'
            r"\A\d+,[\d.]+,[\d.]+,\w*(?:,[\d.]+){0,4}$"),
            "draw requests with it, and write timestamp, input_length, output_length in JSON lines "
            "(mooncake)", is_json=True),
    Nearest("OpenTelemetry's gen_ai spans of a client", _sign(r'"gen_ai\.[\w.]+"'),
            "kvsim reads OTLP as JSON, with resourceSpans around the spans", is_json=True),
    Nearest("nvidia-smi's table", _sign(r"(?:utilization\.gpu|memory\.used)|NVIDIA-SMI \d"),
            "it has no pool and no requests: give the server's log"),
    Nearest("vLLM's arguments in YAML", _sign(r"^[a-z][\w-]*(?:-size|-len|-seqs|model):"),
            "such a file has two of vLLM's arguments or more as keys at its top"),
    Nearest("a log of an engine's worker", _sign(r"INFO|WARNING|\[20\d\d-\d\d-\d\d"),
            "kvsim knows an engine's log by its arguments, its pool or its gauges: give the part "
            "from the start on"),
    Nearest("a manifest of YAML",
            _sign(r"^(?:apiVersion|kind|services|image|metadata|jobs|steps|deployment):"),
            "none of its containers starts vllm serve, sglang, trtllm-serve or llama-server"),
    Nearest("YAML of another tool", _sign(r"\A(?:#.*\n|[ \t]*\n)*[A-Za-z_][\w.-]*:(?:\s|\Z)"),
            "if it has flags of a server, give the command line that they make"),
    Nearest("a table", _sign(r"^[\w .%/()-]+(?:,[\w .%/()-]+){2,}$"),
            "kvsim reads requests with columns such as arrival_s, prompt_tokens, output_tokens, "
            "first_token_s, last_token_s"),
)  # fmt: skip
_HEAD = 1 << 14


def nearest(source: Sniffed) -> str:
    """One line: what the file looks like, and what to give instead; "" if it looks like nothing
    known.
    """
    head = source.text[:_HEAD]
    if isinstance(source.document, dict) and "results" not in source.document:
        keys = ", ".join(sorted(map(str, source.document))[:8])
        found = next((each for each in _KINDS if each.is_json and each.signs.search(head)), None)
        if found is None:
            return f"JSON with the keys {keys}, which are those of no tool that kvsim knows"
        return f"nearest: {found.what}; {found.advice}"
    for each in _KINDS:
        if each.signs.search(head):
            return f"nearest: {each.what}; {each.advice}"
    return ""
