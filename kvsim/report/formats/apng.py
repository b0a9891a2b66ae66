"""An animated PNG of the address maps of all runs as they fill up."""

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kvsim.plumbing.errors import InputError
from kvsim.report.form import Form
from kvsim.report.painting import NOBODY, Rectangles, painted
from kvsim.results.result import Result, Run

WIDTH, PANEL, GAP = 720, 150, 10
FRAMES, FRAME_MS, LAST_MS = 72, 80, 2500
SHARE = 0.15  # of the shortest run: buffers and blocks are then wide enough to be seen
_OWNERS = (
    *(0x0072B2, 0xE69F00, 0x009E73, 0xCC79A7, 0x56B4E9, 0xD55E00),
    *(0x882255, 0x44AA99, 0x999933, 0x6F63C9, 0xBB5566, 0x117733),
)
_PAPER, _WELL = 0xFFFFFF, 0xE9ECEF
_KEPT = 0.3  # of an owner's colour, where its content is only kept


class Apng(Form):
    """A panel per run from the top: time from left to right, addresses upwards."""

    def make(self, result: Result) -> bytes:
        """The animated PNG with a palette; InputError if no run recorded its addresses."""
        runs = [
            run for run in result.runs
            if (stays := run.table("addresses")) is not None and len(stays)
        ]  # fmt: skip
        if not runs:
            raise InputError("no run was traced, so there is no map", remedy="kvsim run --out")
        until_ps = min(int(run.memory["end_ps"].max()) for run in runs) * SHARE
        panels = [_panel(run, until_ps) for run in runs]
        height = len(panels) * (PANEL + GAP) - GAP
        whole = np.zeros((height, WIDTH), dtype=np.uint8)
        for index, panel in enumerate(panels):
            whole[index * (PANEL + GAP) : index * (PANEL + GAP) + PANEL] = panel
        return _animated(list(_frames(whole)), _palette())


def _panel(run: Run, until_ps: float) -> NDArray[np.uint8]:
    """(PANEL, WIDTH) indices into the palette: 1 for memory that nobody holds, then one per owner's
    colour, then the same colours paler for cached content.
    """
    stays = run.table("addresses")
    assert stays is not None
    stays = stays.loc[stays["start_ps"] < until_ps]
    start, end = (stays[name].to_numpy(np.float64) / until_ps for name in ("start_ps", "end_ps"))
    capacity = run.summary.memory.capacity_bytes
    low = stays["address"].to_numpy(np.float64) / capacity
    high = low + stays["num_bytes"].to_numpy(np.float64) / capacity
    owner = stays["request"].cat.codes.to_numpy().astype(np.int64) * 7 % len(_OWNERS)
    kept = (stays["kind"] == "cached").to_numpy()
    drawn = Rectangles(start, end, low, high, owner + len(_OWNERS) * kept)
    cells = painted([drawn], WIDTH, PANEL)
    colours = np.where(cells == NOBODY, 1, cells + 2).astype(np.uint8)
    return colours.T[::-1]


def _frames(whole: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Frames of the animation: each shows the picture up to a later moment, and empty memory after
    it.
    """
    for frame in range(1, FRAMES + 1):
        shown = whole.copy()
        seen = WIDTH * frame // FRAMES
        shown[:, seen:][shown[:, seen:] > 1] = 1
        yield shown


def _palette() -> bytes:
    """The palette, 3 bytes per colour: background, empty pool, owners, owners' paler colours."""
    faint = [_mixed(hue, _WELL) for hue in _OWNERS]
    return b"".join(hue.to_bytes(3, "big") for hue in (_PAPER, _WELL, *_OWNERS, *faint))


def _mixed(hue: int, ground: int) -> int:
    parts = (
        round(_KEPT * (hue >> shift & 255) + (1 - _KEPT) * (ground >> shift & 255)) << shift
        for shift in (16, 8, 0)
    )
    return sum(parts)


def _animated(frames: list[NDArray[np.uint8]], palette: bytes) -> bytes:
    """An endless APNG of the frames (W3C, PNG third edition, sections 11.2 and 11.3.6)."""
    height, width = frames[0].shape
    parts = [
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"acTL", struct.pack(">II", len(frames), 0)),
        _chunk(b"PLTE", palette),
    ]
    number = 0
    for index, frame in enumerate(frames):
        wait_ms = LAST_MS if index == len(frames) - 1 else FRAME_MS
        control = (number, width, height, 0, 0, wait_ms, 1000, 0, 0)
        parts.append(_chunk(b"fcTL", struct.pack(">IIIIIHHBB", *control)))
        number += 1
        # Each line begins with its filter: none, which suits few colours best.
        lines = np.hstack([np.zeros((height, 1), dtype=np.uint8), frame])
        data = zlib.compress(lines.tobytes(), 9)
        if index == 0:
            parts.append(_chunk(b"IDAT", data))
        else:
            parts.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
            number += 1
    return b"".join([*parts, _chunk(b"IEND", b"")])


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
