"""Output of `kvsim memory`: tables of the cache, the pool and the sequences that fit."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kvsim.commands.terminal_tables import numbers_table
from kvsim.device.stages import are_alike, kinds_in_words
from kvsim.report.screen import LINES
from kvsim.vllm.versions import known_release

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from kvsim.capacity.fits import SequencesFit
    from kvsim.capacity.memory_answer import MemoryAnswer
    from kvsim.capacity.pool import SizedPool
    from kvsim.layout import KVGroup
    from kvsim.model import Model


_LEAST_ROWS = 2  # of sequences, where notes leave little room


def print_answer(answer: "MemoryAnswer", notes: Sequence[str], *, verbose: bool) -> None:
    """Print the pool in the engine's own log lines, the notes, the uses of memory, and the
    sequences that fit.

    verbose: also print every kind of layer and every sequence length, beyond LINES lines.
    """
    from rich.console import Console

    console = Console()
    with console.capture() as captured:
        _print_pool(answer, console)
        for note in notes:
            console.print(f"note: {note}", highlight=False)
        tables = [_pool(answer)]
        if len(answer.sized.stages) > 1:
            tables.append(_stages(answer))
        if verbose or len(answer.sized.layout.groups) > 1:
            tables.append(_groups(answer.sized.layout.groups))
        for table in tables:
            console.print()
            console.print(table)
    head = captured.get()
    console.file.write(head)
    if answer.fits:
        fits = answer.fits
        if not verbose:
            room = LINES - head.count("\n") - 5  # a blank line, three of the head, the last one
            fits = spread(fits, max(_LEAST_ROWS, room))
        console.print()
        console.print(_sequences(answer, fits))
        if len(fits) < len(answer.fits):
            console.print(f"{len(answer.fits) - len(fits)} more lengths: --verbose prints them")


def spread(rows: "Sequence[SequencesFit]", most: int) -> "list[SequencesFit]":
    """At most `most` evenly spaced rows, always with the last one."""
    every = -(-len(rows) // most)
    return list(rows[::-1][::every])[::-1]


def _print_pool(answer: "MemoryAnswer", console: "Console") -> None:
    model, tp = answer.model, answer.options.tensor_parallel_size
    active = f", {model.num_active_params / 1e9:.3g} active" if _is_sparse(model) else ""
    options = answer.options
    num = tp * options.pipeline_parallel_size * options.data_parallel_size
    gpus = f"{num} x {answer.device.name}, figures of one" if num > 1 else answer.device.name
    if not are_alike(answer.devices):
        words = kinds_in_words([each.name for each in answer.devices])
        gpus = f"{num} GPUs ({words}), figures of one in stage {answer.sized.stage + 1}"
    console.print(f"{model.name}: {model.num_params / 1e9:.3g} B parameters{active}; on {gpus}")
    _print_engine(answer, console)


def _print_engine(answer: "MemoryAnswer", console: "Console") -> None:
    pool, plan = answer.sized.pool, answer.sized.plan
    for line in _not_simulated(answer):
        console.print(line, highlight=False)
    if answer.sized.drafter is not None:
        console.print(answer.sized.drafter.text(), highlight=False)
    groups = "" if len(plan.groups) == 1 else f" in {len(plan.groups)} groups of layers"
    console.print(
        f"vLLM {known_release(pool.engine_version)} would set blocks of "
        f"{pool.engine_block_size:,} tokens"
        f"{groups}, {pool.engine_num_gpu_blocks:,} of them, and say:",
        highlight=False,
    )
    for line in answer.sized.start_up.lines():
        console.print(line, highlight=False)
    if pool.sized_by == "gpu_memory_utilization":
        from kvsim.capacity.held_out import expected_error

        text = expected_error("vllm").text(pool.kv_cache_size_tokens)
        console.print(text, highlight=False, soft_wrap=True)
    if answer.first_start is not None:
        first = answer.first_start.pool
        console.print(
            "That is a start with the compiler's cache (~/.cache/vllm). The first one, and each of "
            f"a container without it: {size_words(first.capacity_bytes)}, "
            f"{first.kv_cache_size_tokens:,} tokens.",
            highlight=False,
        )
    copies = answer.options.data_parallel_size
    if copies > 1:
        console.print(
            f"All {copies} copies together: {copies * pool.kv_cache_size_tokens:,} tokens, "
            f"{copies * pool.max_concurrency:.2f}x",
            highlight=False,
        )


def _not_simulated(answer: "MemoryAnswer") -> Iterator[str]:
    """Notes on layers that attend within chunks."""
    plan = answer.sized.plan
    local = [group for group in plan.groups if group.chunk_tokens is not None]
    if local:
        yield (
            f"{sum(group.layers for group in local)} layers attend within chunks of "
            f"{local[0].chunk_tokens:,} tokens and give back those before the current one, as "
            "counted here and in `kvsim run`."
        )


def _is_sparse(model: "Model") -> bool:
    return model.num_active_params < model.num_params


def _groups(groups: "Sequence[KVGroup]") -> "Table":
    table = numbers_table(
        "layers", "count", "per token", "window", "per sequence", title="KV cache"
    )
    for group in groups:
        window = group.window_tokens
        capped = f"at most {size_words(group.bytes_per_token * window)}" if window else "grows"
        table.add_row(
            group.kind,
            str(group.layers),
            size_words(group.bytes_per_token),
            f"{window:,}" if window else "",
            size_words(group.state_bytes) if group.kind == "recurrent" else capped,
        )
    if len(groups) > 1:
        total = sum(group.bytes_per_token for group in groups)
        table.add_row(
            "all", str(sum(g.layers for g in groups)), size_words(total), "", "", style="bold"
        )
    return table


def _stages(answer: "MemoryAnswer") -> "Table":
    title = "Stages (the fewest blocks decide)"
    table = numbers_table("stage", "GPU", "layers", "weights", "KV pool", "blocks", title=title)
    for number, share in enumerate(answer.sized.stages, 1):
        sizes = size_words(share.weights_bytes), size_words(share.pool_bytes)
        counts = str(share.layers), *sizes, f"{share.num_gpu_blocks:,}"
        table.add_row(str(number), share.device, *counts)
    return table


class MemoryPart(NamedTuple):
    """One use of a GPU's memory, in bytes. is_pool: whether it is a pool that requests share;
    anything else is subtracted before pools are sized.
    """

    words: str
    num_bytes: int
    is_pool: bool = False


def device_parts(pool: "SizedPool") -> list[MemoryPart]:
    """The uses of a GPU's memory, with the KV pool last. If the pool's size is given, only the
    weights and the pool are listed.
    """
    weights = MemoryPart("weights", pool.weights_bytes)
    if pool.sized_by != "gpu_memory_utilization":
        return [weights, MemoryPart(f"KV pool ({pool.sized_by})", pool.capacity_bytes, True)]
    return [
        MemoryPart("left unused", pool.unused_bytes),
        weights,
        MemoryPart("activations (estimate)", pool.activation_bytes),
        MemoryPart("CUDA graphs (estimate)", pool.cuda_graph_bytes),
        MemoryPart("outside torch (estimate)", pool.non_torch_bytes),
        MemoryPart("KV pool", pool.capacity_bytes, True),
    ]


def memory_table(title: str, total_bytes: int | None, parts: Sequence[MemoryPart]) -> "Table":
    """A table of one GPU's memory. total_bytes: the GPU's memory, from which all uses but the pool
    are subtracted; None if the pool's size is given instead of computed.
    """
    table = numbers_table("", "bytes", "", title=title)
    if total_bytes is not None:
        table.add_row("device", f"{total_bytes:,}", size_words(total_bytes))
    for words, size, is_pool in parts:
        sign = "" if is_pool or total_bytes is None else "-"
        style = "bold" if words == parts[-1].words else None
        table.add_row(words, f"{sign}{size:,}", size_words(size), style=style)
    return table


def _pool(answer: "MemoryAnswer") -> "Table":
    pool = answer.sized.pool
    whole = pool.total_bytes if pool.sized_by == "gpu_memory_utilization" else None
    table = memory_table(f"Memory of one {answer.device.name}", whole, device_parts(pool))
    blocks = f"{pool.engine_num_gpu_blocks:,} blocks of {pool.engine_block_size:,}"
    table.add_row("", f"{pool.pool_tokens:,} tokens", blocks)
    return table


def _sequences(answer: "MemoryAnswer", fits: "Sequence[SequencesFit]") -> "Table":
    title = f"Sequences that fit (longest {answer.max_model_len:,} tokens)"
    table = numbers_table("tokens each", "needs", "max-buffer", "doubling", "paged", title=title)
    for fit in fits:
        counts = (f"{count:,}" for count in (fit.max_buffer, fit.doubling, fit.paged))
        table.add_row(f"{fit.tokens:,}", size_words(fit.bytes), *counts)
    return table


def size_words(size: int) -> str:
    """Bytes as people read them: B, KiB, MiB or GiB."""
    scaled, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if scaled < 1024:
            break
        scaled, unit = scaled / 1024, larger
    return f"{scaled:.2f}".rstrip("0").rstrip(".") + f" {unit}"
