"""What is mistyped on the command line is said in words."""

import pytest

from remix.cli import main


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("run digits --seed x", "argument --seed: must be a whole number, got 'x'"),
        ("run digits --devices 1.5", "argument --devices: must be a whole number, got '1.5'"),
        ("learn m.remix images --lr fast", "argument --lr: must be a number, got 'fast'"),
        ("data check cifar100", "invalid choice: 'check'"),
    ],
)
def test_a_mistyped_value(typed, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(typed.split())
    assert stop.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert "<class" not in errors
