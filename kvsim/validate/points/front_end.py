"""What a measured TTFT has beside the engine's: HTTP, tokenising, the way back to the client.

The simulated clock begins where the scheduler sees a request, a benchmark's where its client sends
one. The difference is in every TTFT and in no TPOT. It is fitted on served points
(`front_ends` of calibration/kernels/host.json, made by evidence/points/fit_front_end.py).
"""

import json
from functools import cache
from typing import Any, NamedTuple

from kvsim.step_time.kernels.host import HOST_FILE


class FrontEnd(NamedTuple):
    """Milliseconds of a request: request_ms of any, token_ms of each token of its prompt, client_ms
    of each client that is served at the same time.
    """

    request_ms: float = 0.0
    token_ms: float = 0.0
    client_ms: float = 0.0

    def ms(self, prompt_tokens: float, clients: int) -> float:
        """Of a request with so many prompt tokens among so many clients."""
        return self.request_ms + self.token_ms * prompt_tokens + self.client_ms * clients


@cache
def _fitted() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(HOST_FILE.read_text("utf-8")).get("front_ends", [])
    return found


def front_end(engine: str, kind: str) -> FrontEnd:
    """Of an engine that serves a model of this model_type; nothing where none was fitted."""
    entries = [each for each in _fitted() if each["engine"] == engine]
    own = [each for each in entries if each.get("kind") == kind]
    found = (own or [each for each in entries if "kind" not in each])[:1]
    return FrontEnd(*(found[0][name] for name in FrontEnd._fields)) if found else FrontEnd()
