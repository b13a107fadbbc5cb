"""What the tables that are made of runs say: table1, table2, efficiency, lambda."""

import json
from unittest.mock import Mock

import pytest
from made_targets import make, rows_of
from written_runs import write_run

from remix.experiments import estimate
from remix.experiments.config import resolve
from remix.methods import list_methods, method_class
from remix.reproduce import efficiency, given_rows, sensitivity, table1, table2
from remix.reproduce.methods_table import _costs
from remix.reproduce.needed_runs import Variant
from remix.reproduce.published import LAST, paper_numbers, published_clip, published_last
from remix.reproduce.targets import Reproduction
from remix.support.text import as_csv

METHODS = ("pmi", "remix")
VALIDATION = "data.validation=0.1"


def change_summary(folder, **values):
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | values))


# --- table 1 ---


def test_table1_has_the_paper_s_numbers_beside_and_keeps_settings_apart(tmp_path, monkeypatch, preset):
    ours = ("settings.setting=ours",)
    named = [Variant(preset, method, ours, f"{method}-ours") for method in ("pmi", "remix")]
    code = Variant(preset, "remix", ("settings.setting=code",), "remix-code")
    monkeypatch.setattr(table1, "variants", lambda scale: [Variant(preset, "finetune"), code, *named])
    monkeypatch.setattr(table1, "_COUNTERPART", {"small": "cifar100-10"})
    write_run(tmp_path / "runs" / "f", "finetune", right=30)
    write_run(tmp_path / "runs" / "r", "remix", right=70, assignments=code.settings)
    write_run(tmp_path / "runs" / "i", "remix", right=80, assignments=ours)
    write_run(tmp_path / "runs" / "p", "pmi", right=75, assignments=ours)
    _, text = make("table1", tmp_path / "t", seeds="0", finished=True)
    assert "| the paper's last accuracy (cifar100-10) |" in text
    theirs = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in text.split("\n") if " 512 |" in line}
    assert theirs == {"finetune": "", "remix-code": "45.38 ± 0.13", "pmi-ours": "", "remix-ours": ""}
    assert "remix-ours minus finetune: +50.00" in text
    assert "remix-ours minus remix-code: +10.00" in text
    assert "remix-ours minus pmi-ours: +5.00" in text
    assert "pmi-code" not in text.partition("## The paper's table")[0]  # that has no runs
    columns = rows_of(tmp_path / "t" / "table1.csv")[-1]
    assert (columns["preset"], columns["data"], columns["tasks"]) == ("small", "digits", "3")
    assert columns["method"] == "remix-ours"
    assert "processor_minutes" in columns


def test_table1_has_a_row_for_every_method_and_setting():
    mini = {(variant.benchmark, variant.name) for variant in table1.variants("mini")}
    assert {("tiny-mini", "remix-paper"), ("cifar100-mini", "pmi-code"), ("digits", "remix-ours")} <= mini
    assert ("tiny-mini", "remix-code") not in mini
    paper = {variant.name for variant in table1.variants("paper")}
    assert {"pmi-paper", "remix-paper", "remix-code", "pmi without selection", "rdfcil"} <= paper
    assert "remix-ours" not in paper


def test_the_paper_s_table_is_shown_whole_and_named_for_what_it_is(tmp_path, monkeypatch, preset):
    monkeypatch.setattr(table1, "variants", lambda scale: [Variant(preset, "finetune")])
    write_run(tmp_path / "runs" / "f", "finetune")
    _, text = make("table1", tmp_path / "t", seeds="0")
    assert "Theirs, not ours: last accuracy" in text
    assert "table1.png, table1_cost.png" in text
    assert (tmp_path / "t" / "table1_cost.png").stat().st_size > 1000
    for row in ("ssre", "praka", "dcmi", "pmi without selection"):
        assert f"\n| {row} | " in text
    assert "| deepinversion | 20.48 ± 1.11 | 11.26 ± 0.46 | 5.63 ± 0.10 |  |  |  |" in text


