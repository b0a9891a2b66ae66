"""Devices as collections of others' runs name them."""

import pytest

from kvsim.device import named_device


@pytest.mark.parametrize("name", ["RTXPRO6000", "rtx-pro-6000"])
def test_device_name_is_found_without_hyphens(name: str) -> None:
    assert named_device(name).name == "rtx-pro-6000"
