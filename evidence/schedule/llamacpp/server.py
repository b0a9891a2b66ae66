"""llama-server on small streams: each call into its cache, and the outcome of each request (kind
"server").
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal
from zlib import crc32

from pydantic import Field

from evidence.schedule.llamacpp.settings import ModelName, RecordedContext
from evidence.schedule.recording import RecordedCase
from evidence.schedule.rows import Row
from kvsim.engine.schedulers.llama_server.calls import Calls
from kvsim.engine.schedulers.llama_server.flags import ServerFlags
from kvsim.engine.schedulers.llama_server.server import SlotServer
from kvsim.engine.schedulers.llama_server.slot import ServerTask
from kvsim.memory.cells.field import TokenRun
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.options import Options

FIRST_TOKEN, NUM_TOKENS = 259, 4000  # token ids of segments


class ServerRequest(Options):
    """One request. after: arrives after the decode call with this number, or when nothing is
    running. prompt: pieces [segment, length]; ["@ID", 0] is the output of request ID.
    """

    id: str
    after: int | Literal["idle"]
    prompt: list[tuple[str, int]] = Field(min_length=1)
    out: int = Field(ge=1)
    id_slot: int | None = None
    cache_prompt: bool = True
    n_keep: int = 0
    n_cmpl: int = Field(1, ge=1)


class ServerCase(RecordedCase):
    """A stream of requests to a llama-server."""

    recognised_by: ClassVar[str] = "server"

    kind: Literal["server"]
    model: ModelName
    settings: ServerFlags
    requests: list[ServerRequest]

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return table.get("kind") == cls.recognised_by

    @classmethod
    def rows_of(cls, expectation: Mapping[str, Any]) -> Any:
        rows, requests = expectation.get("rows"), expectation.get("requests")
        if not isinstance(rows, list) or not isinstance(requests, Mapping):
            return None
        answers = [{"request": name, **dict(requests[name])} for name in sorted(requests)]
        return [*rows, *({k: v for k, v in each.items() if k != "stop"} for each in answers)]

    def simulated(self, recorded: list[Row]) -> list[Row]:
        replay = _Replay(self, {row["request"]: row for row in recorded if "request" in row})
        return replay.rows()


class _Replay:
    """A simulated server that serves a case's requests, and its calls into the cache. answers: rows
    of the real server, from which only the output tokens are used.
    """

    def __init__(self, case: ServerCase, answers: Mapping[str, Row]) -> None:
        self._answers = answers
        self._todo = list(case.requests)
        self._rows: list[Row] = []
        self._num_decodes = 0
        self._tasks: dict[str, ServerTask] = {}
        self._open: set[str] = set()
        flags = case.settings
        self._context = RecordedContext(flags.context_settings(), case.model)
        calls = Calls(self._context.cache, self._on_call)
        built = self._context
        self._server = SlotServer(
            calls,
            flags.num_slots,
            flags.server_settings(built.context, built.sizes),
            flags.host_cache(built.context),
            self._ended,
        )

    def rows(self) -> list[Row]:
        """One row for each call, then one for each request."""
        server = self._server
        while self._todo or not server.idle:
            if server.idle:
                self._post()
            server.begin_pass()
            part = server.next_part()
            while part is not None:
                server.returned(part)
                part = server.next_part()
        return self._rows + [self._answer(name) for name in sorted(self._tasks)]

    def _on_call(self, name: str, values: dict[str, Any]) -> None:
        row: Row = {"op": name, **values}
        if name == "decode":
            row = {"op": name, "k": self._num_decodes, **values}
            row["batch"] = _batch(values["batch"])
            self._num_decodes += 1
        self._rows.append({**row, "cells": self._context.cells()})
        if name == "decode":
            while self._todo and self._is_due(self._todo[0].after):
                self._post()

    def _is_due(self, after: int | Literal["idle"]) -> bool:
        return after != "idle" and after < self._num_decodes

    def _post(self) -> None:
        request = self._todo.pop(0)
        out = list(self._answers.get(request.id, {}).get("out") or ())
        private = -(len(self._tasks) + 1) << 32

        def output(number: int) -> int:
            return int(out[number]) if number < len(out) else private + number

        prompt: list[int] = []
        for segment, length in request.prompt:
            if segment.startswith("@"):
                prompt += self._output_of(segment[1:])
            else:
                name = partial("{}:{}".format, segment)
                prompt += [
                    FIRST_TOKEN + crc32(name(at).encode()) % NUM_TOKENS for at in range(length)
                ]
        children = tuple(ServerTask(prompt, request.out, output) for _ in range(request.n_cmpl - 1))
        task = ServerTask(
            prompt,
            request.out,
            output,
            slot_number=request.id_slot,
            cache_prompt=request.cache_prompt,
            num_keep=request.n_keep,
            children=children,
            owner=request.id,
        )
        self._tasks[request.id] = task
        self._server.queue.append(task)

    def _output_of(self, name: str) -> list[int]:
        if name not in self._tasks:
            raise InputError("a prompt names a request that did not come before", value=name)
        task = self._tasks[name]
        return [task.output(number) for number in range(task.num_outputs)]

    def _ended(self, task: ServerTask) -> None:
        """Ignore the end of a task: rows of requests are written at the end."""

    def _answer(self, name: str) -> Row:
        """The row with the outcome of a request."""
        task = self._tasks[name]
        if task.error is not None:
            return {"request": name, "status": task.error[0], "error": task.error[1], "out": []}
        return {
            "request": name,
            "slot": task.slot,
            "prompt": len(task.prompt),
            "hit": task.hit_tokens,
            "computed": len(task.prompt) - task.hit_tokens,
            "n_out": task.num_outputs,
            "truncated": task.truncated,
            "out": self._output_of(name),
        }


def _batch(runs: list[TokenRun]) -> list[list[int]]:
    """A batch in the form of recordings."""
    return [[run.seqs[0], run.num, run.pos] for run in runs]