def test_published_numbers_have_a_deviation_each():
    numbers = paper_numbers()
    assert set(published_last()) == set(numbers["presets of table 1"])
    assert published_last()["tiny-20"][LAST]["remix"].mean == 27.11
    for name, values in numbers["table 1"].items():
        if name != "columns":
            found = numbers["standard deviation in table 1"][name]
            assert [value is None for value in values] == [value is None for value in found]


def test_pmi_without_selection_is_a_row_of_its_own_at_both_scales():
    for scale, benchmarks in (("mini", 2), ("paper", 6)):
        found = [variant for variant in table1.variants(scale) if variant.name == "pmi without selection"]
        assert len(found) == benchmarks
        for variant in found:
            assert not resolve(variant.preset, method=variant.method, assignments=variant.settings).settings.selection
    kinds = {name: method_class(name) for name in list_methods()}
    methods = [name for name, kind in kinds.items() if not kind.exact and not kind.transformers]  # table 1 has none
    assert len(table1.variants("paper")) == 6 * (len(methods) + 3)  # pmi and remix in two settings each
    mini = [variant for variant in table1.variants("mini") if variant.name == "pmi without selection"]
    at_mini = {variant.benchmark: variant.seeds for variant in mini}
    assert at_mini == {"digits": "", "cifar100-mini": "0"}


# --- table 2 ---


def test_table2_has_the_paper_s_thirteen_rows_and_says_which_average_they_are(tmp_path, monkeypatch, preset):
    words = ("settings.inversion.prior.weight=0.25",)
    monkeypatch.setattr(table2, "variants", lambda scale: [Variant(preset, "remix", words, "remix + moe-adapter")])
    monkeypatch.setattr(table2, "_COUNTERPART", {"small": "cub200-clip-10"})
    write_run(tmp_path / "runs" / "r", "remix", right=70, assignments=words)
    _, text = make("table2", tmp_path / "t", seeds="0", finished=True)
    assert "the paper's average incremental accuracy (cub200-clip-10)" in text
    (ours,) = [line for line in text.split("\n") if line.startswith("| remix + moe-adapter | 0 |")]
    assert ours.endswith("| 78.96 | 67.69 |")
    theirs = text.partition("## The paper's table")[2]
    assert len([line for line in theirs.split("\n") if line.startswith("| ") and "." in line]) == 13
    assert "| icarl | 82.20 | 64.15 | 82.39 | 75.11 |" in theirs
    assert "over all test images so far, of one run. Ours are over tasks" in text
    row = rows_of(tmp_path / "t" / "table2.csv")[0]
    assert (row["preset"], row["method"], row["seed"]) == ("small", "remix + moe-adapter", "0")
    again = str(tmp_path / "t" / "table2.csv")
    _, text = make("table2", tmp_path / "u", runs=str(tmp_path / "none"), rows=again, seeds="0")
    assert "1 of 1 runs are rows" in text


def test_every_row_of_table2_that_can_be_built_has_runs_and_anchors():
    built = set(published_clip()["cub200-clip-10"][LAST]) - {"icarl", "memo", "proof", "clap4clip"}
    anchors = {"finetune", "ncm", "lda", "ranpac", "joint"}
    paper = {(one.benchmark, one.name, one.seeds) for one in table2.variants("paper")}
    presets = paper_numbers()["presets of table 2"]
    assert paper == {(preset, name, "1993") for preset in presets for name in built | anchors}
    mini = {(one.benchmark, one.name): one.seeds for one in table2.variants("mini")}
    assert {name for benchmark, name in mini if benchmark == "cub-vit-mini"} == built | anchors
    assert mini["cub-vit-mini", "remix + moe-adapter"] == mini["cifar100-vit-mini", "finetune"] == ""  # three seeds
    assert mini["cub-vit-mini", "pmi + vpt"] == mini["cub-vit-mini", "joint"] == "0"
    for one in table2.variants("mini"):
        config = resolve(one.preset, method=one.method, assignments=one.settings)
        if one.name in ("pmi + vpt", "pmi + coda-p"):
            assert config.network.options["adapter"] == {"vpt": "deep-prompts", "coda-p": "coda"}[one.name[6:]]


