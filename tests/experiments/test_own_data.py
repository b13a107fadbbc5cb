"""What is chosen for a folder of one's own images, and what people mistype."""

import pytest
from PIL import Image

from remix.cli import main
from remix.data import DataError, MissingData
from remix.experiments.config import as_preset, build_config, read_preset, resolve
from remix.experiments.own_data import folder_data, is_folder
from remix.experiments.plan import check_run, load_tasks
from remix.support.settings import SettingError
from tests.data.samples import make_folder

NAMES = tuple("abcdefg")


@pytest.fixture
def photos(tmp_path):
    return make_folder(tmp_path / "photos", classes=NAMES[:4], each=6, size=(120, 90))


def test_a_folder_is_a_run_that_can_come_to_its_end(photos):
    config = resolve(f"{photos}/")
    assert (config.data.tasks, config.data.options) == (2, {"size": 64, "channels": 3})
    assert config.network.options["input_shape"] == [3, 64, 64]
    stream = load_tasks(config.data, None)
    assert [len(task.classes) for task in stream] == [2, 2]
    check_run(config, stream)


def test_parts_that_are_there_are_taken(tmp_path):
    for part, each in (("train", 6), ("val", 2)):
        make_folder(tmp_path / "photos" / part, classes=NAMES[:2], each=each)
    found = folder_data(str(tmp_path / "photos"))
    assert (found.train, found.test) == (12, 4)


def test_small_and_grey_images_stay_small_and_grey(tmp_path):
    for name in NAMES[:2]:
        (tmp_path / name).mkdir()
        for number in range(5):
            Image.new("L", (28, 28), number).save(tmp_path / name / f"{number}.png")
    config = resolve(str(tmp_path))
    assert config.data.options == {"size": 32, "channels": 1}
    assert not config.augment.flip
    check_run(config, load_tasks(config.data, None))


def test_fewer_images_have_more_epochs(photos):
    mini = build_config(read_preset("cifar100-mini-improved"))
    own = resolve(str(photos), method="remix")
    assert own.settings.first.epochs == 3 * mini.settings.first.epochs
    assert own.settings.first.milestones == tuple(3 * one for one in mini.settings.first.milestones)
    assert own.settings.inversion == mini.settings.inversion  # that counts in steps


@pytest.mark.parametrize(("classes", "tasks", "sizes"), [
    (7, None, [3, 2, 2]), (7, 2, [4, 3]), (7, 7, [1] * 7), (2, None, [1, 1]), (3, None, [2, 1]), (6, None, [2, 2, 2]),
])  # fmt: skip
def test_tasks_that_do_not_divide_the_classes_make_the_first_one_larger(tmp_path, classes, tasks, sizes):
    photos = make_folder(tmp_path / "photos", classes=NAMES[:classes], each=5)
    config = resolve(str(photos), tasks=tasks)
    assert [len(task.classes) for task in load_tasks(config.data, None)] == sizes
    assert config.data == resolve(str(photos), assignments=[f"data.tasks={len(sizes)}"]).data


@pytest.mark.parametrize(("tasks", "said"), [(0, "4 classes make 1 to 4 tasks, got 0"), (9, "got 9: type --tasks")])
def test_numbers_of_tasks_that_cannot_be_are_refused(photos, tasks, said):
    with pytest.raises(SettingError, match=said):
        resolve(str(photos), tasks=tasks)


def test_what_is_no_folder_of_classes_is_refused_in_a_sentence(tmp_path, photos):
    with pytest.raises(MissingData, match="there is no folder"):
        resolve(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="is a file: give the folder"):
        resolve(str(next((photos / "a").iterdir())))
    one = make_folder(tmp_path / "one", classes=("cat",), each=9)
    with pytest.raises(DataError, match=r"has one class \(cat\)"):
        resolve(str(one))
    few = make_folder(tmp_path / "few", classes=("cat", "dog"), each=4)
    with pytest.raises(DataError, match=r"the class cat of .* has 4 images to learn from, and a run takes at least 5"):
        resolve(str(few))
    (tmp_path / "texts" / "a").mkdir(parents=True)
    (tmp_path / "texts" / "a" / "x.txt").write_text("no image")
    with pytest.raises(DataError, match=r"no file in .* is an image"):
        resolve(str(tmp_path / "texts"))
    with pytest.raises(SettingError, match="or a folder of images"):
        resolve("photoz")


def test_a_preset_goes_before_a_folder_of_its_name(tmp_path, monkeypatch, capsys):
    make_folder(tmp_path / "digits", classes=NAMES[:2], each=5)
    monkeypatch.chdir(tmp_path)
    assert resolve("digits").data.name == "digits"
    assert resolve("./digits").data.name == str(tmp_path / "digits")
    main(["run", "digits", "--dry-run"])
    assert "type ./digits" in capsys.readouterr().out
    assert not is_folder("mine.yaml")


def test_what_was_chosen_is_a_preset_of_every_method(photos):
    config = resolve(str(photos), tasks=4, assignments=["settings.first.epochs=1", "network.options.width=4"])
    values = as_preset(read_preset(str(photos), 4), config)
    assert build_config(values) == config
    assert build_config(values, assignments={"method": "finetune"}).data == config.data
