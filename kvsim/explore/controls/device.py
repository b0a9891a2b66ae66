"""The control of the GPU."""

from typing import Any, ClassVar

from dash.development.base_component import Component

from kvsim.device import device_names
from kvsim.explore.controls.control import Control
from kvsim.explore.widgets import choice, labelled


class DeviceControl(Control):
    """A dropdown of the GPUs in the catalogue."""

    title: ClassVar[str] = "Device"

    def widgets(self, table: dict[str, Any]) -> list[Component]:
        device = table["device"]
        return [labelled("name", choice("device.name", device_names(), device.get("name")))]

    def chosen(self, table: dict[str, Any], key: str, value: Any) -> bool:
        if key != "device.name" or table["device"].get("name") == value:
            return False
        table["device"] = {"name": value}
        return True
