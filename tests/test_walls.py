"""Rules on imports and sizes of kvsim's modules, checked on the code."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kvsim.plumbing import extras

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kvsim"
WINGS = ("workload", "memory", "step_time")
ABOVE = ("report", "whatif", "validate", "commands", "cli", "simulation", "scenario")


@cache
def tree(path: Path) -> ast.Module:
    """A file's syntax tree, parsed once, as most tests here read every file."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports anywhere, except for type checking."""
    return tuple(_imports(tree(path)))


def _imports(module: ast.Module) -> Iterator[str]:
    skipped = {
        id(inner)
        for node in ast.walk(module)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(module):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def room(path: Path) -> str:
    """The folder or module of kvsim that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))
EVIDENCE = sorted((ROOT / "evidence").rglob("*.py"))
FIGURES = sorted((PACKAGE / "report" / "figures").glob("*.py"))


def users_of(library: str) -> set[str]:
    return {room(path) for path in FILES for name in imports(path) if name.split(".")[0] == library}


@pytest.mark.parametrize("wing", WINGS)
def test_folders_import_only_allowed_folders(wing: str) -> None:
    forbidden = {*WINGS, "engine", "results", "backend", *ABOVE} - {wing}
    for path in (PACKAGE / wing).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            assert not (parts[0] == "kvsim" and len(parts) > 1 and parts[1] in forbidden), (
                f"{path.relative_to(PACKAGE)} imports {name}"
            )


def test_vllm_rules_import_no_simulation_modules() -> None:
    allowed = ("kvsim.plumbing", "kvsim.layout", "kvsim.speculation", "kvsim.support", "kvsim.vllm")
    for path in (PACKAGE / "vllm").rglob("*.py"):
        for name in imports(path):
            assert not name.startswith("kvsim") or name.startswith(allowed), (
                f"{path} imports {name}"
            )


@pytest.mark.parametrize("lower", ["engine", "results"])
def test_engine_and_results_import_nothing_above_them(lower: str) -> None:
    for path in (PACKAGE / lower).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            assert parts[0] != "kvsim" or len(parts) == 1 or parts[1] not in ABOVE, (
                f"{path.relative_to(PACKAGE)} imports {name}"
            )


def test_all_terminal_tables_have_one_style() -> None:
    makers = {path for path in FILES if "rich.table" in imports(path)}
    assert {path.relative_to(PACKAGE).as_posix() for path in makers} == {"report/whole_words.py"}


def test_observed_imports_no_backend() -> None:
    for path in (PACKAGE / "observed").rglob("*.py"):
        for name in imports(path):
            assert not name.startswith(("kvsim.backend", "kvsim.validate", "kvsim.commands")), path


def test_readers_import_nothing_of_the_interchange() -> None:
    above = {"interchange", "backend", *ABOVE}
    for lower, forbidden in (("readers", above), ("observed", {"readers", "interchange"})):
        for path in (PACKAGE / lower).rglob("*.py"):
            found = {name.split(".")[1] for name in imports(path) if name.startswith("kvsim.")}
            assert not found & forbidden, path


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("simpy", {"engine", "validate"}),
        # Pages of a validation are drawn where their numbers are made.
        ("torch", {"backend", "commands"}),
        ("triton", {"backend"}),
        ("plotly", {"report", "validate", "whatif", "explore"}),
        ("dash", {"explore"}),
        ("pandas", {"results", "report", "validate", "whatif", "commands"}),
    ],
)
def test_libraries_are_imported_only_in_their_folders(library: str, rooms: set[str]) -> None:
    assert users_of(library) <= rooms


def test_only_the_explore_command_imports_the_explorer() -> None:
    for path in FILES:
        if room(path) not in ("explore", "commands"):
            assert not any(name.startswith("kvsim.explore") for name in imports(path)), path


def test_kvsim_never_imports_evidence() -> None:
    """Except the commands of `kvsim validate`, which look the names up if there is a checkout."""
    for path in FILES:
        assert not any(name.split(".")[0] == "evidence" for name in imports(path)), path
    named = {path for path in FILES if '"evidence.' in path.read_text()}
    assert named == {PACKAGE / "commands" / "validate" / "evidence.py"}


BARE = (
    *(
        f"kvsim.backend.{name}"
        for name in ("devices", "transformer", "stores", "tiers", "measure", "shape", "step")
    ),
    "evidence.prove",
)


@pytest.mark.parametrize("part", BARE)
def test_backend_imports_torch_numpy_and_standard_library_alone(part: str) -> None:
    """The backend must run on a GPU machine that has only torch: no pydantic, no simulator."""
    root = ROOT / part.replace(".", "/")
    files = sorted(root.rglob("*.py")) or [root.with_suffix(".py")]
    plumbing = ("errors", "writing", "reading.files", "reading.json_text")
    allowed = {*(f"kvsim.plumbing.{name}" for name in plumbing), *BARE}
    for path in files:
        for name in imports(path):
            parts = name.split(".")
            own = any(".".join(parts[:length]) in allowed for length in (2, 3, 4))
            assert own or parts[0] in {"torch", "numpy", "triton", *sys.stdlib_module_names}, (
                f"{path.relative_to(ROOT)} imports {name}"
            )


@cache
def registries() -> dict[str, set[str]]:
    """The modules of each registry's entries, by name of the registry."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            call = node.value if isinstance(node, ast.AnnAssign | ast.Assign) else None
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Registry":
                _, entries = call.args
                values = ast.literal_eval(entries).values()
                found[ast.unparse(call.args[0])] = {value.partition(":")[0] for value in values}
    return found


def test_registered_modules_of_one_kind_never_import_each_other() -> None:
    """Code that several implementations share is in a separate module."""
    stores = {f"kvsim.backend.stores.{name}" for name in ("paged", "contiguous", "buffers")}
    for family in (*registries().values(), stores):
        for module in family:
            path = ROOT / (module.replace(".", "/") + ".py")
            assert not (family - {module}) & set(imports(path)), path


def test_every_registry_has_several_modules() -> None:
    assert len(registries()) >= 12
    assert all(len(modules) > 1 for modules in registries().values())


def modules_imported(path: Path, modules: set[str]) -> set[str]:
    """The package's modules that a file imports anywhere: by name, for type checking, or inside
    functions.
    """
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    return found & modules


MOST_LINES = 600


def test_modules_never_import_each_other_in_a_circle() -> None:
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES + EVIDENCE
    }
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {name: modules_imported(path, set(names)) - {name} for name, path in names.items()}
    while graph:
        free = [name for name, needs in graph.items() if not needs & graph.keys()]
        assert free, f"these import each other in a circle, or what does: {sorted(graph)}"
        for name in free:
            del graph[name]


