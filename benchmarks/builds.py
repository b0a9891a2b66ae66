"""Compiled trees to compare: commits, and the files of this checkout as they are. Each is built
once, in a folder of its own in out/bench, in some minutes, and found again there.
"""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from case import HERE

CHECKOUT = HERE.parent
BUILDS = CHECKOUT / "out" / "bench"
LIST = b"git", b"ls-files", b"-z", b"--cached", b"--others", b"--exclude-standard"


def of_commit(name: str, folder: Path) -> None:
    """Write the files of a commit into a folder."""
    archive = subprocess.run(["git", "archive", name], cwd=CHECKOUT, capture_output=True)
    if archive.returncode:
        raise SystemExit(archive.stderr.decode().strip())
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x"], cwd=folder, input=archive.stdout, check=True)


def built_commit(name: str) -> Path:
    """A compiled tree of a commit."""
    words = ["git", "rev-parse", "--short=12", f"{name}^{{commit}}"]
    found = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{name}: no such commit")
    folder = BUILDS / found.stdout.strip()
    if not _is_compiled(folder):
        of_commit(name, folder)
        _compile(folder, name)
    return folder


def built_checkout() -> Path:
    """A compiled tree of this checkout, its changes included; the checkout itself if it is compiled
    as it stands.
    """
    if _is_compiled(CHECKOUT):
        return CHECKOUT
    names = [os.fsdecode(name) for name in _output(LIST).split(b"\0") if name]
    names = sorted(name for name in names if (CHECKOUT / name).is_file())
    digest = sha256()
    for name in names:
        digest.update(sha256((CHECKOUT / name).read_bytes()).digest() + name.encode())
    folder = BUILDS / f"checkout-{digest.hexdigest()[:12]}"
    if not _is_compiled(folder):
        folder.mkdir(parents=True, exist_ok=True)
        copied = b"\0".join(map(os.fsencode, names))
        copy = ["tar", "--create", "--null", "--files-from=-", "--file=-"]
        files = subprocess.run(copy, cwd=CHECKOUT, input=copied, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=folder, input=files.stdout, check=True)
        _compile(folder, "this checkout")
    return folder


def _output(words: tuple[bytes, ...]) -> bytes:
    return subprocess.run(words, cwd=CHECKOUT, capture_output=True, check=True).stdout


def _is_compiled(folder: Path) -> bool:
    """Whether a tree is there, is compiled, and has not changed since."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); import kvsim; "
    code += "sys.exit(not kvsim.COMPILED)"
    if not (folder / "kvsim" / "compiled.sha256").exists():
        return False
    words = [sys.executable, "-P", "-c", code]
    return not subprocess.run(words, env=os.environ | {"KVSIM_COMPILED": ""}).returncode


def _compile(folder: Path, name: str) -> None:
    """Compile a tree in place, as `make compile` does."""
    print(f"compiling {name} in {folder}: some minutes, once", flush=True)
    words = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    log = folder / "compile.log"
    with log.open("w") as told:
        settings = os.environ | {"KVSIM_COMPILE": "1"}
        done = subprocess.run(words, cwd=folder, env=settings, stdout=told, stderr=told)
    if done.returncode or not _is_compiled(folder):
        raise SystemExit(f"{name} cannot be compiled: see {log}")
