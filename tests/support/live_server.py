"""A server on 127.0.0.1 with known step times: /metrics, streamed answers, and a step log.

It schedules as vLLM does without a prefix cache: decodes first, then prompts in chunks of what is
left of the step's tokens. Steps end when they are due, however late the machine is, so that no
lateness adds up. `TimelessLoop` has no waiting at all: when nothing is to be done, its clock goes
on to the next timer. Server and client in one such loop take as long as they compute.
"""

import asyncio
import json
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvsim.followers import Followers

GRACE_S = 0.0002  # of real time, in which bytes on their way arrive
MODEL = "Qwen/Qwen3-32B"
BLOCK, BLOCKS = 16, 8_000
MOST_SEQS, STEP_TOKENS, LONGEST = 64, 2_048, 8_192


class Truth(NamedTuple):
    """A step in s: constant, and of each sequence, context token and prompt token. front_s: of each
    request before the engine sees it.
    """

    step_s: float = 0.044
    sequence_s: float = 1e-4
    context_s: float = 0.17e-6
    prompt_s: float = 2.7e-4
    front_s: float = 0.012


@dataclass
class Asked:
    """A request in the engine. tokens: comes one for each token, and None at the end."""

    prompt_tokens: int
    output_tokens: int
    tokens: asyncio.Queue[int | None] = field(default_factory=asyncio.Queue)
    computed: int = 0
    made: int = 0

    @property
    def held(self) -> int:
        return self.computed + max(0, self.made - 1)


