"""What a paged allocator keeps of one sequence."""

from kvsim.memory.paged.content import KeyRuns


class Table:
    """A sequence's slots, and what is known of their content; its blocks are a subclass's part.

    tokens: slots it holds while it does not decode. base: slots minus the decoders' clock while it
    decodes. joined: slots it began to decode with. returned: slots of which the content was known
    then, or will be with its first step.
    runs: content keys of its leading blocks, or of what part of a block has one. num_shareable: how
    many of them another sequence can have. registered: how many blocks carry theirs. covered: where
    tokens are drafted ahead, how many hold known content; cover_at: how many tokens must be known
    for one more. session: whether it belongs to one.
    """

    __slots__ = (
        "base",
        "cover_at",
        "covered",
        "joined",
        "num_shareable",
        "registered",
        "returned",
        "runs",
        "session",
        "tokens",
    )

    def __init__(self, runs: KeyRuns, num_shareable: int) -> None:
        self.tokens = 0
        self.base = 0
        self.joined = 0
        self.returned = 0
        self.runs = runs
        self.num_shareable = num_shareable
        self.registered = 0
        self.covered = self.cover_at = 0
        self.session = False

    def add_keys(self, first: int, count: int) -> None:
        """Its next blocks get consecutive keys."""
        self.runs = self.runs.plus(first, count)


class KeyedTable(Table):
    """One whose blocks are named one by one."""

    __slots__ = ("_keys",)

    def __init__(self, runs: KeyRuns, num_shareable: int) -> None:
        super().__init__(runs, num_shareable)
        self._keys: list[int] | None = None

    @property
    def keys(self) -> list[int]:
        """The keys of `Table.runs` one by one."""
        if self._keys is None:
            self._keys = self.runs.listed(0, len(self.runs))
        return self._keys

    def add_keys(self, first: int, count: int) -> None:
        super().add_keys(first, count)
        self._keys = None