# --- efficiency ---


@pytest.fixture
def timed(tmp_path, monkeypatch, preset):
    """Runs of PMI and REMIX with 3 tasks, two seeds, and with 9 tasks, one seed of REMIX only."""
    monkeypatch.setattr(efficiency, "_MINI_PRESET", preset)
    for seed in (0, 1):
        for method in ("pmi", "remix"):
            folder = write_run(tmp_path / "runs" / f"{method}{seed}", method, seed)
            change_summary(folder, processor_minutes={"pmi": 10.0, "remix": 11.0}[method] * (seed + 1))
            lines = (folder / "metrics.jsonl").read_text()
            lines = lines.replace('"seconds": 240.0', '"seconds": 240.0, "processor": 90')
            (folder / "metrics.jsonl").write_text(lines)
    return tmp_path


def test_efficiency_compares_seed_by_seed_and_says_how_accurate(timed):
    _, text = make("efficiency", timed / "efficiency", seeds="0-1", finished=True)
    assert "paired seeds 0, 1: minutes 1.00 ± 0.00, processor minutes 1.10 ± 0.00" in text
    assert "| processor minutes: dream | 4.5 ± 0.0 | 4.5 ± 0.0 |" in text
    assert "## small, 3 tasks" in text
    assert "| last accuracy, % | 77.00 ± 0.00 | 77.00 ± 0.00 |" in text
    assert "these accuracies are those of 5 tasks" in text
    assert "GPU" not in text
    assert float(rows_of(timed / "efficiency" / "efficiency.csv")[0]["processor minutes: dream"]) == 4.5


def test_memory_of_the_gpu_has_a_line_where_there_is_one(timed):
    for method, gpu in (("pmi", 4000), ("remix", 5000)):
        change_summary(timed / "runs" / f"{method}0", peak_gpu_mib=gpu)
    _, text = make("efficiency", timed / "efficiency", seeds="0-1", finished=True)
    assert "| peak MiB of the GPU | 4,000.0 | 5,000.0 |" in text
    assert [row["peak_gpu_mib"] for row in rows_of(timed / "efficiency" / "efficiency.csv")] == ["4000", "", "5000", ""]


