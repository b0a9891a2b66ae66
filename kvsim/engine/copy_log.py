"""Log of the copies over a link, with their times."""

from array import array


class CopyLog:
    """Copies in order of submission, a column each. asked_ps: from when on a copy could have moved;
    start_ps, end_ps: when it moved.
    """

    def __init__(self) -> None:
        self.asked_ps, self.start_ps = array("q"), array("q")
        self.end_ps, self.num_bytes = array("q"), array("q")

    def add(
        self, asked_ps: int, start_ps: int, end_ps: int, num_bytes: int, *, piece: bool = False
    ) -> None:
        """Add a copy, or another piece of the last copy, directly after the piece before it."""
        if piece:
            self.end_ps[-1] = end_ps
            self.num_bytes[-1] += num_bytes
            return
        self.asked_ps.append(asked_ps)
        self.start_ps.append(start_ps)
        self.end_ps.append(end_ps)
        self.num_bytes.append(num_bytes)
