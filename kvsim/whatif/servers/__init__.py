"""The command that starts a real server with a scenario's settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvsim.engine.schedulers import SCHEDULERS
from kvsim.plumbing.places import standing_at
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# Engines by the scheduler that schedules as they do; vLLM's knobs stand with its advice.
_COMMANDS = {
    "continuous": ("vllm serve", "kvsim.whatif.advice.serve:command_of"),
    "vllm-v0": ("vllm serve", "kvsim.whatif.advice.serve:command_of"),
    "sglang": ("sglang.launch_server", "kvsim.whatif.servers.sglang:command_of"),
    "llama-server": ("llama-server", "kvsim.whatif.servers.llama_server:command_of"),
}


def program(scheduler: str) -> str:
    """Name of the server program, such as "vllm"; "scenario" if no server has this scheduler."""
    return _COMMANDS[scheduler][0] if scheduler in _COMMANDS else "scenario"


def server_command(
    tables: dict[str, Any], folder: Path, before: dict[str, Any] | None = None
) -> str | None:
    """The command that starts a server with these settings; settings without a flag are comments.
    None if no server has this scheduler.

    tables: the scenario's; its first allocator is the server's. folder: base of relative paths.
    before: tables before a change; flags that differ from them are always written, even at their
    defaults.
    """
    scenario = Scenario.from_table(tables, folder)
    scheduler = SCHEDULERS.name_of(scenario.scheduler_of(scenario.allocator[0]))
    if scheduler not in _COMMANDS:
        return None
    command_of: Callable[..., str] = standing_at(_COMMANDS[scheduler][1])
    return command_of(Simulation(scenario, []), tables, before)
