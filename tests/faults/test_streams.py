"""Standard output and error under a shell, unusual file names, control characters."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ESC = "\x1b"
PROGRESS = re.compile(rb", \d+ s$")
SCENARIO = """
model = {{ name = "opt-125m" }}
device = {{ name = "a100-40gb" }}
memory = {{ kv_cache_tokens = 2048 }}
allocator = [{{ kind = "paged", label = "{label}" }}]
[workload]
{workload}
"""
SYNTHETIC = """kind = "synthetic"
num_requests = 3
arrivals = { kind = "at-once" }
prompt = { kind = "fixed", tokens = 6 }
output = { kind = "fixed", tokens = 2 }
"""
TRACE = '{"timestamp": 0, "input_length": 50, "output_length": 5, "hash_ids": [0]}\n'


def shell(line: str, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    """Run the line under bash, with `kvsim` as the tested command."""
    code = f'kvsim() {{ "{sys.executable}" -m kvsim "$@"; }}; set -o pipefail; {line}'
    return subprocess.run(
        ["bash", "-c", code], cwd=folder, capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    scenario = SCENARIO.format(label="mine", workload=SYNTHETIC)
    (tmp_path / "s.toml").write_text(scenario)
    return tmp_path


@pytest.mark.parametrize("stream", ["2>&-", ">&-", "2>&- >&-", "<&- 2>&-"])
def test_closed_stdout_changes_nothing_else(folder: Path, stream: str) -> None:
    done = shell(f"kvsim run s.toml --out out {stream}", folder)
    assert done.returncode == 0, done
    assert json.loads((folder / "out" / "summary.json").read_text())["runs"]
    assert (">&-" in stream.replace("2>&-", "")) or b"mine" in done.stdout
    assert shell(f"kvsim run none.toml {stream}", folder).returncode == 2


@pytest.mark.parametrize("command", ["models", "schema", "--help", "run s.toml --out out --json"])
def test_closed_pipe_reader_does_not_end_the_command(folder: Path, command: str) -> None:
    """`kvsim ... | head -1`: no traceback, no silent exit 1, and output files are written."""
    done = shell(f"kvsim {command} | true", folder)
    # A slow machine says how far the command is.
    said = [line for line in done.stderr.splitlines() if not PROGRESS.search(line)]
    assert (done.returncode, said) == (0, [])
    assert ("--out" not in command) or (folder / "out" / "summary.json").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such names")
@pytest.mark.parametrize(
    "line",
    [
        "run s.toml --out $D && kvsim compare $D $D && kvsim report $D --format md,csv",
        "run s.toml --out $D && kvsim export $D --to perfetto --out $D/x.json",
        "import 'vllm serve Qwen/Qwen3-8B' $D/t.jsonl --device h100 --out $D/x.toml",
        "sweep $D/s.toml --vary scheduler.max_num_seqs=8,16 --out $D/sweep",
    ],
)
def test_folder_name_that_is_not_utf8_is_accepted(folder: Path, line: str) -> None:
    place = folder / os.fsdecode(b"o\xff")
    place.mkdir()
    (place / "t.jsonl").write_text(TRACE)
    (place / "s.toml").write_text((folder / "s.toml").read_text())
    done = shell(f"D=$'o\\xff'; kvsim {line}", folder)
    assert done.returncode == 0, done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems know no such names")
def test_path_that_is_not_utf8_in_a_scenario_is_a_one_line_error(folder: Path) -> None:
    place = folder / os.fsdecode(b"o\xff")
    place.mkdir()
    (place / "t.jsonl").write_text(TRACE)
    table = SCENARIO.format(
        label="mine", workload='kind="trace"\npath="t.jsonl"\nformat="mooncake"'
    )
    (place / "s.toml").write_text(table)
    done = shell("kvsim run $'o\\xff/s.toml' --out out", folder)
    assert done.returncode == 2
    assert b"not UTF-8 text" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list((folder / "out").iterdir())
    assert b"mine" in done.stdout  # what was simulated is shown


ATTACKS = (
    f"{ESC}]0;title\x07",  # of the window
    f"{ESC}[2J",  # wipes the screen
    f"{ESC}]52;c;aGk=\x07",  # the clipboard
    "\x9b2J",  # wipes it too, in one byte
    "a\rb",  # a line over another
    "\u202egnp",  # text turned round
)


def test_terminal_codes_in_labels_are_shown_as_text(folder: Path) -> None:
    attack = "".join(ATTACKS)
    label = "".join(f"\\u{ord(char):04x}" for char in attack)
    (folder / "s.toml").write_text(SCENARIO.format(label=label, workload=SYNTHETIC))
    done = shell("kvsim run s.toml --out out; kvsim compare out out; "
                 f"kvsim run 'no{attack}.toml'; kvsim report out --format md", folder)  # fmt: skip
    told = (done.stdout + done.stderr).decode()
    for sign in ("\x07", "\x9b", f"{ESC}]", f"{ESC}[2J", "\r", "\u202e"):
        assert sign not in told, sign
    for shown in ("\\u0007", "\\u009b", "\\u001b]", "\\u001b[2J", "\\u202e"):
        assert shown in told, shown


def test_label_with_terminal_control_codes_is_a_one_line_error(folder: Path) -> None:
    (folder / "s.toml").write_text(SCENARIO.format(label="\\u009b2J\\u001b[2J", workload=SYNTHETIC))
    done = shell("kvsim run s.toml --json", folder)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.splitlines()
    assert b"label" in line
    assert ESC.encode() not in line
