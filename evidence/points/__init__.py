"""Step-time constants from measured points: they ship with kvsim, and are fitted on one half."""
