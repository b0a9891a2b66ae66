"""Record a server: recognise its engine, send or watch a load, write the files."""

import asyncio
import json
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.observed.rows import ObservedRequest, Tick
from kvsim.observed.writing import csv_writer, stream_lines
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.plumbing.writing import Writer, lines_writer, replace_files, text_writer
from kvsim.record.address import LiveServer
from kvsim.record.bench import bench_of_counters, bench_of_replies
from kvsim.record.engines import Recognised, recognise
from kvsim.record.load import Send, SentLoad, check_sendable
from kvsim.record.prompts import PROBE_WORDS, PromptContent, probe_ids, probe_text
from kvsim.record.reply import Now, Reply, ask
from kvsim.record.scrapes import Scraper, has_start, sums_of, ticks_of
from kvsim.request import Request, Stream

Moved = Callable[[int, int], None]
_REFUSED = (400, 404, 415, 422, 500)  # of token ids, by servers that take text alone
_LATE_S = 0.05
_PROBE_TOKENS = 16
_BLOCK_TOKENS = 16  # of vLLM, where it does not say


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The settings of a recording. url is the server's address, run the folder to write.

    requests(longest) makes the stream to send, for the server's maximum sequence length in tokens
    (None: not known); None instead of a function: watch other clients' load. load has the request
    rate and limits, for the benchmark's result. device goes into meta.json. model is the model to
    ask for. headers are sent with each request. metrics_url is the address of the metrics, if not
    the server's own.

    every_s is the time between scrapes. seconds limits the recording; None: until the load ends, or
    until ^C. text: send words, not token ids. salt determines the prompts' tokens; None: a random
    one.
    """

    url: str
    run: Path
    requests: Callable[[int | None], Stream] | None = None
    load: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    model: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    metrics_url: str | None = None
    every_s: float = 1.0
    seconds: float | None = None
    text: bool = False
    salt: int | None = None


class RecordedServer(NamedTuple):
    """The result of a recording. sent and answered count requests (0 if only watched), scrapes
    counts scrapes of /metrics. stopped: the recording was interrupted. notes are sentences for
    people. written has the names of the files.
    """

    engine: str
    model: str
    sent: int
    answered: int
    scrapes: int
    seconds: float
    stopped: bool
    notes: tuple[str, ...]
    written: tuple[str, ...]


class _Place(NamedTuple):
    """Facts needed to write the files. unix_s is the Unix time at 0 of the recorder's clock.
    begun_s is when polling began, on that clock.
    """

    found: Recognised
    stream: Stream | None
    unix_s: float
    begun_s: float


class _Kept(NamedTuple):
    replies: list[Reply]
    lost: int
    late_s: float
    gave_up: bool
    stopped: bool


async def record(options: RecordOptions, moved: Moved) -> RecordedServer:
    """Record a server. moved is called with (done, total), in requests, or in seconds if only
    watching.

    InputError if the server cannot be recorded; then no file is left.
    """
    loop = asyncio.get_running_loop()
    now, unix_s = loop.time, time.time() - loop.time()
    salt = secrets.randbits(63) if options.salt is None else options.salt
    async with LiveServer(options.url, options.headers, options.metrics_url) as server:
        found = await recognise(server, options.model)
        notes = list(found.notes)
        stream, send = None, None
        if options.requests is not None:
            stream = options.requests(found.longest)
            notes += stream.notes
            check_sendable(stream, found.longest)
            send = await _sender(server, found, options, salt, now, notes)
        scraper = Scraper(server, options.run, options.every_s, now, unix_s)
        with scraper.kept_only_whole():
            await scraper.poll()
            begun_s = now()
            async with _polling(scraper):
                with _stopping(asyncio.current_task()) as stopped:
                    kept = await _driven(options, stream, send, now, moved, stopped)
            await scraper.poll()
            if scraper.failed:
                notes.append(f"{scraper.failed:,} polls of /metrics had no answer")
            place = _Place(found, stream, unix_s, begun_s)
            files, answered = _files(options, place, kept, scraper, notes)
            replace_files(options.run, files)
    return RecordedServer(
        found.engine.name,
        found.model,
        len(kept.replies) + kept.lost,
        answered,
        len(scraper.kept),
        now() - begun_s,
        kept.stopped,
        tuple(dict.fromkeys(notes)),
        (*files, "scrapes/"),
    )


@asynccontextmanager
async def _polling(scraper: Scraper) -> AsyncIterator[None]:
    """Poll the metrics while the context lasts."""
    polling = asyncio.ensure_future(scraper.run())
    try:
        yield
    finally:
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling


@contextmanager
def _stopping(task: "asyncio.Task[Any] | None") -> Iterator[list[bool]]:
    """While the context lasts, the first ^C or SIGTERM cancels the task and puts True into the
    yielded list.
    """
    loop, stopped = asyncio.get_running_loop(), list[bool]()

    def stop() -> None:
        if not stopped and task is not None:
            stopped.append(True)
            task.cancel()

    signals = (signal.SIGINT, signal.SIGTERM)
    taken = []
    for each in signals:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(each, stop)
            taken.append(each)
    try:
        yield stopped
    finally:
        for each in taken:
            loop.remove_signal_handler(each)


async def _driven(
    options: RecordOptions,
    stream: Stream | None,
    send: Send | None,
    now: Now,
    moved: Moved,
    stopped: list[bool],
) -> _Kept:
    """Send the load, or watch the server, until the end or an interrupt."""
    until_s = None if options.seconds is None else now() + options.seconds
    load = None
    try:
        if stream is None or send is None:
            await _watch(options.seconds, now, moved)
        else:
            load = SentLoad(stream, send, now, moved)
            await load.run(until_s)
    except asyncio.CancelledError:
        if not stopped:
            raise
    if load is None:
        return _Kept([], 0, 0.0, False, bool(stopped))
    replies = sorted(load.replies, key=lambda reply: reply.sent_s)
    return _Kept(replies, load.in_flight, load.late_s, load.gave_up, bool(stopped))


async def _watch(seconds: float | None, now: Now, moved: Moved) -> None:
    begun_s = now()
    while seconds is None or now() - begun_s < seconds:
        left_s = 1.0 if seconds is None else min(1.0, seconds - (now() - begun_s))
        await asyncio.sleep(max(left_s, 0.0))
        passed = round(now() - begun_s)
        moved(passed, passed if seconds is None else round(seconds))


async def _sender(
    server: LiveServer,
    found: Recognised,
    options: RecordOptions,
    salt: int,
    now: Now,
    notes: list[str],
) -> Send:
    """The function that sends one request: as token ids, or as words if the server does not accept
    ids.

    One short request finds out which, and also warms up the server.
    """
    content, text = PromptContent(salt), options.text
    if not text:
        short = Request("probe", 0, _PROBE_TOKENS, 2)
        reply = await ask(server, found.model, probe_ids(_PROBE_TOKENS), short, now)
        if reply.error and reply.status not in _REFUSED:
            raise _unanswered(server, reply)
        text = bool(reply.error)
    if text:
        probe = Request("probe", 0, PROBE_WORDS, 2)
        reply = await ask(server, found.model, probe_text(salt), probe, now)
        if reply.error:
            raise _unanswered(server, reply)
        extra = reply.prompt_tokens - PROBE_WORDS
        if 0 <= extra <= _PROBE_TOKENS:
            content = PromptContent(salt, 1.0, extra)
        else:
            content = PromptContent(salt, PROBE_WORDS / reply.prompt_tokens)
        notes.append(
            f"prompts are text ({PROBE_WORDS} words are {reply.prompt_tokens} tokens here): their "
            "lengths are the server's count, near what was asked for"
        )

    async def send(request: Request) -> Reply:
        prompt = content.text(request) if text else content.ids(request)
        return await ask(server, found.model, prompt, request, now)

    return send


def _unanswered(server: LiveServer, reply: Reply) -> InputError:
    return InputError(
        "the server does not answer a short request",
        where=f"{server.base}/v1/completions",
        value=reply.error,
    )


def _files(
    options: RecordOptions, place: _Place, kept: _Kept, scraper: Scraper, notes: list[str]
) -> tuple[dict[str, Writer], int]:
    """The files of the recording, last the one that marks it as complete; and the number of
    requests answered in full.
    """
    found, stream = place.found, place.stream
    whole = [reply for reply in kept.replies if not reply.error]
    if stream is not None and not whole:
        first = kept.replies[0].error if kept.replies else "none had ended when it was stopped"
        raise InputError("no request was answered", where=options.url, value=first)
    zero_s = kept.replies[0].sent_s if kept.replies else place.begun_s
    ticks = list(ticks_of(found.engine, scraper.kept, zero_s))
    files: dict[str, Writer] = {name: text_writer(text) for name, text in found.answers.items()}
    if scraper.kept:
        first, last = scraper.kept[0].text, scraper.kept[-1].text
        if has_start(last) and len(scraper.kept) > 1:
            files["metrics-first.prom"] = text_writer(first)
        files["metrics-last.prom"] = text_writer(last)
    if ticks:
        files["timeseries.csv"] = csv_writer(ticks)
    if found.engine.name == "vllm":
        files["meta.json"] = text_writer(_meta(options, found))
    if stream is None:
        bench = _watched(found, scraper, place.unix_s, notes)
    else:
        if found.engine.name == "vllm":
            files |= _requests(whole, zero_s, found.settings.get("block_size", _BLOCK_TOKENS))
        bench = bench_of_replies(kept.replies, found.model, options.load, zero_s + place.unix_s)
        notes += _said_of(kept, stream, ticks)
    if bench is not None:
        files["bench.json"] = text_writer(json.dumps(bench, ensure_ascii=False) + "\n")
    return files, len(whole)


def _watched(
    found: Recognised, scraper: Scraper, unix_s: float, notes: list[str]
) -> dict[str, Any] | None:
    """The benchmark result with means over the requests that ended between the first and the last
    scrape.
    """
    if len(scraper.kept) < 2:
        raise InputError("fewer than two scrapes of the metrics", where="--watch",
                         value=len(scraper.kept), remedy="watch for longer")  # fmt: skip
    first, last = scraper.kept[0], scraper.kept[-1]
    bench = bench_of_counters(
        found.engine,
        sums_of(found.engine, first.text),
        sums_of(found.engine, last.text),
        found.model,
        last.time_s - first.time_s,
        last.time_s + unix_s,
    )
    if bench is None:
        notes.append("no request ended while it was watched, by the server's counters")
    else:
        notes.append(
            f"{bench['completed']:,} requests ended while it was watched: bench.json has their "
            "means by the server's counters, as if they had come at random"
        )
    return bench


def _meta(options: RecordOptions, found: Recognised) -> str:
    table: dict[str, Any] = {**found.settings, "tick_seconds": options.every_s}
    if options.device is not None:
        table["gpu"] = options.device
    table |= {"clock_ahead_s": 0.0, "source": "kvsim record"}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _requests(whole: list[Reply], zero_s: float, block_tokens: int) -> dict[str, Writer]:
    """requests.csv, and stream.jsonl if the content of some prompt is known. block_tokens is the
    engine's block size.
    """
    rows, sent = [], []
    for reply in whole:
        begin, first, last = (
            round(time_s - zero_s, 9)
            for time_s in (reply.sent_s, reply.came_s[0], reply.came_s[-1])
        )
        rows.append(
            ObservedRequest.parse(
                {
                    "id": reply.request.id,
                    "arrival_s": begin,
                    "prompt_tokens": reply.prompt_tokens,
                    "output_tokens": reply.output_tokens,
                    "first_token_s": first,
                    "last_token_s": last,
                    "cached_tokens": reply.cached_tokens,
                    "max_tokens": reply.request.output_tokens,
                },
                f"request {reply.request.id}",
            )
        )
        same = reply.prompt_tokens == reply.request.prompt_tokens
        sent.append(
            Request(
                reply.request.id,
                round(begin * PS_PER_S),
                reply.prompt_tokens,
                reply.output_tokens,
                prompt_runs=reply.request.prompt_runs if same else None,
            )
        )
    files: dict[str, Writer] = {"requests.csv": csv_writer(rows)}
    if any(request.prompt_runs is not None for request in sent):
        timed = ((1e3 * row.arrival_s, one) for row, one in zip(rows, sent, strict=True))
        lines = [f"{line}\n" for line in stream_lines(timed, block_tokens)]
        files["stream.jsonl"] = lines_writer(lines)
    return files


def _said_of(kept: _Kept, stream: Stream, ticks: list[Tick]) -> Iterator[str]:
    """Sentences on what went otherwise than asked while the load ran, such as failed or unsent
    requests.
    """
    failed = [reply for reply in kept.replies if reply.error]
    if failed:
        yield f"{len(failed):,} requests failed, the first one: {failed[0].error}"
    if kept.gave_up:
        yield "the load was given up after so many faults one after the other"
    if kept.lost:
        yield f"{kept.lost:,} requests were not answered yet and are left out"
    unsent = len(stream.requests) - len(kept.replies) - kept.lost
    if unsent:
        yield f"{unsent:,} of {len(stream.requests):,} requests were not sent"
    if kept.late_s > _LATE_S:
        yield (
            f"a request was sent {1e3 * kept.late_s:.0f} ms after it was due: this machine, or its "
            "link, is too slow for the load"
        )
    other = [
        reply
        for reply in kept.replies
        if not reply.error and reply.output_tokens != reply.request.output_tokens
    ]
    if other:
        yield f"{len(other):,} answers are not as long as was asked for: the server ended them"
    if stream.requests and any(request.after and request.session for request in stream.requests):
        yield "answers within later prompts are made up: the server's cache holds the prompts alone"
    if not ticks:
        yield "no scrape of the metrics lies within the load: give more requests"
