"""HTTP requests to a server, and a one-line error for each way in which it may fail to answer."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.json_text import JsonError, loads

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

CONNECT_S = 10.0  # until a connection is there
ANSWER_S = 30.0  # until an answer that is not generated is there
_KEY_REFUSED = (401, 403)
_PATHS = ("/metrics", "/v1/completions", "/v1/chat/completions", "/v1")


class HttpAnswer(NamedTuple):
    """An HTTP response: its status code and its body as text."""

    status: int
    text: str

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return self.status == 200

    def object(self) -> dict[str, Any]:
        """The body as a JSON object; {} if the body is anything else or the request failed."""
        try:
            value = loads(self.text.encode(), unsigned=True) if self.ok else {}
        except JsonError:
            return {}
        return value if isinstance(value, dict) else {}


class LiveServer:
    """A server at `base`, such as http://host:8000, as an async context manager.

    metrics_url is the address of its metrics; None: /metrics at `base`. headers are sent with each
    request (they may hold keys) and are never written to files.
    """

    def __init__(
        self, base: str, headers: Mapping[str, str] | None = None, metrics_url: str | None = None
    ) -> None:
        self.base = base_of(base)
        self.metrics_url = metrics_url or f"{self.base}/metrics"
        self._headers = dict(headers or {})
        self._client: AsyncClient | None = None

    async def __aenter__(self) -> Self:
        import httpx2

        self._client = httpx2.AsyncClient(
            headers=self._headers,
            follow_redirects=True,
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    @property
    def client(self) -> "AsyncClient":
        """The httpx client, open while the context lasts."""
        assert self._client is not None
        return self._client

    async def get(self, url: str) -> HttpAnswer:
        """GET a URL, or a path of this server; InputError if no server answers."""
        import httpx2

        whole = url if "://" in url else self.base + url
        try:
            response = await self.client.get(whole, timeout=ANSWER_S)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise no_answer(error, whole) from None
        check_key(response, whole)
        return HttpAnswer(response.status_code, response.text)

    async def metrics(self) -> str:
        """The text of /metrics; InputError if the server serves no metrics."""
        found = await self.get(self.metrics_url)
        if not found.ok:
            raise InputError(
                f"no metrics here (HTTP {found.status})",
                where=self.metrics_url,
                remedy="start SGLang with --enable-metrics and llama-server with --metrics (vLLM "
                "always has them); --metrics-url names another address",
            )
        return found.text


def base_of(address: str) -> str:
    """Normalise an address that a user typed to `http://host:port`; InputError for text that is not
    an address.
    """
    import httpx2

    text = address.strip().rstrip("/")
    text = text if "://" in text else f"http://{text}"
    for path in _PATHS:
        text = text.removesuffix(path)
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError):
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(
            "not an address of a server", where="URL", value=address, limit="http://HOST:PORT"
        )
    return text.rstrip("/")


def no_answer(error: Exception, url: str) -> InputError:
    """The InputError for a server that cannot be reached or does not answer in time."""
    import httpx2

    if isinstance(error, httpx2.TimeoutException):
        return InputError("the server does not answer in time", where=url,
                          limit=f"{ANSWER_S:.0f} s")  # fmt: skip
    return InputError(
        "no server answers",
        where=url,
        value=str(error) or type(error).__name__,
        remedy="check the address and its port",
    )


def check_key(response: "Response", url: str) -> None:
    """InputError if the server asks for an API key, or refuses the given one."""
    if response.status_code in _KEY_REFUSED:
        raise InputError(
            f"the server refuses without the right API key (HTTP {response.status_code})",
            where=url,
            remedy="--api-key-env NAME names the environment variable with the key",
        )