def test_efficiency_has_five_and_ten_tasks_and_twenty_at_the_paper_s_scale(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    _, text = make("efficiency", tmp_path / "mini", dry_run=True)
    assert "cifar100-mini, 10 tasks, a quarter of the images" in text
    assert "8 runs to do" in text  # three seeds of five tasks, one of ten
    _, text = make("efficiency", tmp_path / "paper", dry_run=True, scale="paper", seeds="1")
    assert "cifar100-20" in text
    assert "6 runs to do" in text


def test_efficiency_of_adapters_has_the_paper_s_numbers_of_clip(tmp_path, monkeypatch):
    clip = ("settings.setting=clip",)
    monkeypatch.setattr(efficiency, "_variants", lambda wanted: [Variant("digits", one, clip) for one in METHODS])
    rows = tmp_path / "rows.csv"
    costs = dict.fromkeys(given_rows.RUN_COLUMNS, 1)
    rows.write_text(as_csv([{"preset": "digits", "method": one, "seed": 0, **costs} for one in METHODS]))
    _, text = make("efficiency", tmp_path / "efficiency", seeds="0", rows=str(rows), finished=True)
    assert "PMI 88.35 % average incremental accuracy, 213 minutes, 7.39 GB" in text
    assert "CIFAR-100, average, in its table 2" in text
    assert "ResNet" not in text


# --- lambda ---


@pytest.fixture
def searched(tmp_path, monkeypatch, preset):
    """Runs on validation images: none 60, 0.5 is best with 80; on test images none 61, 0.5 70."""
    monkeypatch.setattr(sensitivity, "_PRESET", {"mini": preset})
    numbers = paper_numbers()
    numbers["lambda"]["grid, ResNet-32"] = [0.1, 0.5]
    monkeypatch.setattr(sensitivity, "paper_numbers", lambda: numbers)
    weight = "settings.inversion.prior.weight="
    for seed in (0, 1):
        runs = tmp_path / "runs"
        write_run(runs / f"none{seed}", "pmi", seed, right=60, assignments=[VALIDATION])
        write_run(runs / f"a{seed}", "remix", seed, right=70, assignments=[f"{weight}0.1", VALIDATION])
        write_run(runs / f"b{seed}", "remix", seed, right=80, assignments=[f"{weight}0.5", VALIDATION])
        write_run(runs / f"test{seed}", "pmi", seed, right=61 + seed)
        write_run(runs / f"best{seed}", "remix", seed, right=70 + seed, assignments=[f"{weight}0.5"])
    return tmp_path


def test_the_weight_is_chosen_on_validation_images_and_tested_once(searched):
    complete, text = make("lambda", searched / "lambda", seeds="0,1")
    assert complete
    assert "chosen on validation images: weight 0.5" in text
    assert "means of last accuracy differ by 20.00 points between weights" in text
    assert "On test images, weight 0.5 minus no Laplace term: +9.00 points" in text
    rows = rows_of(searched / "lambda" / "lambda.csv")
    assert [row["weight"] for row in rows if row["tested_on"] == "test"] == ["0.0", "0.0", "0.5", "0.5"]
    assert {row["tested_on"] for row in rows} == {"test", "10% of the training images"}


def test_nothing_is_chosen_from_a_part_of_the_weights(searched):
    (searched / "runs" / "b1" / "summary.json").unlink()
    complete, text = make("lambda", searched / "lambda", seeds="0,1", finished=True)
    assert not complete
    assert "none is chosen" in text
    assert {row["tested_on"] for row in rows_of(searched / "lambda" / "lambda.csv")} == {"10% of the training images"}


def test_the_weight_of_a_preset_of_one_s_own_is_searched_for_with_one_seed(tmp_path, preset):
    _, text = make("lambda", tmp_path / "out", preset=preset, dry_run=True)
    assert "7 runs to do" in text
    assert "small" in text


def test_adapters_have_the_grid_of_clip_and_three_of_it_at_the_scale_mini(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "seconds_per_image", lambda config: 1e-3)
    _, text = make("lambda", tmp_path / "a", preset="cub-vit-mini", dry_run=True)
    assert [weight for weight in ("0 ", "0.0001", "0.005", "0.01", "0.05") if f"weight {weight}" in text] == [
        "0 ", "0.0001", "0.01", "0.05",
    ]  # fmt: skip
    _, text = make("lambda", tmp_path / "b", preset="cub200-clip-10", scale="paper", seeds="1993", dry_run=True)
    assert "8 runs to do" in text
    assert "weight 0.005 " in text
    assert sensitivity._theirs("cub200-clip-10") == " The paper's choice: 0.01."
    half = ("data.images=16", "data.validation=0.5")  # a tenth of eight images would be none
    assert sensitivity._held_out(Reproduction(tmp_path, preset="cub-vit-mini")) == half
    assert sensitivity._held_out(Reproduction(tmp_path, preset="digits")) == ("data.validation=0.1",)


def test_the_figure_of_costs_is_drawn_of_rows_without_times():
    run = {"metrics": {"last_accuracy_macro": 50.0}, "processor_minutes": 0}
    assert not _costs({"digits": Mock(summaries={"lda": {0: run}})}).axes[0].lines
