"""One request to a server and its streamed answer: when it was sent, and when its tokens came."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from kvsim.record.address import LiveServer, check_key
from kvsim.request import Request

Now = Callable[[], float]
PATH = "/v1/completions"
_MOST = 200  # characters of a server's own message


class Reply(NamedTuple):
    """The server's answer to one request; times in s on the recorder's clock.

    came_s has the arrival time of each streamed chunk of one or more tokens. prompt_tokens and
    output_tokens are the server's counts if it reports them. cached_tokens is the number of prompt
    tokens that the server reports as prefix cache hits. error is "" if the answer is complete.
    """

    request: Request
    sent_s: float
    came_s: tuple[float, ...] = ()
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None
    error: str = ""
    status: int = 200


async def ask(
    server: LiveServer, model: str, prompt: list[int] | str, request: Request, now: Now
) -> Reply:
    """Send one request and read its answer to the end. A fault is put into the reply; only a
    refused API key raises InputError.
    """
    import httpx2

    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt,
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.priority:
        body["priority"] = request.priority
    url = server.base + PATH
    sent_s = now()
    stream = _Pieces()
    try:
        async with server.client.stream("POST", url, json=body) as response:
            if response.status_code != 200:
                check_key(response, url)
                text = (await response.aread()).decode("utf-8", "replace")
                return Reply(request, sent_s, error=_message(text, response.status_code),
                             status=response.status_code)  # fmt: skip
            async for line in response.aiter_lines():
                stream.take(line, now)
                if stream.over:
                    break
    except (httpx2.HTTPError, OSError) as error:
        stream.error = str(error) or type(error).__name__
    usage = stream.usage
    outputs = _count(usage.get("completion_tokens")) or stream.tokens
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    error_text = stream.error or ("" if stream.came_s else "the answer has no tokens")
    return Reply(
        request,
        sent_s,
        tuple(stream.came_s),
        _count(usage.get("prompt_tokens")) or request.prompt_tokens,
        outputs,
        cached if isinstance(cached, int) and cached >= 0 else None,
        error_text,
    )


class _Pieces:
    """Parser of an answer's server-sent events, line by line."""

    def __init__(self) -> None:
        self.came_s: list[float] = []
        self.tokens = 0
        self.usage: dict[str, Any] = {}
        self.error = ""
        self.over = False

    def take(self, line: str, now: Now) -> None:
        """Read the next line; lines that do not begin with `data:` are ignored."""
        if not line.startswith("data:"):
            return
        text = line[5:].strip()
        if text == "[DONE]":
            self.over = True
            return
        try:
            event = json.loads(text)
        except ValueError:
            self.error = "a damaged event in the answer"
            return
        if not isinstance(event, dict):
            return
        if event.get("error"):
            self.error = _message(text, 200)
            return
        choices = event.get("choices")
        if choices:
            self.came_s.append(now())
            ended = any(each.get("finish_reason") and not each.get("text") for each in choices)
            self.tokens += not ended
        if isinstance(event.get("usage"), dict):
            self.usage = event["usage"]


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _message(text: str, status: int) -> str:
    """The server's own error message, cut to one line."""
    try:
        found = json.loads(text)
        inner = found.get("error", found) if isinstance(found, dict) else found
        said = inner.get("message", inner) if isinstance(inner, dict) else inner
    except ValueError:
        said = text
    words = " ".join(str(said).split())[:_MOST]
    return f"HTTP {status}: {words}" if status != 200 else words
