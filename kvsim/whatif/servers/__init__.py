"""The command that starts a server with the settings of a scenario, by the scenario's scheduler."""

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
    """The server's program, such as "vllm"; "scenario" if no server has this scheduler."""
    return _COMMANDS[scheduler][0] if scheduler in _COMMANDS else "scenario"


def server_command(
    tables: dict[str, Any], folder: Path, before: dict[str, Any] | None = None
) -> str | None:
    """The command that starts a server with these settings; settings without a flag are comments.
    None if no server has this scheduler.

    tables: of a scenario; its first allocator is the server's. folder: where its paths start.
    before: the tables before a change; flags that differ are then always written.
    """
    scenario = Scenario.from_table(tables, folder)
    scheduler = SCHEDULERS.name_of(scenario.scheduler_of(scenario.allocator[0]))
    if scheduler not in _COMMANDS:
        return None
    command_of: Callable[..., str] = standing_at(_COMMANDS[scheduler][1])
    return command_of(Simulation(scenario, []), tables, before)
