"""docs/claims.md: what it says comes from the result files, and its verdicts follow from the numbers."""

import ast
import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from benchmarks.claims import seeds
from benchmarks.claims.claim import MINI, NOTHING, PAPER, Verdict
from benchmarks.claims.files import PUBLISHED, Results
from benchmarks.claims.page import CLAIMS, details, page
from remix.experiments import paired

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BY_NAME = {claim.name: claim for claim in CLAIMS}
SOURCES = sorted((ROOT / "benchmarks" / "claims").glob("*.py"))
# Digits that belong to names. Everything else that has a digit must come from a file.
NAMES = re.compile(
    r"(cifar100|cub200)-clip-10|CIFAR-100|ResNet-3[24]|ViT-B/16|CUB-200|table[12]|Table 1|float32|float64|resnet34"
    r"|cifar100(-\d+)?|tiny-\d+|celerite2|--count 500|--seeds 0-2|excludes 0"
)
TABLE_COLUMNS = "preset,data,tasks,method,seed,last_accuracy_macro"
EFFICIENCY_COLUMNS = "preset,data,tasks,method,seed,processor_minutes,peak_memory_mib"
NOISE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.05)


@pytest.fixture
def results(tmp_path):
    """A folder with the paper's numbers and nothing else."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "reproduce").mkdir()
    shutil.copy(DOCS / PUBLISHED, tmp_path / PUBLISHED)
    return Results(tmp_path)


def write(results, name, columns, rows):
    with (results.folder / name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split(","))
        writer.writerows(rows)


def runs(method, mean, count, preset="cifar100-mini", spread=1.0):
    """Lines of table1.csv; seeds differ by more than methods do, as they do in truth."""
    return [
        (preset, "cifar100", 5, method, seed, mean + 2 * seed + spread * NOISE[(seed + len(method)) % len(NOISE)])
        for seed in range(count)
    ]


def verdict(name, results):
    finding = BY_NAME[name].finding(results)
    return finding.verdict, finding.scale


# --- the page ---


def test_the_committed_page_is_what_the_files_say():
    assert (DOCS / "claims.md").read_text() == page(Results(DOCS)), "run python -m benchmarks.claims"
    assert (DOCS / "claims" / "details.md").read_text() == details(Results(DOCS)), "run python -m benchmarks.claims"


def test_every_claim_has_a_section_and_a_line_in_the_overview():
    overview, sections = ((DOCS / name).read_text() for name in ("claims.md", "claims/details.md"))
    assert len(BY_NAME) == len(CLAIMS)
    for claim in CLAIMS:
        assert sections.count(f'<a id="{claim.name}"></a>') == overview.count(f"#{claim.name})") == 1


def hand_typed_numbers(source):
    """Digits in literals that reach the page, names and keys of files excepted; and literal numbers put into text."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            skipped |= {id(part) for part in ast.walk(node.slice)}
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            skipped |= {id(part) for part in ast.walk(node.format_spec)}
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a docstring
            skipped.add(id(node.value))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            found += re.findall(r".{0,20}\d.{0,20}", NAMES.sub("", node.value))
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Constant):
            found.append(str(node.value.value))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_number_is_typed_by_hand(path):
    assert hand_typed_numbers(path.read_text()) == []


@pytest.mark.parametrize("text", ['f"REMIX is {x:.2f} better, PMI 43.9"', '"an overhead of 11 %"', 'f"{11} %"'])
def test_a_number_typed_by_hand_is_noticed(text):
    assert hand_typed_numbers(text.replace("f", "y = f", 1) if text[0] == "f" else f"y = {text}")


def test_without_result_files_nothing_is_shown_but_mathematics_and_arithmetic(results):
    for claim in CLAIMS:
        if claim.files:
            assert verdict(claim.name, results) == (Verdict.NOT_SHOWN, NOTHING), claim.name
    assert "No runs yet" in details(results)


def test_every_claim_depends_on_each_of_its_files(tmp_path):
    needed = {name for claim in CLAIMS for name in claim.files if (DOCS / name).exists()}
    for name in {*needed, PUBLISHED}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DOCS / name, tmp_path / name)
    for claim in CLAIMS:
        for name in {*claim.files} & needed:
            shutil.move(tmp_path / name, tmp_path / "aside")
            assert claim.finding(Results(tmp_path)).scale == NOTHING, (claim.name, name)
            shutil.move(tmp_path / "aside", tmp_path / name)


