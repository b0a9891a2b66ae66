"""What a package index shows of kvsim: the README, and where the project lives.

The sources do not name the repository's address: whoever makes a release sets KVSIM_REPOSITORY to
it (https://host/owner/name). The README's links then become absolute, and the metadata name the
project's pages. Without it links stay relative, which is right inside a checkout alone.
"""

import os
import re
from pathlib import Path
from typing import Any

ADDRESS = "KVSIM_REPOSITORY"
# A link of Markdown whose target is a path: the picture's "!", the text, and the path.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)")


def shown(version: str) -> dict[str, Any]:
    """Arguments of setup() for the long description and the project's addresses.

    Raises SystemExit where KVSIM_REPOSITORY is no address.
    """
    readme = Path("README.md").read_text("utf-8")
    found = {"long_description": readme, "long_description_content_type": "text/markdown"}
    address = os.environ.get(ADDRESS, "").rstrip("/")
    if not address:
        return found
    if not re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)+", address):
        raise SystemExit(f"{ADDRESS}: got {address!r}; an address such as https://host/owner/name")
    tag = f"v{version}"

    def absolute(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        return f"{picture}[{text}]({address}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return found | {
        "long_description": LINK.sub(absolute, readme),
        "project_urls": {
            "Repository": address,
            "Documentation": f"{address}/blob/{tag}/docs/first-scenario.md",
            "Changelog": f"{address}/blob/{tag}/CHANGELOG.md",
            "Issues": f"{address}/issues",
        },
    }
