"""How fast is kvsim, and where does its time go? `make bench`, never a test.

Each case of cases.toml runs in processes of its own, the contestants in turns: this tree, with
`--against` other commits, with `--sources` the same tree without its compiled modules, with
`--peer` other simulators. Commits are compared compiled, this tree too: each is built once, in
out/bench. A case with `beside` runs with these keys too. Machines are noisy: after one round that
does not count, the median and the least of several rounds are told, and ratios are medians of the
ratios within a round. Instructions are counted too, where something counts them (instructions.py).
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from builds import built_checkout, built_commit, of_commit
from case import HERE, Case, cases
from history import growth, remember
from instructions import Counter, ProcessError, find_counter
from measure import Beside, Measured, Peer, Tree, measure

PARTS = ("python", "imports", "reading", "engine", "writing")
WIDTH = 32
Contestant = Tree | Peer | Beside


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        here, others = _trees(options, Path(folder))
        others += [
            Peer(f"peer {index}", template, Path(folder))
            for index, template in enumerate(options.peer, 1)
        ]
        _start_up(options.repeats)
        heads = ("CPU s", "least", *PARTS, "req/s", "tokens/s", "peak MiB")
        print(f"\n{'':<{WIDTH}}" + "".join(f"{head:>10}" for head in heads))
        found = {}
        counter = find_counter() if options.against else None
        for case in (each.with_keys(options.set) for each in cases(options.only)):
            against = [*others, Beside(here, case)] if case.beside else others
            rounds = _rounds(case, [here, *against], options.repeats)
            if rounds:
                found[case] = _told(case, rounds[0])
                _compared(found[case], [each.name for each in against], rounds)
                if options.against:
                    _counted(found[case], case, [here, *others], counter)
        for line in growth(found):
            print(line)
        remember(options.history, found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--only", action="append", default=[], help="cases whose name has this in it"
    )
    parser.add_argument("--sources", action="store_true", help="the same tree, not compiled, too")
    parser.add_argument(
        "--against", action="append", default=[], metavar="COMMIT", help="compiled, as this tree is"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", help="a key of every case"
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="COMMAND",
        help="another simulator, reading {trace}; see measure.py for what else it may name",
    )
    parser.add_argument(
        "--history", type=Path, default=HERE.parent / "out" / "bench.jsonl", help="one line a case"
    )
    return parser.parse_args()


def _trees(options: argparse.Namespace, folder: Path) -> tuple[Tree, list[Contestant]]:
    """The tree at hand, and those to compare it with; with `--sources` commits run theirs too."""
    sources = Tree("from its sources", HERE.parent, sources=True)
    if not options.against:
        return Tree("kvsim", HERE.parent, sources=None), [sources] if options.sources else []
    if options.sources:
        others: list[Contestant] = []
        for name in options.against:
            root = folder / name.replace("/", "-")
            of_commit(name, root)
            others.append(Tree(name, root, sources=True))
        return sources, others
    return Tree("kvsim", built_checkout()), [
        Tree(name, built_commit(name)) for name in options.against
    ]


def _start_up(repeats: int) -> None:
    """What the command takes to say how it is used."""
    command = [sys.executable, "-m", "kvsim.cli", "--help"]
    times = [measure(command, HERE.parent).cpu_s for _ in range(repeats + 1)]
    print(f"kvsim --help: {statistics.median(times[1:] or times):.2f} CPU s")


def _rounds(case: Case, contestants: list[Contestant], repeats: int) -> list[list[Measured]]:
    """For each contestant one measurement a round; all take turns."""
    rounds: list[list[Measured]] = [[] for _ in contestants]
    try:
        for turn in range(repeats + 1):
            for each, measured in zip(contestants, rounds, strict=True):
                one = each.measure(case)
                if turn or not repeats:
                    measured.append(one)
    except ProcessError as failure:
        print(f"{case.name:<{WIDTH}}  failed: {failure}")
        return []
    return rounds


def _told(case: Case, own: list[Measured]) -> dict[str, float]:
    """Print what was measured of this tree; returns it."""
    times = [one.cpu_s for one in own]
    cpu_s, said = statistics.median(times), own[-1].said
    columns = {
        "cpu_s": cpu_s,
        "least_s": min(times),
        **{name: statistics.median(one.said["parts"][name] for one in own) for name in PARTS},
        "requests_per_s": said["requests"] / cpu_s,
        "output_tokens_per_s": said["output_tokens"] / cpu_s,
        "peak_mib": max(one.peak_mib for one in own),
    }
    cells = (f"{value:>10,.0f}" if value >= 50 else f"{value:>10.2f}" for value in columns.values())
    print(f"{case.name:<{WIDTH}}" + "".join(cells), flush=True)
    return columns | {name: said[name] for name in ("requests", "output_tokens", "plans", "steps")}


def _compared(found: dict[str, float], names: list[str], rounds: list[list[Measured]]) -> None:
    """Print how this tree stands to the others, and keep it."""
    own, *others = rounds
    for name, measured in zip(names, others, strict=True):
        ratios = [a.cpu_s / b.cpu_s for a, b in zip(own, measured, strict=True)]
        cpu_s = statistics.median(one.cpu_s for one in measured)
        peak_mib = max(one.peak_mib for one in measured)
        found[f"of {name}"] = statistics.median(ratios)
        print(
            f"  {name}: {cpu_s:.2f} CPU s, {peak_mib:,.0f} MiB; kvsim takes "
            f"{statistics.median(ratios):.2f} x its time ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def _counted(
    found: dict[str, float], case: Case, trees: list[Contestant], counter: Counter | None
) -> None:
    """Print how the instructions of this tree stand to those of the others, and keep it."""
    if counter is None:
        print("  instructions: not counted, as neither perf's counter nor valgrind is here")
        return
    few = counter.most_requests is not None and found["requests"] > counter.most_requests
    asked = case.with_keys([f"workload.num_requests={counter.most_requests}"]) if few else case
    of = f"{counter.most_requests:,} requests by " if few else ""
    own = trees[0].instructions(asked, counter) if isinstance(trees[0], Tree) else 0
    for tree in trees[1:]:
        if isinstance(tree, Tree):
            theirs = tree.instructions(asked, counter)
            found[f"instructions of {tree.name}"] = own / theirs
            print(
                f"  {tree.name}: {theirs / 1e6:,.0f} million instructions ({of}{counter.name}); "
                f"kvsim takes {own / theirs:.3f} x as many",
                flush=True,
            )


if __name__ == "__main__":
    main()
