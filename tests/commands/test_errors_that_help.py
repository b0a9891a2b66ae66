"""Errors that once misled users name the fault, its place and the remedy."""

from pathlib import Path

import pytest
from typer.main import get_command

from kvsim.cli import app, main
from kvsim.commands.export import export
from kvsim.commands.reference import markdown
from kvsim.commands.torch_device import check_device
from kvsim.device import named_device
from kvsim.plumbing.errors import InputError
from kvsim.results.store import read_summary
from kvsim.scenario import Scenario, find_scenario
from kvsim.simulation import Simulation

TEXT = """
[model]
name = "opt-125m"
[device]
name = "a100-40gb"
[memory]
gpu_memory_utilization = 0.9
[[allocator]]
kind = "max-buffer"
[[allocator]]
kind = "paged"
label = "small blocks"
block_size = 8
[[allocator]]
kind = "paged"
[workload]
kind = "synthetic"
num_requests = 4
arrivals = { kind = "poisson", rate_per_s = 20.0 }
prompt = { kind = "fixed", tokens = 60 }
output = { kind = "fixed", tokens = 60 }
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.toml"
    path.write_text(TEXT)
    return path


def fault(path: Path | str, *overrides: str) -> str:
    with pytest.raises(InputError) as caught:
        Simulation(Scenario.load(path, overrides))
    return str(caught.value)


def test_error_for_a_block_larger_than_the_pool_names_block_size(path: Path) -> None:
    message = fault(path, "allocator.1.block_size=1048576")
    assert message.startswith("allocator.block_size: the pool holds less than one block")
    assert "1,048,576 tokens" in message
    assert "device" not in message


def test_an_unknown_key_lists_the_keys_of_its_table(path: Path) -> None:
    message = fault(path, "memory.kv_cache_token=5")
    assert message.startswith("memory.kv_cache_token: unknown key; did you mean 'kv_cache_tokens'?")
    assert "num_gpu_blocks" in message
    assert "scheduler" not in message


def test_unknown_key_is_reported_before_the_missing_one_it_resembles(path: Path) -> None:
    path.write_text(TEXT.replace("num_requests", "num_request"))
    words = ": workload.num_request: unknown key; did you mean 'num_requests'?"
    place, found, _ = fault(path).partition(words)
    assert found
    assert place == f"{path}:{path.read_text().splitlines().index('num_request = 4') + 1}"


def test_array_items_are_addressed_by_index_label_or_kind(path: Path) -> None:
    def sizes(override: str) -> list[int | None]:
        scenario = Scenario.load(path, [override])
        return [getattr(each, "block_size", None) for each in scenario.allocator]

    assert sizes("allocator.2.block_size=32") == [None, 8, 32]
    assert sizes("allocator.small blocks.block_size=32") == [None, 32, 16]
    path.write_text(
        TEXT.replace('kind = "paged"\n[workload]', 'kind = "concatenation"\n[workload]')
    )
    assert sizes("allocator.paged.block_size=32") == [None, 32, None]


def test_missing_array_item_names_the_existing_ones(path: Path) -> None:
    message = fault(path, "allocator.3.block_size=32")
    assert "no such item; got 3" in message
    assert "by index, from 0" in message
    assert "1 (small blocks; paged)" in message
    assert "several items of that name" in fault(path, "allocator.paged.block_size=32")


def test_single_allocator_table_is_addressed_by_its_kind(path: Path) -> None:
    head, _, tail = TEXT.partition("[[allocator]]")
    path.write_text(
        f'{head}[allocator]\nkind = "paged"\n[workload]{tail.partition("[workload]")[2]}'
    )
    scenario = Scenario.load(path, ["allocator.paged.block_size=32"])
    assert [getattr(each, "block_size", None) for each in scenario.allocator] == [32]


def test_folder_without_a_result_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    assert find_scenario(tmp_path) == path
    (tmp_path / "empty").mkdir()
    assert "a folder without a scenario.toml" in fault(tmp_path / "empty")


def test_misspelt_recipe_gets_a_suggestion() -> None:
    assert "did you mean 'chat'?" in fault("chta")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("step_time=3", "step_time: not a table; got 3; give a table, or the name of a kind"),
        ("allocator=[]", "allocator: too few items; got []; limit at least 1"),
        ("workload.redraw_over=1.5", "workload.redraw_over: not a whole number and not one of"),
        ("workload.redraw_over=0", "got 0; limit more than 0 or 'max_model_len'"),
        ("allocator.2.block_size=0", "allocator.2.block_size: too small; got 0"),
        ("allocator.0.scheduler=7", "allocator.0.scheduler: not a table; got 7"),
        ('workload={kind="trace"', "--set workload: not a value as TOML has them; got {kind="),
        ("memory.num_gpu_blocks=9", "not gpu_memory_utilization and num_gpu_blocks"),
    ],
)
def test_errors_contain_no_python_words(path: Path, override: str, said: str) -> None:
    message = fault(path, override)
    assert said in message
    assert "'" not in message.partition("got")[0]


def test_trace_given_as_a_scenario_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n")
    assert '[workload] kind = "trace", path = "mine.csv"' in fault(tmp_path / "mine.csv")


@pytest.mark.parametrize("arguments", [("run", "x.toml", "--out", ""), ("compare", "--by=")])
def test_empty_command_line_argument_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("sys.argv", ["kvsim", *arguments])
    monkeypatch.setattr("kvsim.cli.lean", lambda: None)  # it changes the whole process
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "an argument is empty" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["perfetto", "torch-snapshot"])
def test_export_path_is_checked_before_the_run(
    path: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulation, "run", lambda *_: pytest.fail("it ran"))
    with pytest.raises(InputError, match="a folder, where a file is meant"):
        export(str(path), to=form, out=tmp_path)


def test_an_unknown_export_format_lists_all(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="known: torch-snapshot, vllm-metrics, ") as said:
        export(str(path), to="foo", out=tmp_path / "x")
    assert "got 'foo'" in str(said.value)


def test_result_argument_must_be_a_folder(path: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a file, where the folder of a result is meant"):
        read_summary(path)


def test_remedies_of_errors_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy of a missing extra names the installed kvsim, since no index has the package."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(InputError, match=r"pip install 'kvsim\[backend\]'"):
        check_device("cpu")


def test_reference_lists_keys_before_the_first_table() -> None:
    head = markdown().partition("## `[model]`")[0]
    assert "| `seed` | integer, >= 0 | 0 |" in head
    assert "| `max_steps` | integer, >= 1 |" in head
    assert "`allocator`" not in head


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--nope"), "error: no such option: --nope"),
        (("run",), "error: missing argument 'SCENARIO';"),
        (("rum",), "error: no such command 'rum'"),
        (("advise", "chat", "--jobs", "x"), "error: --jobs: not a whole number; got x; see "),
        (("advise", "chat", "--repeat=2"), "error: --repeat: too small; got 2; limit 3 or more;"),
        (("capacity", "chat", "--tolerance", "3"), "error: --tolerance: too large; got 3; limit"),
        (("memory", "m", "--engine", "{}"), "error: --engine: '{}' is not one of 'vllm', "),
    ],
)
def test_command_line_usage_error_is_one_line(
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["kvsim", *words])
    with pytest.raises(SystemExit) as left:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert left.value.code == 2
    assert line.startswith(said)
    assert line.endswith(" --help")


def test_unknown_device_error_suggests_near_names_and_kvsim_devices() -> None:
    with pytest.raises(InputError, match=r"'l5'; did you mean .*'l4'.* `kvsim devices` lists all"):
        named_device("l5", "--device")


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """The exit code of a command."""
    monkeypatch.setattr("sys.argv", ["kvsim", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


@pytest.mark.parametrize(
    "command", [["doctor"], ["advise"], ["capacity", "--slo", "ttft_s.p99=2"], ["run"]]
)
def test_missing_key_error_names_the_file(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "short.toml"
    file.write_text('[workload]\nkind = "synthetic"\n')
    assert called(monkeypatch, *command, str(file)) == 2
    assert f"{file}:1: workload.num_requests: required key is missing" in capsys.readouterr().err


def test_missing_table_error_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message was once `model: required key is missing`, without the file."""
    file = tmp_path / "empty.toml"
    file.write_text("")
    assert called(monkeypatch, "doctor", str(file)) == 2
    assert f"{file}: model: required key is missing" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["run"], ["capacity", "--slo=ttft_s.p99=2"]], ids=str)
