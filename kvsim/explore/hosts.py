"""Hosts that are this machine alone."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
