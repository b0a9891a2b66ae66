"""Fetch the config.json of a repository from Hugging Face, or from a host with the same interface.

huggingface_hub (`pip install huggingface_hub`) fetches only config.json into its own cache, from
which later runs read it without any network. HF_ENDPOINT, HF_HUB_OFFLINE, HF_HOME and the user's
token work as usual.
"""

import re
from pathlib import Path

from kvsim.plumbing.errors import InputError

SECONDS = 10.0  # for the host to answer
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def is_repository(name: str) -> bool:
    """Whether a name has the form of a repository: owner/name."""
    return _REPOSITORY.fullmatch(name.strip()) is not None


def fetch_config(repository: str, *, offline: bool = False) -> Path:
    """The path of the cached config.json, fetched if needed. offline: only the cache is searched.

    Raises InputError with the reason if there is none: no huggingface_hub, no network, not cached,
    no such repository, no access, no config.json.
    """
    try:
        from huggingface_hub import constants, hf_hub_download
        from huggingface_hub.errors import (
            EntryNotFoundError,
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
        )
    except ImportError:
        raise _fault("huggingface_hub is not installed (pip install huggingface_hub)") from None
    name = repository.strip()
    try:
        return Path(hf_hub_download(name, "config.json", local_files_only=True))
    except LocalEntryNotFoundError:
        if offline or constants.HF_HUB_OFFLINE:
            raise _fault("its config.json is not in the cache, and kvsim is offline") from None
    except HFValidationError:
        raise _fault(f"{name!r} is no repository's name") from None
    _reach(constants.ENDPOINT)
    try:
        return Path(hf_hub_download(name, "config.json", etag_timeout=SECONDS))
    except GatedRepoError:
        raise _fault(f"{name} asks for access and a token (hf auth login)") from None
    except RepositoryNotFoundError:
        raise _fault(f"the host knows no repository {name}, or hides it") from None
    except EntryNotFoundError:
        raise _fault(f"{name} has no config.json") from None
    except (HfHubHTTPError, OSError) as error:
        raise _fault(f"the host did not answer: {error}") from None


def _reach(endpoint: str) -> None:
    """Check once whether the host can be reached, since huggingface_hub tries six times before it
    gives up.
    """
    import urllib.error
    import urllib.request

    try:
        # The endpoint is the user's own setting, whatever its scheme.
        request = urllib.request.Request(endpoint, method="HEAD")  # noqa: S310
        urllib.request.urlopen(request, timeout=SECONDS).close()  # noqa: S310
    except urllib.error.HTTPError:
        return  # it answers, if not to this
    except (urllib.error.URLError, TimeoutError, ValueError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise _fault(f"{endpoint} cannot be reached: {reason}") from None


def _fault(words: str) -> InputError:
    return InputError(words, where="model.name")
