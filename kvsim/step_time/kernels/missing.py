"""The error for kernels that were not measured; on it, `kind = "auto"` takes another form."""

from kvsim.plumbing.errors import InputError


class NotMeasured(InputError):  # noqa: N818 - a fact about tables, raised to whoever asked for them
    """Kernels of this device, dtype or kind of attention are in no table."""