class StandIn:
    """The engine and its HTTP server. flavour: whose metrics and answers it has. refuse: statuses
    of paths instead of their answers. ids: whether prompts may be token ids.
    """

    def __init__(
        self,
        truth: Truth = Truth(),  # noqa: B008 it is frozen
        flavour: str = "vllm",
        refuse: dict[str, int] | None = None,
        *,
        ids: bool = True,
        key: str | None = None,
    ) -> None:
        self.truth, self.flavour, self.ids, self.key = truth, flavour, ids, key
        self.refuse = refuse or {}
        self.waiting: list[Asked] = []
        self.running: list[Asked] = []
        self.lines: list[str] = []
        self.prompts: list[Any] = []
        self.totals = {"prompts": 0, "outputs": 0, "ended": 0, "ttft": 0.0}
        self._steps = 0
        self._came = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """The server's address, while it runs."""
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        engine = asyncio.ensure_future(self._engine())
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            engine.cancel()
            server.close()

    # The engine

    async def _engine(self) -> None:
        now_s = asyncio.get_running_loop().time()
        while True:
            if not (self.waiting or self.running):
                self._came.clear()
                await self._came.wait()
                now_s = asyncio.get_running_loop().time()
            now_s = await self._step(now_s)

    async def _step(self, now_s: float) -> float:
        decoding = [each for each in self.running if each.made]
        left = STEP_TOKENS - len(decoding)
        chunks: list[tuple[Asked, int]] = []
        prompts = [each for each in self.running if not each.made]
        while left > 0 and (prompts or (self.waiting and len(self.running) < MOST_SEQS)):
            if prompts:
                asked = prompts.pop(0)
            else:
                asked = self.waiting.pop(0)
                self.running.append(asked)
            chunks.append((asked, min(left, asked.prompt_tokens - asked.computed)))
            left -= chunks[-1][1]
        new = sum(tokens for _, tokens in chunks)
        truth, context = self.truth, sum(each.held + 1 for each in decoding)
        took_s = truth.step_s + truth.sequence_s * (len(decoding) + len(chunks))
        took_s += truth.context_s * context + truth.prompt_s * new
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, now_s + took_s - loop.time()))
        for asked, tokens in chunks:
            asked.computed += tokens
        for asked in [*decoding, *(each for each, _ in chunks)]:
            if asked.computed == asked.prompt_tokens:
                asked.made += 1
                asked.tokens.put_nowait(asked.made)
        self._log(len(chunks), new, len(decoding), took_s, now_s + took_s)
        for asked in [each for each in self.running if each.made == each.output_tokens]:
            self.running.remove(asked)
            asked.tokens.put_nowait(None)
            self.totals["ended"] += 1
        self.totals["outputs"] += len(decoding)
        self.totals["prompts"] += new
        return now_s + took_s

    def _usage(self) -> float:
        blocks = sum(-(-each.held // BLOCK) for each in self.running)
        return blocks / BLOCKS

    def _log(self, chunks: int, new: int, decodes: int, took_s: float, ended_s: float) -> None:
        self._steps += 1
        clock = int(ended_s)
        clock_text = f"10-08 {clock // 3600 % 24:02}:{clock // 60 % 60:02}:{clock % 60:02}"
        self.lines.append(
            f"(APIServer pid=1) INFO {clock_text} [loggers.py:182] Engine 000: "
            f"Iteration({self._steps}): {chunks} context requests, {new} context tokens, "
            f"{decodes} generation requests, {decodes} generation tokens, iteration elapsed time: "
            f"{1e3 * took_s:.2f} ms, GPU KV cache usage: {100 * self._usage():.1f}%"
        )

    def log(self) -> str:
        """The server's log, from its start on."""
        arguments = {
            "model": MODEL,
            "max_model_len": LONGEST,
            "max_num_seqs": MOST_SEQS,
            "max_num_batched_tokens": STEP_TOKENS,
            "async_scheduling": False,
            "enable_prefix_caching": False,
        }
        head = [
            "(APIServer pid=1) INFO 10-08 00:00:00 [utils.py:1] vLLM API server version 0.25.0",
            f"(APIServer pid=1) INFO 10-08 00:00:00 [utils.py:2] non-default args: {arguments}",
            "(EngineCore pid=2) INFO 10-08 00:00:00 [kv_cache_utils.py:3] GPU KV cache size: "
            f"{BLOCK * BLOCKS:,} tokens",
        ]
        return "\n".join([*head, *self.lines]) + "\n"

    # HTTP

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readline()).decode().split():
                headers = {}
                while (line := (await reader.readline()).decode().strip()) != "":
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._answer(head[1], headers, body, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        if path in self.refuse:
            _whole(writer, self.refuse[path], "refused")
        elif self.key and headers.get("authorization") != f"Bearer {self.key}":
            _whole(writer, 401, "no key")
        elif path == "/v1/completions":
            await self._completion(json.loads(body), writer)
        elif path == "/metrics":
            _whole(writer, 200, self.metrics())
        elif path in self._facts():
            _whole(writer, 200, json.dumps(self._facts()[path]))
        else:
            _whole(writer, 404, "no such path")
        await writer.drain()

    def _facts(self) -> dict[str, Any]:
        model = {"id": "served", "root": MODEL, "max_model_len": LONGEST}
        own: dict[str, dict[str, Any]] = {
            "vllm": {"/version": {"version": "0.25.0"}},
            "sglang": {
                "/server_info": {
                    "model_path": MODEL,
                    "tp_size": 2,
                    "version": "0.5.6",
                    "api_key": "secret",
                    "max_total_num_tokens": BLOCK * BLOCKS,
                    "disable_radix_cache": True,
                    "log_level": "info",
                }
            },
            "llama.cpp": {
                "/props": {
                    "model_path": "/models/qwen3-32b-q4_k_m.gguf",
                    "total_slots": 4,
                    "build_info": "b7000-abc",
                    "chat_template": "secret",
                    "default_generation_settings": {"n_ctx": LONGEST, "params": {}},
                }
            },
        }
        return {"/v1/models": {"data": [model]}, **own[self.flavour]}

    async def _completion(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        prompt = asked["prompt"]
        if isinstance(prompt, list) and not self.ids:
            _whole(writer, 400, json.dumps({"error": {"message": "prompt is no text"}}))
            return
        self.prompts.append(prompt)
        tokens = len(prompt) if isinstance(prompt, list) else len(prompt.split()) + 1
        request = Asked(tokens, asked["max_tokens"])
        came_s = asyncio.get_running_loop().time()
        await asyncio.sleep(self.truth.front_s)
        self.waiting.append(request)
        self._came.set()
        _head(writer, "text/event-stream")
        while (number := await request.tokens.get()) is not None:
            if number == 1:
                self.totals["ttft"] += asyncio.get_running_loop().time() - came_s
            _event(writer, {"choices": [{"text": " a", "finish_reason": None}]})
        usage = {"prompt_tokens": tokens, "completion_tokens": request.made}
        _event(writer, {"choices": [], "usage": usage})
        _chunk(writer, "data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")

    def metrics(self) -> str:
        """Prometheus' text, in the flavour's names."""
        totals, usage = self.totals, self._usage()
        running, waiting = len(self.running), len(self.waiting)
        if self.flavour == "llama.cpp":
            return (
                "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
                "# TYPE llamacpp:prompt_tokens_total counter\n"
                f"llamacpp:prompt_tokens_total {totals['prompts']}\n"
                f"llamacpp:tokens_predicted_total {totals['outputs']}\n"
                f"llamacpp:requests_processing {running}\nllamacpp:requests_deferred {waiting}\n"
            )
        ended, ttft = totals["ended"], totals["ttft"]
        if self.flavour == "sglang":
            values = {
                "num_running_reqs": running,
                "num_queue_reqs": waiting,
                "token_usage": usage,
                "prompt_tokens_total": totals["prompts"],
                "generation_tokens_total": totals["outputs"],
                "num_requests_total": ended,
                "time_to_first_token_seconds_sum": ttft,
                "time_to_first_token_seconds_count": ended,
            }
            return "# HELP sglang:num_running_reqs Running.\n" + "".join(
                f'sglang:{name}{{model_name="served",tp_rank="{rank}"}} {value}\n'
                for name, value in values.items()
                for rank in range(2)
            )
        label = '{engine="0",model_name="served"}'
        values = {
            "num_requests_running": running,
            "num_requests_waiting": waiting,
            "kv_cache_usage_perc": usage,
            "prompt_tokens_total": totals["prompts"],
            "generation_tokens_total": totals["outputs"],
            "request_success_total": ended,
            "time_to_first_token_seconds_sum": ttft,
            "time_to_first_token_seconds_count": ended,
        }
        info = (
            f'{{block_size="{BLOCK}",num_gpu_blocks="{BLOCKS}",enable_prefix_caching="False",'
            'engine="0"}'
        )
        lines = [f"vllm:{name}{label} {value}" for name, value in values.items()]
        head = "# HELP vllm:num_requests_running Running.\n"
        started = "process_start_time_seconds 1.7e+09\n"
        return head + "\n".join(lines) + f"\nvllm:cache_config_info{info} 1.0\n{started}"


def _head(writer: asyncio.StreamWriter, kind: str, status: int = 200, length: int = -1) -> None:
    size = "transfer-encoding: chunked" if length < 0 else f"content-length: {length}"
    writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{size}\r\n\r\n".encode())


def _whole(writer: asyncio.StreamWriter, status: int, text: str) -> None:
    _head(writer, "text/plain", status, len(text.encode()))
    writer.write(text.encode())


def _event(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    _chunk(writer, f"data: {json.dumps(event)}\n\n")


def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    writer.write(f"{len(text):x}\r\n{text}\r\n".encode())


class _Ready(selectors.DefaultSelector):
    """Tells what is ready; where nothing is, no time passes but the loop's."""

    loop: "TimelessLoop"

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if events or timeout == 0:
            return events
        events = super().select(GRACE_S if timeout is not None else None)
        if not events and timeout is not None:
            self.loop.passed_s += timeout
        return events


class TimelessLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        selector = _Ready()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.passed_s


def timeless(work: Callable[[], Awaitable[Any]]) -> Any:
    """What `work` gives, in a loop without waiting."""

    async def whole() -> Any:
        return await work()

    with asyncio.Runner(loop_factory=TimelessLoop) as runner:
        return runner.run(whole())


async def served(stream: Any, truth: Truth) -> dict[str, float]:
    """Mean TTFT and TPOT, in s, of a stream's requests in the engine, without HTTP between."""
    stand_in, loop = StandIn(truth), asyncio.get_running_loop()
    engine = asyncio.ensure_future(stand_in._engine())
    go = {request.id: asyncio.Event() for request in stream.requests}
    followers = Followers(stream.requests)

    async def one(order: int, request: Any) -> tuple[float, float]:
        if request.after is not None:
            await go[request.id].wait()
        else:  # those that come at once come one after the other
            await asyncio.sleep(request.arrival_ps / 1e12 + 1e-6 * order)
        sent_s = loop.time()
        await asyncio.sleep(truth.front_s)
        asked = Asked(request.prompt_tokens, request.output_tokens)
        stand_in.waiting.append(asked)
        stand_in._came.set()
        await asked.tokens.get()
        first_s = loop.time()
        while await asked.tokens.get() is not None:
            last_s = loop.time()
        for follower in followers.after(request):
            go[follower.id].set()
        return first_s - sent_s, (last_s - first_s) / (request.output_tokens - 1)

    found = await asyncio.gather(*(one(*each) for each in enumerate(stream.requests)))
    engine.cancel()
    ttft_s, tpot_s = (sum(each) / len(found) for each in zip(*found, strict=True))
    return {"ttft_s": ttft_s, "tpot_s": tpot_s}
