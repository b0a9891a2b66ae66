"""Serve the page until it is interrupted."""

import secrets
import signal
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kvsim.explore.page_context import PageContext
from kvsim.explore.starting_points import find_starting_points
from kvsim.explore.state import started
from kvsim.explore.worker_pool import WorkerPool
from kvsim.plumbing.errors import InputError

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

FIRST = "chat"  # without a scenario


def serve(
    scenario: str | None,
    host: str,
    port: int,
    ready: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Listen on host and port (0: any free port) and serve the page. ready: called with the
    address, which contains the access token. Returns when interrupted, or when another thread sets
    `stop`. Raises InputError for an invalid scenario or address. Workers start first, with the
    default scenario, so that they work while the page loads.
    """
    starting_points = find_starting_points(scenario)
    default = next(iter(starting_points)) if scenario is not None else FIRST
    with _listening(host, port) as bound:
        workers = WorkerPool()
        try:
            context = PageContext(starting_points, workers, default)
            _begin(context)
            _serve(context, host, bound, ready, stop)
        except KeyboardInterrupt:
            pass
        finally:
            workers.close()


def _begin(context: PageContext) -> None:
    """Start simulating the default scenario; a page that opens soon after joins that job."""
    state = started(context.starting_points[context.default])
    context.workers.ask("start", state.key, context.run_task(state))


def _serve(
    context: PageContext,
    host: str,
    bound: socket.socket,
    ready: Callable[[str], None],
    stop: threading.Event | None,
) -> None:
    from werkzeug.serving import WSGIRequestHandler, make_server

    from kvsim.explore.app import TOKEN_KEY, make_app
    from kvsim.explore.editing import make_once

    class Quiet(WSGIRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log no requests, since a page sends four a second."""

    port = bound.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = make_app(context, host, token)
    server = make_server(host, port, app, threaded=True, request_handler=Quiet, fd=bound.fileno())
    name = f"[{host}]" if ":" in host else host
    ready(f"http://{name}:{port}/?{TOKEN_KEY}={token}")
    threading.Thread(target=make_once, args=(context,), daemon=True).start()
    if stop is None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # an end like any other
    else:
        threading.Thread(target=_ended, args=(stop, server), daemon=True).start()
    server.serve_forever()


def _ended(stop: threading.Event, server: "BaseWSGIServer") -> None:
    stop.wait()
    server.shutdown()


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(64)
    except OSError as error:
        bound.close()
        raise InputError(
            f"cannot listen there: {error.strerror or error}",
            where="--host, --port",
            value=f"{host}:{port}",
            remedy="another --port, or 0 for any that is free",
        ) from None
    return bound