# --- accuracy ---


def test_one_seed_says_nothing(results):
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, runs("pmi-code", 30, 1) + runs("remix-code", 40, 1))
    finding = BY_NAME["remix-over-pmi"].finding(results)
    assert (finding.verdict, finding.scale) == (Verdict.NOT_SHOWN, MINI)
    assert "+10.1, one seed" in finding.because
    assert "One seed says nothing about chance" in finding.measured[0]


@pytest.mark.parametrize(("count", "gain"), [(6, 1.0), (3, 5.0)])
def test_a_clear_difference_holds_at_mini_scale(results, count, gain):
    write(
        results,
        "reproduce/table1.csv",
        TABLE_COLUMNS,
        runs("pmi-code", 30, count) + runs("remix-code", 30 + gain, count),
    )
    assert verdict("remix-over-pmi", results) == (Verdict.HOLDS_AT_MINI_SCALE, MINI)


def test_three_seeds_need_a_large_difference(results):
    first, second = {0: 1.0, 1: 1.6, 2: 0.4}, {0: 0.0, 1: 0.0, 2: 0.0}
    judgement = seeds.judge(first, second, ("a", "b"))
    assert judgement.sign == 0
    assert "Student's interval" in judgement.sentence
    assert seeds.judge({0: 1.0, 1: 1.1, 2: 0.9}, second, ("a", "b")).sign == 1
    assert seeds.judge({0: 1.0, 1: 1.1}, second, ("a", "b")).sign == 0


def test_adapters_are_judged_by_table2_and_not_by_other_pairs(results):
    rows = [
        line
        for method, mean in (("pmi + moe-adapter", 30), ("remix + moe-adapter", 35), ("moe-adapter", 50), ("lda", 70))
        for line in runs(method, mean, 6, preset="cub-vit-mini")
    ]
    write(results, "reproduce/table2.csv", TABLE_COLUMNS, rows)
    finding = BY_NAME["clip"].finding(results)
    assert (finding.verdict, finding.scale) == (Verdict.HOLDS_AT_MINI_SCALE, MINI)
    assert len(finding.measured) == 4
    assert "which does not decide: REMIX + MoE-Adapter minus LDA on the same network: -35" in finding.measured[2]


def test_the_opposite_is_not_called_shown(results):
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, runs("pmi-code", 40, 6) + runs("remix-code", 30, 6))
    finding = BY_NAME["remix-over-pmi"].finding(results)
    assert finding.verdict is Verdict.NOT_SHOWN
    assert "opposite" in finding.because


def test_improved_methods_are_reported_and_do_not_decide(results):
    rows = runs("pmi-code", 40, 6) + runs("remix-code", 30, 6) + runs("pmi-ours", 50, 6) + runs("remix-ours", 60, 6)
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, rows)
    finding = BY_NAME["remix-over-pmi"].finding(results)
    assert finding.verdict is Verdict.NOT_SHOWN
    for other in ("REMIX (code)", "PMI (ours)"):
        start = f"`cifar100-mini`, which does not decide: REMIX (ours) minus {other}: "
        assert any(sentence.startswith(start) for sentence in finding.measured), finding.measured


def test_noise_on_one_preset_spoils_it(results):
    rows = runs("pmi-code", 30, 6) + runs("remix-code", 35, 6)
    rows += runs("pmi-code", 80, 6, "digits", 9) + runs("remix-code", 80, 6, "digits", 9)
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, rows)
    finding = BY_NAME["remix-over-pmi"].finding(results)
    assert finding.verdict is Verdict.NOT_SHOWN
    assert "`digits`" in finding.because
    assert "`cifar100-mini`" not in finding.because


def test_the_papers_protocol_decides_where_it_was_run(results):
    rows = runs("pmi-code", 30, 6, "cifar100-10") + runs("remix-code", 35, 6, "cifar100-10")
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, rows + runs("pmi-code", 30, 6) + runs("remix-code", 20, 6))
    assert verdict("remix-over-pmi", results) == (Verdict.HOLDS, PAPER)


