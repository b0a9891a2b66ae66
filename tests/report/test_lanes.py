"""The figure of replicas' loads: a lane is empty before its replica's start and after its end."""

from collections import Counter

from support import fleets

from kvsim.report.figures.lanes import _BUCKETS, Lanes
from kvsim.simulation import simulate


def test_lanes_figure_has_a_gap_for_a_dead_replica() -> None:
    failure = [{"at_s": 10, "replica": 0, "restart_s": 5}]
    result = simulate({**fleets.TABLE, "fleet": {"replicas": 2, "failure": failure}})
    figure = Lanes().draw(result)
    assert figure is not None
    bars = Counter(figure.data[0].y)
    end_s = max(int(run.memory["end_ps"].iloc[-1]) for run in result.runs) / 1e12
    died, other, restarted = (bars[run.label] / _BUCKETS for run in result.runs)
    assert other == 1
    assert abs(died - 10 / end_s) < 0.02
    assert abs(restarted - (1 - 15 / end_s)) < 0.02
