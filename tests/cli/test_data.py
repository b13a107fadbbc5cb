"""`remix datasets` and `remix data prepare` as typed."""

import pytest
import torch

from remix import cli
from remix.data import ImageDataset, Normalisation, Splits, dataset, list_datasets, registry
from tests.data.samples import make_folder
from tests.data.test_decode import damaged


def test_datasets_are_one_line_each(capsys):
    cli.main(["datasets"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [entry.name for entry in list_datasets()]
    assert max(map(len, lines)) <= 80


def test_datasets_of_which_a_part_is_here_say_so(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "train" / "n01" / "images").mkdir(parents=True)
    (folder / "wnids.txt").write_text("n01\nn02\n")
    (tmp_path / "CUB_200_2011").mkdir()
    (tmp_path / "CUB_200_2011" / "train_test_split.txt").write_text("1 1\n")  # and nothing else of it
    monkeypatch.setenv("REMIX_DATA", str(tmp_path))
    cli.main(["datasets"])
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["tiny-imagenet"].endswith("64 x 64; here 1 of 200")
    assert "here" not in lines["cub200"] + lines["cifar100"]


def test_prepare_shows_counts_and_what_was_left_out(tmp_path, capsys):
    root = make_folder(tmp_path / "photos", each=10)
    damaged("text", root / "cat" / "letter.jpg")
    cli.main(["data", "prepare", str(root)])
    out = capsys.readouterr().out
    assert "2 classes" in out
    assert out.index("dog") < out.index("letter.jpg: not an image")


def test_what_looks_like_markup_is_shown_as_it_is(tmp_path, capsys):
    root = make_folder(tmp_path / "photos", classes=("cat", "[red]dog"), each=10)
    damaged("empty", root / "cat" / "[b]x.jpg")
    cli.main(["data", "prepare", str(root)])
    lines = capsys.readouterr().out.splitlines()
    assert "[red]dog" in "\n".join(lines)
    assert any("cat" in line and " 8 " in line and " 2 " in line for line in lines if "│" in line)
    assert lines[-1].endswith("[b]x.jpg: the file is empty")


def test_many_equal_classes_are_one_line(monkeypatch, capsys):
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))

    @dataset("toy")
    def toy():
        names = tuple(f"c{k}" for k in range(30))
        part = ImageDataset(torch.zeros(30, 1, 2, 2, dtype=torch.uint8), torch.arange(30), names)
        return Splits(part, part, Normalisation((0.5,), (0.5,)), "toy")

    cli.main(["data", "prepare", "toy"])
    text = capsys.readouterr().out
    assert "each of 30" in text
    assert "c17" not in text


def test_prepare_takes_the_data_folder(tmp_path, capsys):
    make_folder(tmp_path / "photos", each=10)
    cli.main(["data", "prepare", "photos", "--data", str(tmp_path)])
    assert "photos" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [(["nix"], "no data set or folder is called 'nix'"), (["cifar10"], "--data DIR"), (["empty"], "one per class")],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", "prepare", *words])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_prepare_can_be_interrupted(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("remix.data.prepare.load", interrupt)
    with pytest.raises(SystemExit) as stop:
        cli.main(["data", "prepare", "digits"])
    assert stop.value.code == 130
    assert "goes on from here" in capsys.readouterr().err