def test_order_of_methods(results):
    ordered = ["deepinversion", "abd", "rdfcil", "pmi-code", "remix-code", "joint"]
    rows = [row for place, method in enumerate(ordered) for row in runs(method, 10 + 8 * place, 6)]
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, rows)
    assert verdict("order", results) == (Verdict.HOLDS_AT_MINI_SCALE, MINI)
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, rows + runs("abd", 50, 6))  # later lines count
    finding = BY_NAME["order"].finding(results)
    assert finding.verdict is Verdict.NOT_SHOWN
    assert "1 in the opposite order" in finding.because
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, [row for row in rows if row[3] != "abd"])
    assert any("(code): no runs of ABD" in sentence for sentence in BY_NAME["order"].finding(results).measured)


def test_unfinished_lines_are_left_out(results):
    blank = [("cifar100-mini", "cifar100", 5, "remix-code", 9, "")]
    write(results, "reproduce/table1.csv", TABLE_COLUMNS, blank)
    assert "no finished line" in BY_NAME["forgetting"].finding(results).because
    write(results, "reproduce/table1.csv", "preset,method,seed", [("digits", "remix", 0)])
    assert "no column" in BY_NAME["forgetting"].finding(results).because


# --- curves, weights, cost ---


def retention(old_gain, new_gain, count=6):
    return [
        ("cifar100-mini", method, seed, task, 60 + seed + noise + new, "" if task == 1 else 40 + seed + noise + old)
        for method, old, new in (("pmi", 0, 0), ("remix", old_gain, new_gain))
        for seed in range(count)
        for task in (1, 2, 3)
        for noise in [NOISE[(seed + len(method) + task) % len(NOISE)]]
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [(3, 0, Verdict.HOLDS_AT_MINI_SCALE), (3, -3, Verdict.NOT_SHOWN), (0, 0, Verdict.NOT_SHOWN)],
)
def test_retention_needs_a_gain_on_old_tasks_and_no_loss_on_new_ones(results, old, new, expected):
    columns = "preset,method,seed,after_task,new_task_accuracy,old_task_accuracy"
    write(results, "reproduce/retention.csv", columns, retention(old, new))
    assert verdict("retention", results) == (expected, MINI)
    assert "No runs yet" in BY_NAME["first-task"].finding(results).because


def test_first_task_of_the_papers_protocol(results):
    columns = "preset,method,seed,after_task,new_task_accuracy,old_task_accuracy"
    write(
        results, "reproduce/retention.csv", columns, [("cifar100-10", "remix", s, 1, 92.1 + s / 10, "") for s in (0, 1)]
    )
    assert verdict("first-task", results) == (Verdict.HOLDS, PAPER)


@pytest.mark.parametrize(
    ("average", "last", "expected"),
    [
        ((0.0, 0.2), (0, 5), Verdict.HOLDS_AT_MINI_SCALE),
        ((0.0, 2.0), (0, 5), Verdict.NOT_SHOWN),
        ((0.0, 0.2), (0, 0), Verdict.NOT_SHOWN),
    ],
)
def test_weight_of_the_laplace_term(results, average, last, expected):
    columns = "preset,weight,seed,last_accuracy_macro,average_incremental_accuracy_macro,forgetting"
    rows = [
        ("digits", weight, seed, 80 + seed + high + NOISE[(seed + place) % 6], 90 + mean, 5)
        for place, (weight, mean, high) in enumerate(zip(("0", "0.1", "1"), (9, *average), (0, *last), strict=True))
        for seed in range(6)
    ]
    write(results, "reproduce/lambda.csv", columns, rows)
    assert verdict("lambda", results) == (expected, MINI)
    assert "minus no Laplace term" in BY_NAME["lambda"].finding(results).measured[-1]


