"""The Dash application: layout, callbacks, the pages of single runs, and access control."""

from hashlib import sha256
from pathlib import Path
from secrets import compare_digest
from string import Template
from traceback import extract_tb
from typing import Any
from urllib.parse import urlencode

from dash import Dash, Input, Output
from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import HTTPException

from kvsim.explore import editing, running, sweeping
from kvsim.explore.hosts import is_loopback
from kvsim.explore.layout import make_layout
from kvsim.explore.page_context import PageContext
from kvsim.plumbing.shipped import package_folder
from kvsim.report.filled_page import map_page, whole_page
from kvsim.report.template import plotly_script, style_sheet

# The browser itself refuses whatever would leave this machine.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'self'"
)
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
{%metas%}
<title>{%title%}</title>
{%favicon%}
<style>
$style
</style>
{%css%}
</head>
<body>
{%app_entry%}
{%config%}
{%scripts%}
{%renderer%}
<script src="/plotly.js"></script>
</body>
</html>
""")


PACKAGE = Path(__file__).parents[1]
TOKEN_KEY = "token"  # noqa: S105 - the name of the key in the printed address
REFUSED = "open the address that kvsim explore printed in its terminal: it ends in ?token=..."


def make_app(context: PageContext, host: str, token: str) -> Flask:
    """The server of the page.

    host: the address it listens on. On loopback it only answers requests with that name as host,
    which a page of another site cannot send. token: last part of the printed address. A browser
    that has sent the token once is recognised by a cookie that no other site's page sends.
    """
    app = Dash(
        __name__,
        title="kvsim explore",
        update_title=None,  # the title stays as it is
        assets_folder=str(package_folder("explore", "assets")),
        index_string=PAGE.substitute(style=style_sheet()),
        suppress_callback_exceptions=True,  # widgets come and go
        serve_locally=True,
    )
    app.layout = lambda: make_layout(context)
    for part in (editing, running, sweeping):
        part.register(app, context)
    app.clientside_callback(
        "window.dash_clientside.explore.theme",
        Output("theme", "data"),
        Output("theme-button", "children"),
        Input("theme-button", "n_clicks"),
    )
    app.clientside_callback(
        "window.dash_clientside.explore.veiled",
        Output("results", "style"),
        Input("visit", "data"),
        Input("drawn", "data"),
    )
    app.clientside_callback(  # at once; the server's answer may take its time
        "window.dash_clientside.explore.pinning",
        Output("pin", "children", allow_duplicate=True),
        Output("pin", "disabled", allow_duplicate=True),
        Input("pin", "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        "window.dash_clientside.explore.unfolded",
        Output("controls-fold", "open"),
        Input("tab", "data"),
    )
    server: Flask = app.server
    _guard(server, host, token)

    @server.get("/plotly.js")
    def plotly() -> Response:
        """The plotting script: plotly's own if loaded, else Dash's file of 4.8 MB."""
        return Response(plotly_script(), mimetype="text/javascript")

    @server.get("/runs/<key>/<page>.html")
    def single(key: str, page: str) -> Response:
        job = context.workers.look(key)
        makers = {"report": whole_page, "map": map_page}
        if job is None or job.answer is None or page not in makers:
            abort(404, "no such run, or not any more")
        held = {name: value for name, value in job.answer.items() if name != "runs"}
        return Response(makers[page](held), mimetype="text/html")

    return server


def _guard(server: Flask, host: str, token: str) -> None:
    cookie = f"kvsim-{sha256(token.encode()).hexdigest()[:8]}"  # one for each server of a machine

    @server.before_request
    def refuse_strangers() -> None:
        if is_loopback(host) and not is_loopback(_name(request.host)):
            abort(403, "this page is for this machine alone")

    @server.before_request
    def refuse_without_token() -> Any:
        if _is(request.cookies.get(cookie), token):
            return None
        if request.method != "GET" or not _is(request.args.get(TOKEN_KEY), token):
            return Response(f"{REFUSED}\n", 403, mimetype="text/plain")
        rest = [(key, each) for key, each in request.args.items(multi=True) if key != TOKEN_KEY]
        known = redirect(f"{request.path}?{urlencode(rest)}".rstrip("?"))
        known.set_cookie(cookie, token, httponly=True, samesite="Strict")
        return known

    @server.errorhandler(Exception)
    def refuse_malformed(error: Exception) -> Any:
        """Answer an exception as a bad request if no code of kvsim was running, since Dash raises
        anything on bad input. Otherwise it is a fault of kvsim, with a traceback on the terminal.
        """
        if isinstance(error, HTTPException):
            return error
        if any(
            PACKAGE in Path(frame.filename).parents for frame in extract_tb(error.__traceback__)
        ):
            raise error
        return Response("no request that the page sends\n", 400, mimetype="text/plain")

    @server.after_request
    def keep_in(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        return response


def _is(given: str | None, token: str) -> bool:
    return given is not None and compare_digest(given.encode(), token.encode())


def _name(host: str) -> str:
    """A host without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
