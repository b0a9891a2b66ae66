"""Log of the copies over a link, with their times."""

from array import array


class CopyLog:
    """Copies over one link in order of submission, one list per column.

    asked_ps: earliest time at which the copy could have moved; start_ps, end_ps: when it moved.
    """

    def __init__(self) -> None:
        self.asked_ps, self.start_ps = array("q"), array("q")
        self.end_ps, self.num_bytes = array("q"), array("q")

    def add(
        self, asked_ps: int, start_ps: int, end_ps: int, num_bytes: int, *, piece: bool = False
    ) -> None:
        """Add a copy of num_bytes. piece: it is the next part of the last copy, directly after the
        part before.
        """
        if piece:
            self.end_ps[-1] = end_ps
            self.num_bytes[-1] += num_bytes
            return
        self.asked_ps.append(asked_ps)
        self.start_ps.append(start_ps)
        self.end_ps.append(end_ps)
        self.num_bytes.append(num_bytes)