@pytest.mark.parametrize(("factor", "expected"), [(1.1, Verdict.HOLDS_AT_MINI_SCALE), (1.6, Verdict.NOT_SHOWN)])
def test_overhead_is_judged_by_paired_minutes(results, factor, expected):
    rows = [
        ("digits", "digits", 5, method, seed, (10 + seed) * (factor if method == "remix" else 1), 3000)
        for method in ("pmi", "remix")
        for seed in range(3)
    ]
    write(results, "reproduce/efficiency.csv", EFFICIENCY_COLUMNS, rows)
    assert verdict("overhead", results) == (expected, MINI)
    write(results, "reproduce/efficiency.csv", EFFICIENCY_COLUMNS, [row for row in rows if row[4] == 0])
    assert verdict("overhead", results) == (Verdict.NOT_SHOWN, MINI)


# --- other results, and the paper's own numbers ---


def test_likelihood_below_the_diagonal_is_seen(results):
    curves = [
        {"model": "diagonal", "steps": [0], "train": [-10.0], "held_out": [-12.0]},
        {"model": "Laplace", "steps": [0], "train": [-8.0], "held_out": [-13.0]},
    ]
    layers = {"layer1": {"dim": 4, "train": 3, "held_out": 2, "curves": curves}}
    (results.folder / "reproduce/likelihood.json").write_text(json.dumps({"scale": "paper", "layers": layers}))
    assert verdict("likelihood-maps", results) == (Verdict.NOT_SHOWN, PAPER)
    assert "no published recipe" in BY_NAME["likelihood-recipe"].finding(results).because
    curves[1]["held_out"] = [-11.0]
    (results.folder / "reproduce/likelihood.json").write_text(json.dumps({"scale": "paper", "layers": layers}))
    assert verdict("likelihood-maps", Results(results.folder)) == (Verdict.HOLDS, PAPER)


def test_the_papers_own_numbers(results):
    finding = BY_NAME["metric-label"].finding(results)
    assert finding.verdict is Verdict.WRONG_AS_STATED
    assert "45.34" in finding.measured[0]
    assert "60.32" in finding.measured[0]
    wrong = ("efficiency-label", "gains-grow", "no-tuning", "clip-consistent", "tridiagonal")
    assert {verdict(name, results)[0] for name in wrong} == {Verdict.WRONG_AS_STATED}
    assert verdict("deviation", results)[0] is verdict("largest-gain", results)[0] is Verdict.NOT_SHOWN


def test_other_published_numbers_give_other_verdicts(results):
    numbers = results.published
    numbers["table 1"]["REMIX"][1] = 60.3
    numbers["table 1"]["PMI"][1] = 59.4
    numbers["table 2"]["REMIX + MoE-Adapter"][2] = 79.5
    other = Results(results.folder)
    (other.folder / PUBLISHED).write_text(json.dumps(numbers))
    assert verdict("metric-label", other)[0] is Verdict.HOLDS
    assert verdict("clip-consistent", other)[0] is Verdict.NOT_SHOWN


@pytest.mark.parametrize(("right", "expected"), [(40, Verdict.HOLDS_AT_MINI_SCALE), (12, Verdict.NOT_SHOWN)])
def test_dreams_of_a_transformer_are_judged_beyond_chance(results, right, expected):
    columns = "class,prior,images,read as it,read as it by another network"
    rows = [("church", "none", 50, 50, 10), ("church", "laplace", 50, 50, right)]
    write(results, "reproduce/samples_vit.csv", columns, rows)
    assert verdict("samples-vit", results) == (expected, MINI)
    assert f"reads {right} of 50 images" in BY_NAME["samples-vit"].finding(results).measured[0]


def test_a_search_on_validation_images_is_not_mixed_with_its_test(results):
    columns = "preset,weight,seed,tested_on,last_accuracy_macro,average_incremental_accuracy_macro"
    searched = [("digits", weight, 0, "10% of the training images", 80, 90) for weight in ("0", "0.1", "1")]
    write(results, "reproduce/lambda.csv", columns, [*searched, ("digits", "0.1", 0, "test", 10, 20)])
    said = BY_NAME["lambda"].finding(results).measured
    assert said[0] == "Accuracies on validation images."
    assert "varies by 0.00 points over 2 weights" in said[1]


def test_enough_seeds_means_the_same_as_in_the_sentences():
    assert seeds.ENOUGH_SEEDS == paired._ENOUGH_SEEDS
