"""What methods cost, in the report."""

from written_runs import write_run

from remix.report.costs import phase_costs
from remix.report.groups import group_runs
from remix.report.reading import read_runs


def test_an_unfinished_run_is_not_part_of_the_means(tmp_path):
    write_run(tmp_path / "whole", "finetune", 0)
    ((before,), _) = group_runs(read_runs([tmp_path])[0])
    write_run(tmp_path / "half", "finetune", 1, learned=1)
    ((after,), _) = group_runs(read_runs([tmp_path])[0])
    assert [row.times for row in phase_costs(after).rows] == [row.times for row in phase_costs(before).rows]
