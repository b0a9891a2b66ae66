"""The type of the `placement` key of an allocator's options: a name, or a table with `kind` and
options.
"""

from typing import Annotated

from kvsim.memory.arena import PLACEMENTS
from kvsim.memory.arena.placement import PlacementOptions
from kvsim.plumbing.choice import OneOf

PlacementChoice = Annotated[PlacementOptions, OneOf(PLACEMENTS, "allocator.placement")]