def test_scenario_without_requests_names_their_sources(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Such a scenario is what `kvsim import` writes from a log alone."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'model = { name = "opt-13b" }\ndevice = { name = "a100-40gb" }\nallocator = "paged"\n'
    )
    assert called(monkeypatch, *command, str(file)) == 2
    said = capsys.readouterr().err
    assert "workload: the scenario has no requests; add a [workload] table" in said
    assert "kvsim import" in said


def test_options_command_finds_a_key_in_every_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, "options", "victim") == 0
    listed = capsys.readouterr().out
    assert "scheduler: kind = continuous" in listed
    assert '"least-computed"' in listed
    assert "max_num_seqs" not in listed
    assert called(monkeypatch, "options", "vctim") == 2
    assert "no such table, kind or key; got vctim; near: victim" in capsys.readouterr().err


OF_A_SCENARIO = {  # every command that takes one, with what it cannot do without
    "run": [],
    "export": ["--out", "here"],
    "doctor": ["--jobs", "1"],
    "sweep": ["--vary", "workload.num_requests=3,4", "--jobs", "1"],
    "measure": ["--jobs", "1"],
    "advise": ["--jobs", "1"],
    "capacity": ["--slo", "ttft_s.p99=2", "--jobs", "1"],
    "cache": [],
    "attribute": [],
    "speculation": [],
    "observe": ["--out", "here"],
}


def test_list_of_commands_with_a_scenario_is_complete() -> None:
    taking = {
        name
        for name, command in get_command(app).commands.items()  # type: ignore[attr-defined]
        if any(
            each.param_type_name == "argument" and str(each.metavar).startswith("SCENARIO")
            for each in command.params
        )
        and not any(each.name == "sources" for each in command.params)
    }
    assert taking == OF_A_SCENARIO.keys()


@pytest.mark.parametrize("command", OF_A_SCENARIO)
def test_scenario_error_names_file_and_line_in_every_command(
    command: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`doctor`, `sweep`, `advise` and `capacity` once named only the key."""
    monkeypatch.chdir(path.parent)
    path.write_text(TEXT.replace("a100-40gb", "a1000-40gb"))
    assert called(monkeypatch, command, path.name, *OF_A_SCENARIO[command]) == 2
    assert "scenario.toml:5: device.name: unknown device" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["doctor", "sweep", "advise", "capacity"])
def test_error_in_a_key_set_on_the_command_line_names_no_line(
    command: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(path.parent)
    words = [*OF_A_SCENARIO[command], "--set", 'device.name="a1000"']
    assert called(monkeypatch, command, path.name, *words) == 2
    said = capsys.readouterr().err
    assert "device.name: unknown device" in said
    assert "scenario.toml" not in said