def test_class_names_are_unique() -> None:
    """So a class name in a traceback, a search or an import identifies one class."""
    places: dict[str, list[str]] = {}
    for path in FILES + EVIDENCE:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(path.relative_to(ROOT).as_posix())
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice


def test_no_module_is_longer_than_600_lines() -> None:
    """A module has one idea; most need a third of this limit."""
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines())
               for path in FILES + EVIDENCE}  # fmt: skip
    assert not {path: lines for path, lines in lengths.items() if lines > MOST_LINES}


MOST_CLASS_LINES = 500
# A class that may be longer with its bases, and why.
LONG_CLASSES = {"SharingAllocator": "a worked example of CONTRIBUTING, whole in one place"}
# Bases that one class of kvsim extends and nothing makes, and why.
SINGLE_HEIRS = {
    "StepwiseAllocator": "a new allocator begins on it (CONTRIBUTING)",
    "ServerExport": "a format of what is served; formats that others register extend it",
}


@cache
def classes() -> dict[str, tuple[int, frozenset[str]]]:
    """Number of lines of each class of kvsim, and the names of its bases in kvsim."""
    found = {
        node.name: node
        for path in FILES
        for node in tree(path).body
        if isinstance(node, ast.ClassDef)
    }
    return {
        name: (
            (node.end_lineno or 0) - node.lineno + 1,
            frozenset(ast.unparse(base).partition("[")[0] for base in node.bases) & found.keys(),
        )
        for name, node in found.items()
    }


@cache
def made() -> set[str]:
    """Names that kvsim calls anywhere; classes among them are instantiated."""
    calls = (
        node.func for path in FILES for node in ast.walk(tree(path)) if isinstance(node, ast.Call)
    )
    return {ast.unparse(function).rpartition(".")[2] for function in calls}


def test_base_classes_with_one_subclass_are_instantiated() -> None:
    """A base that is never instantiated and has one subclass only splits that class in two."""
    heirs: dict[str, list[str]] = {}
    for name, (_, bases) in classes().items():
        for base in bases:
            heirs.setdefault(base, []).append(name)
    single = {base for base, names in heirs.items() if len(names) == 1} - made()
    assert single == SINGLE_HEIRS.keys()


def test_class_has_at_most_500_lines_with_its_bases() -> None:
    def line(name: str) -> set[str]:
        return {name}.union(*(line(base) for base in classes()[name][1]))

    lengths = {name: sum(classes()[each][0] for each in line(name)) for name in classes()}
    longer = {name for name, lines in lengths.items() if lines > MOST_CLASS_LINES}
    assert longer == LONG_CLASSES.keys()


def test_files_named_options_contain_option_classes() -> None:
    """The command `kvsim options` is the only exception."""
    for path in PACKAGE.rglob("options.py"):
        if path.parent.name != "commands":
            classes = [each for each in tree(path).body
                       if isinstance(each, ast.ClassDef)]  # fmt: skip
            bases = [ast.unparse(base) for each in classes for base in each.bases]
            assert any(base.endswith(("Options", "BaseModel")) for base in bases), path


# What `make test` installs, and whose part a module is that bears another name than its package.
INSTALLED = ("report", "fit", "traces", "test", "check", "docs", "sweep", "dask", "interchange")
COMES_WITH = {
    "yaml": "pyyaml",
    "packaging": "pytest",
    "annotated_types": "pydantic",
    "flask": "dash",
    "markdown_it": "markdown_it_py",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "requests": "pooch",
    "werkzeug": "dash",
}


def declared(*extras: str) -> set[str]:
    """Modules of the dependencies in pyproject.toml: the base ones and those of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    return {re.split(r"[^\w.-]", line)[0].lower().replace("-", "_") for line in asked}


def test_tests_import_only_packages_of_make_test() -> None:
    """A module that is installed only on a developer's machine is missing on a fresh one."""
    command = (ROOT / "Makefile").read_text()
    assert f"EXTRAS := {','.join(INSTALLED)}\n" in command
    known = {*declared(*INSTALLED), *sys.stdlib_module_names, "kvsim", "evidence", "support"}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in imports(path):
            top = name.split(".")[0]
            assert COMES_WITH.get(top, top) in known, f"{path.name} imports {top}: add it to `test`"


def test_kvsim_imports_only_declared_dependencies() -> None:
    optional = (*extras.EXTRAS.values(), "gpu")
    known = {*declared(*optional), *sys.stdlib_module_names, "kvsim", "evidence"}
    for path in FILES + EVIDENCE:
        for name in imports(path):
            top = name.split(".")[0]
            assert COMES_WITH.get(top, top) in known, f"{path.relative_to(ROOT)} imports {top}"
