"""Files of K and V, one for each chunk of blocks, past the page cache where the folder allows it.

As vLLM 0.33's tier of type "fs": a file is written under a temporary name and then renamed.
"""

import errno
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from kvsim.plumbing.errors import InputError

PAGE_BYTES = 4096  # direct reads and writes go by whole pages, to and from whole pages
DIRECT = getattr(os, "O_DIRECT", 0)  # Linux alone


class BlockFiles:
    """Files of `chunk_bytes` each in `folder`, which exists.

    direct: whether reads and writes pass the page cache by. Without that, reads come from memory.
    """

    def __init__(self, folder: Path, chunk_bytes: int) -> None:
        self._folder = folder
        self.chunk_bytes = chunk_bytes
        padded = -(-chunk_bytes // PAGE_BYTES) * PAGE_BYTES
        self._page = mmap.mmap(-1, padded)
        self._bytes = torch.frombuffer(self._page, dtype=torch.uint8)
        self.direct = self._takes_direct()

    def write(self, name: str, blocks: Tensor) -> None:
        """Write `blocks` in host memory, of `chunk_bytes` in all, as the file `name`."""
        self._bytes[: self.chunk_bytes] = blocks.contiguous().flatten().view(torch.uint8)
        temporary = self._folder / f"{name}.{os.getpid()}.tmp"
        try:
            self._write(temporary, self.direct)
            temporary.replace(self._folder / name)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise InputError(
                "cannot write a file", where=str(self._folder), value=error.strerror
            ) from None

    def read(self, name: str, like: Tensor) -> Tensor:
        """The blocks of file `name`, of the shape and dtype of `like`, in host memory."""
        path = self._folder / name
        handle = os.open(path, os.O_RDONLY | (DIRECT if self.direct else 0))
        try:
            found = os.readv(handle, [self._page])
        finally:
            os.close(handle)
        if found != len(self._page):
            raise InputError(
                "the file is short", where=str(path), value=found, limit=len(self._page)
            )
        return self._bytes[: self.chunk_bytes].clone().view(like.dtype).view(like.shape)

    def remove_all(self, names: Iterable[str]) -> None:
        """Remove the files of these names that are there."""
        for name in names:
            (self._folder / name).unlink(missing_ok=True)

    def _write(self, path: Path, direct: bool) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | (DIRECT if direct else 0)
        handle = os.open(path, flags, 0o600)
        try:
            written = os.write(handle, self._page)
        finally:
            os.close(handle)
        if written != len(self._page):
            raise OSError(errno.ENOSPC, "no room left")

    def _takes_direct(self) -> bool:
        probe = self._folder / f"probe.{os.getpid()}.tmp"
        try:
            self._write(probe, direct=True)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise InputError(
                    "cannot write a file", where=str(self._folder), value=error.strerror
                ) from None
            return False
        finally:
            probe.unlink(missing_ok=True)
        return bool(DIRECT)
