"""Errors about a scenario's keys name the file, the line, and the allocator by its label."""

from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_lines import line_of
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

TEXT = """\
seed = 0
[model]
name = "opt-125m"

[device]
name = "a100-40gb"

[[allocator]]
kind = "paged"
label = "ours"
block_size = 16

[[allocator]]
kind = "doubling"
[allocator.scheduler]
kind = "continuous"
max_num_seqs = 8

[workload]
kind = "synthetic"
num_requests = 3
arrivals = { kind = "poisson", rate_per_s = 3.0 }
prompt.kind = "fixed"
prompt.tokens = 20
output = { kind = "fixed", tokens = 3 }
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("seed", 1),
        ("model.name", 3),
        ("allocator.0.block_size", 11),
        ("allocator.0.no_such_key", 8),
        ("allocator.1", 13),
        ("allocator.1.scheduler.max_num_seqs", 17),
        ("workload.arrivals.rate_per_s", 22),
        ("workload.prompt.tokens", 24),
        ("memory.num_gpu_blocks", None),
    ],
)
def test_line_of_a_toml_key_is_found(path: str, line: int | None) -> None:
    assert line_of(TEXT, tuple(path.split("."))) == line


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("block_size = 16", "blok_size = 16", ":11: allocator.0.blok_size (allocator 'ours')"),
        ("max_num_seqs = 8", "max_num_seqs = 0", ":17: allocator.1.scheduler.max_num_seqs (alloc"),
        ('[[allocator]]\nkind = "doubling"', '[[allocator]]\nkind = "x"', ":14: allocator.1.kind"),
        ("rate_per_s = 3.0", "rate_per_s = -3.0", ":22: workload.arrivals.rate_per_s: "),
        ("seed = 0", "seed = -1", ":1: seed: "),
        (
            'kind = "doubling"\n',
            'kind = "doubling"\nplacement = "worst"\n',
            ":15: allocator.1.placement.kind (allocator 'doubling')",
        ),
    ],
)
def test_scenario_error_gives_file_line_and_label(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(TEXT)
    Scenario.load(path)
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError) as caught:
        Scenario.load(path)
    assert str(caught.value).startswith(f"{path}{words}")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"a100-40gb"', '"a1000"', ":6: device.name: unknown device"),
        ('"opt-125m"', '"opt-125"', ":3: model.name: unknown model"),
    ],
)
def test_build_error_names_file_and_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError) as caught:
        Simulation(Scenario.load(path))
    assert str(caught.value).startswith(f"{path}{words}")
    path.write_text(TEXT)
    with pytest.raises(InputError) as caught:
        Simulation(Scenario.load(path, ['device.name="a1000"']))
    assert str(caught.value).startswith("device.name: unknown device")


def test_error_in_an_override_gives_no_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(TEXT)
    for override in ("allocator.ours.block_size=-1", "seed=-1", "memory.num_gpu_blocks=-1"):
        with pytest.raises(InputError) as caught:
            Scenario.load(path, [override])
        assert str(path) not in str(caught.value)
