"""The stages of a session. A stage that needs more than torch and numpy says so, and imports it
only when it runs.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

from evidence.session.compare import compare_stores
from evidence.session.files import read_plans, read_samples, write_lines, write_samples
from evidence.session.plan import SessionPlan, Subject
from evidence.session.stage import Session, SessionStage
from kvsim.backend.devices import device_of
from kvsim.backend.measure.grid import StepPlan, grid
from kvsim.backend.measure.measure import measure
from kvsim.backend.measure.setup import Setup
from kvsim.backend.measure.timing import clock_of
from kvsim.backend.stores.pooled import StoreName
from kvsim.plumbing.writing import write_text

if TYPE_CHECKING:
    from kvsim.observed.steps import ObservedStep
    from kvsim.scenario import Scenario

# What the simulator needs beside torch and numpy.
SIMULATOR = ("pydantic", "simpy", "scipy", "pandas", "pyarrow", "typer", "rich")
BY_TORCH = "doubling by torch"  # each buffer a tensor out of torch's own allocator
LABELS: dict[str, StoreName] = {
    "paged": "paged",
    "doubling": "contiguous",
    "max-buffer": "contiguous",
    BY_TORCH: "contiguous",
}
LEAST_TORCH_BYTES = 8 << 20  # four of its small segments
HELD_OUT = "held-out.jsonl"


def stages(plan: SessionPlan) -> list[SessionStage]:
    """All stages, the most important first."""
    return _full(plan) if plan.calibrates else _short(plan)


def _short(plan: SessionPlan) -> list[SessionStage]:
    """The stages of the short plan by importance, each within its minutes; fitting is left to
    `home`.
    """
    (subject,) = plan.subjects
    found = [
        SessionStage("plan", 0.2, _plan, SIMULATOR, most_minutes=0.5),
        SessionStage("prove", 1.5, _prove, SIMULATOR, most_minutes=2),
        SessionStage("kernels", 1, _kernels, SIMULATOR, most_minutes=1.5),
        _observation("paged", 2),
        SessionStage(
            f"measure {subject.name} paged",
            3,
            partial(_measure, subject, "paged"),
            most_minutes=4,
        ),
        _observation(BY_TORCH, 1.5),
        SessionStage("compare", 0.7, _compare, most_minutes=1),
        _observation("max-buffer", 1.5),
        _observation("doubling", 1.5),
    ]
    return [
        stage._replace(most_minutes=plan.patience * (stage.most_minutes or 1)) for stage in found
    ]


def _observation(label: str, most: float | None = None) -> SessionStage:
    return SessionStage(
        f"observe {label}", 2 if most is None else 1.2, partial(_observe, label), SIMULATOR,
        most_minutes=most,
    )  # fmt: skip


def _full(plan: SessionPlan) -> list[SessionStage]:
    first = plan.subjects[0]
    fits = {store: f"calibrate {first.name} {store}" for store in first.stores}
    return [
        SessionStage("prove", 2, _prove, SIMULATOR),
        SessionStage("plan", 0.5, _plan, SIMULATOR),
        *(
            stage
            for subject in plan.subjects
            for store in subject.stores
            for stage in (
                SessionStage(
                    f"measure {subject.name} {store}", 6, partial(_measure, subject, store)
                ),
                SessionStage(
                    f"calibrate {subject.name} {store}",
                    2,
                    partial(_calibrate, subject, store),
                    SIMULATOR,
                    ("plan", f"measure {subject.name} {store}"),
                ),
            )
        ),
        SessionStage("compare", 1, _compare),
        *map(_observation, LABELS),
        *(
            SessionStage(
                f"validate {label}",
                0.5,
                partial(_validate, label),
                (*SIMULATOR, "plotly"),
                (f"observe {label}", fits[store]),
            )
            for label, store in LABELS.items()
        ),
    ]


def _prove(session: Session) -> dict[str, Any]:
    from evidence.cache.checks import validate_cache
    from evidence.cache.command import as_object

    report = validate_cache(session.plan.seed, session.plan.schedules, session.plan.device)
    session.write("prove.json", as_object(report))
    if not report.ok:
        raise RuntimeError("some checks do not hold: prove.json")
    return {"checks": sum(len(part) for part in report[1:])}


def _plan(session: Session) -> dict[str, Any]:
    """Write the steps of a simulated run, on which fits are tested. A machine without kvsim's
    simulator reads them from a file written elsewhere.
    """
    from kvsim.backend.calibrate.calibrate import HELD_OUT as COUNT
    from kvsim.backend.calibrate.calibrate import trace_steps

    plans = trace_steps(session.plan.limits, COUNT, session.plan.seed)
    write_lines(session.out / HELD_OUT, (plan._asdict() for plan in plans))
    return {"steps": len(plans)}


def _plans(session: Session) -> list[StepPlan]:
    path = session.out / HELD_OUT
    return grid(session.plan.limits) + (read_plans(path) if path.exists() else [])


def _measure(subject: Subject, store: StoreName, session: Session) -> dict[str, Any]:
    plan, name = session.plan, f"{subject.name}-{store}"
    subject.write(session.out)  # what is fitted elsewhere is fitted by it
    setup = Setup(
        subject.shape(),
        plan.device,
        block_size=plan.block_size,
        graphs=plan.captures,
        rounds=plan.rounds,
        seed=plan.seed,
        store=store,
        attention=plan.attention,
    )
    samples = session.out / f"{name}.samples.jsonl"
    measured = measure(
        setup,
        _plans(session),
        session.out / f"{name}.log.jsonl",
        lambda done, total: session.check_time(),
        partial(write_samples, samples),  # a later round may not come to its end
    )
    write_samples(samples, measured)
    method = measured.facts["method"]
    return {
        "samples": len(measured.rows),
        "rounds": method["rounds"],
        "dropped": len(method["dropped"]),
        "refused": measured.facts["refused"],
        "warnings": method["warnings"],
    }


def _calibrate(subject: Subject, store: StoreName, session: Session) -> dict[str, Any]:
    from kvsim.backend.calibrate.calibrate import SERVED_BATCHES, fitted
    from kvsim.backend.calibrate.served import Chats, serve_chats
    from kvsim.backend.simulated.models import find_model
    from kvsim.step_time.calibrated.file import write_calibration

    name, plan = f"{subject.name}-{store}", session.plan
    model = find_model(str(subject.write(session.out)), subject.shape().dtype)
    measured_samples = read_samples(session.out / f"{name}.samples.jsonl")
    chats = Chats(plan.limits, plan.seed, SERVED_BATCHES * plan.limits.batches[-1])
    facts = measured_samples.facts
    served = serve_chats(model, plan.device, store, chats, facts, plan.attention, plan.captures)
    made = fitted(model.build(), measured_samples, plan.seed, served)
    write_calibration(session.out / f"{name}.json", made.file)
    measured = made.file.measured
    assert measured is not None
    return {
        "held_out_mape": {kind: errors.mape for kind, errors in made.held_out.items()},
        "served": measured.method["served"],
    }


def _compare(session: Session) -> dict[str, Any]:
    plan = session.plan
    shape = plan.subjects[0].shape()
    clock = clock_of(plan.device, 0.05)
    found = compare_stores(shape, plan.device, clock, plan.block_size)
    session.write("compare.json", found)
    return {name: len(rows) for name, rows in found.items()}


def _kernels(session: Session) -> dict[str, Any]:
    from evidence.session.kernel_tables import KernelTime, drawn_cases, kernel_times, verdict
    from kvsim.backend.measure.host import device_facts
    from kvsim.device import named_device
    from kvsim.plumbing.shipped import shipped_folder
    from kvsim.step_time.kernels.tables import KernelTables

    plan = session.plan
    name = plan.tables or named_device(str(device_facts(plan.device)["name"])).name
    tables = KernelTables(shipped_folder("calibration") / "kernels" / f"{name}-vllm.npz", None)
    most_bytes = max(0, device_of(plan.device).free_bytes() - device_of(plan.device).spare_bytes)
    cases = drawn_cases(tables, plan.kernel_shapes, plan.seed, most_bytes // 4, plan.kernel_flop)
    attention = plan.attention or device_of(plan.device).attention
    times, lines = [], [",".join(KernelTime._fields)]
    for time in kernel_times(cases, plan.device, clock_of(plan.device, 0.05), attention):
        times.append(time)
        lines.append(",".join(map(str, time)))
        write_text(session.out / "kernels.csv", "\n".join(lines) + "\n")
        device_of(plan.device).release_unused()
        session.check_time()
    found = {"tables": name, "kinds": verdict(times)}
    session.write("kernels.json", found)
    return found


def _scenario(session: Session, label: str) -> "Scenario":
    """A scenario of chats that need more memory than the pool has, under three allocators."""
    from kvsim.scenario import Scenario

    plan = session.plan
    table = Scenario.load("chat").model_dump(mode="json", exclude_none=True)
    config = plan.subjects[0].write(session.out)
    least = LEAST_TORCH_BYTES // plan.subjects[0].shape().kv_bytes_per_token
    pool_tokens = max(plan.pool_tokens, least if label == BY_TORCH else 0)
    doubling = {"kind": "doubling", "initial_tokens": plan.max_model_len // 16}
    table |= {
        "seed": plan.seed,
        "model": {
            "hf_config": config.name,
            "dtype": plan.subjects[0].shape().dtype,
            "max_model_len": plan.max_model_len,
        },
        "device": _device_table(plan.device),
        "memory": {"kv_cache_tokens": pool_tokens},
        "allocator": [
            doubling | {"label": BY_TORCH, "placement": "torch-caching"}
            if label == BY_TORCH
            else doubling,
            {"kind": "max-buffer"},
            {"kind": "paged", "block_size": plan.block_size},
        ],
        "scheduler": {
            "kind": "continuous",
            "max_num_seqs": plan.limits.batches[-1],
            "max_num_batched_tokens": plan.limits.step_tokens // 4,
        },
        "step_time": {"kind": "roofline"},
    }
    table["workload"] |= {
        "num_requests": plan.requests,
        "arrivals": {"kind": "poisson", "rate_per_s": plan.rate_per_s},
    }
    return Scenario.from_table(table, session.out)


def _device_table(device: str) -> dict[str, Any]:
    """The [device] table: from the catalogue, or with placeholder figures that no result depends
    on.
    """
    from kvsim.backend.measure.host import device_facts
    from kvsim.device import named_device
    from kvsim.plumbing.errors import InputError

    name = str(device_facts(device)["name"])
    try:
        named_device(name)
    except InputError:
        memory_gib = max(1, device_of(device).free_bytes() >> 30)
        return {
            "name": name,
            "memory_gib": memory_gib,
            "bandwidth_gb_per_s": 1000.0,
            "fp16_tflops": 100.0,
        }
    return {"name": name}


def _observe(label: str, session: Session) -> dict[str, Any]:
    from kvsim.backend.serve.run import observe
    from kvsim.observed.writing import write_observation

    plan = session.plan
    observed = observe(
        _scenario(session, label),
        plan.device,
        allocator=label,
        clock="wall" if plan.device.startswith("cuda") else "cpu",
        # The stand-in for the kernels knows addresses in one pool alone.
        attention=None if label == BY_TORCH else plan.attention,
        graphs=plan.captures,
        progress=lambda left, total: session.check_time(),
    )
    write_observation(session.out / _folder(label), *observed)
    observation, meta = observed
    return {
        "steps": len(observation.steps),
        "makespan_s": observation.steps[-1].end_s,
        "graphs": meta.graphs,
    } | (_bytes_equal(observation.steps) if label == BY_TORCH else {})


def _bytes_equal(steps: "list[ObservedStep]") -> dict[str, Any]:
    """Number of steps in which torch's allocator allocated exactly the simulated bytes."""
    equal = sum(step.store_allocated_bytes == step.allocated_bytes for step in steps)
    return {"bytes_as_simulated": f"{equal} of {len(steps)} steps"}


def _folder(label: str) -> str:
    return "run-" + label.replace(" ", "-")


def _validate(label: str, session: Session) -> dict[str, Any]:
    from kvsim.step_time.calibrated.file import read_calibration
    from kvsim.validate.run.comparison import compare_run
    from kvsim.validate.run.page import make_page

    name = f"{session.plan.subjects[0].name}-{LABELS[label]}"
    comparison = compare_run(
        session.out / _folder(label), read_calibration(session.out / f"{name}.json")
    )
    summary = comparison.summary()
    session.write(f"validate-{_folder(label)}.json", summary)
    write_text(session.out / f"validate-{_folder(label)}.html", make_page([comparison]))
    again = summary["lock_step"]
    return {
        "steps_decided_as_recorded": f"{again['equal']} of {again['steps']}",
        "errors": {
            figure: error["mean"] if isinstance(error, dict) else error
            for figure, error in summary["errors"].items()
        },
    }
