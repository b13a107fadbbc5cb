"""`remix reproduce`: targets and their options."""

from pathlib import Path

import pytest

from remix.cli import main
from remix.experiments import estimate
from remix.reproduce import PAPER, TARGETS
from tests.accepted_commands import check_accepted


def refused(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *words])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_without_a_target_all_are_listed(capsys):
    main(["reproduce"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in TARGETS)


def test_without_a_target_every_table_and_figure_of_the_paper_is_listed_with_what_makes_it(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    main(["reproduce"])
    lines = capsys.readouterr().out.splitlines()
    names = [f"table {k}" for k in range(1, 8)] + [f"figure {k}" for k in range(1, 11)] + ["text"]
    assert sorted(part.name for part in PAPER) == sorted(names)
    for part in PAPER:
        line = next(line for line in lines if line.startswith(f"{part.name} "))
        assert part.shows in line
        assert part.command in line
        assert part.needs in line
        assert ("a GPU" in line) == part.gpu
        assert bool(part.command) != part.needs.startswith("not made: ")


@pytest.mark.parametrize("command", sorted({part.command for part in PAPER if part.command}))
def test_what_the_list_says_to_type_is_understood(command):
    check_accepted(["remix", "reproduce", *command.split()], Path(__file__).parents[2])


def test_the_commands_of_the_list_are_all_targets():
    assert {part.command.split()[0] for part in PAPER if part.command} == set(TARGETS)


def test_retention_of_another_preset_plans_its_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    main(["reproduce", "retention", "--preset", "tiny-mini", "--dry-run"])
    shown = capsys.readouterr().out
    assert "tiny-mini" in shown
    assert "cifar100" not in shown
    assert "12 runs to do in reproduce/runs/" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["likelyhood"], "did you mean 'likelihood'"),
        (["likelihood"], "needs --data"),
        (["likelihood", "--data", "x"], "--weights"),
        (["likelihood", "--data", "x", "--weights", "y", "--vit-images", "z"], "--vit-images goes with --vit"),
        (["likelihood", "--data", "x", "--weights", "y"], "must have train/ and val/"),
        (["memory", "--data", "x"], "does not look at --data"),
        (["memory", "--scale", "huge"], "mini or paper"),
        (["memory", "--memory", "0"], "--memory must be positive"),
        (["table1", "--jobs", "0"], "--jobs must be at least 1"),
        (["table1", "--seeds", "0,0"], "given twice"),
        (["table1", "--seeds", "x"], "0-4 or 0,2,7"),
        (["table1", "--finished", "--dry-run"], "give one of them"),
        (["table1", "--weights", "x"], "does not look at --weights"),
        (["memory", "--seeds", "0-1"], "does not look at --seeds"),
        (["samples", "--data", "x"], "needs --weights"),
        (["samples", "--data", "x", "--weights", "y"], "with photographs of church"),
        (["samples", "--data", "x", "--weights", "y", "--classes", "a,b,a"], "--classes has a twice"),
        (["samples", "--data", "x", "--weights", "y", "--classes", "../a"], "--classes takes names of folders"),
        (["samples", "--data", "x", "--weights", "y", "--form", "frobenius"], "one of nll, typical, kl"),
        (["likelihood", "--data", "x", "--weights", "y", "--classes", "a"], "photographs of a; other folders"),
        (["likelihood", "--data", "x", "--vit", "y", "--vit-images", "z", "--classes", "a"], "leave out --vit-images"),
        (["retention", "--preset", "tiny-mini"], "tiny-imagenet"),  # is missing
        (["retention", "--preset", "tiny-min"], "did you mean 'tiny-mini'"),
        (["table1", "--preset", "tiny-mini"], "does not look at --preset"),
        (["table1", "--rows", "gone.csv"], "cannot read gone.csv: No such file"),
        (["memory", "--rows", "x"], "does not look at --rows"),
        (["figures", "--seeds", "1"], "does not look at --seeds"),
        (["convergence", "--rows", "x"], "does not look at --rows"),
        (["convergence", "--seeds", "1"], "give two seeds at least"),
        (["convergence", "--data", "x"], "cifar100"),  # is missing
        (["table1", "--classes", "a"], "does not look at --classes"),
        (["retention"], "cifar100"),  # is missing, before anything runs
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(capsys, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    assert message in refused(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_results_are_not_overwritten(capsys, tmp_path):
    (tmp_path / "old").write_text("kept")
    assert "--resume goes on" in refused(capsys, "memory", "--out", str(tmp_path))
