"""The page of `remix report`: what is on it, and that nothing else gets onto it."""

import json
import re
from html.parser import HTMLParser

import pytest
from written_runs import TASKS, write_run

from remix.cli import main
from remix.report.charts import Chart, line_over_seeds
from remix.report.page import _inert
from remix.report.runs import group_runs, read_runs
from remix.report.tables import phase_costs


class Page(HTMLParser):
    """Tags with attributes, and the visible text, as a browser without JavaScript has them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._silent = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._silent -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._silent:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def report(tmp_path, *folders, more=()) -> str:
    out = tmp_path / "report.html"
    main(["report", *map(str, folders), "--out", str(out), *more])
    return out.read_text()


def content(page: str):
    return json.loads(re.search(r'id="content-data">(.*?)</script>', page, re.S)[1])


@pytest.fixture
def runs(tmp_path):
    for seed, remix, finetune in ((0, 80, 40), (1, 84, 42)):
        write_run(tmp_path / "runs" / f"remix-{seed}", "remix", seed, right=remix)
        write_run(tmp_path / "runs" / f"finetune-{seed}", "finetune", seed, right=finetune)
    return tmp_path / "runs"


# --- what is on it ---


def test_headline_numbers_have_the_names_of_their_metrics(tmp_path, runs):
    text = Page(report(tmp_path, runs)).text
    for name in ("last accuracy", "average incremental accuracy", "forgetting"):
        assert name in text
    assert "79.00 ± 2.83" in text  # 80, 77, 74 and 84, 81, 78
    assert "remix minus finetune: +41.00 points of last accuracy on average over 2 paired seeds" in text


def test_the_number_of_a_single_seed_is_not_taken_for_how_many(tmp_path, runs):
    both = Page(report(tmp_path, runs)).text
    one = Page(report(tmp_path, runs / "remix-0")).text
    assert "forgetting seeds tested on" in both
    assert "forgetting seed tested on" in one


def test_the_result_in_a_sentence_is_first_then_the_accuracies_then_the_images(tmp_path, runs):
    text = Page(report(tmp_path, runs)).text
    sentence = "Accuracy after 3 tasks: remix 79.0 ± 2.8 %, finetune 38.0 ± 1.4 %; 2 seeds (0, 1)"
    parts = [sentence, "Accuracy after each task", "What a method replays in place", "New and old tasks", "Losses of"]
    assert sorted(map(text.index, parts)) == list(map(text.index, parts))


def test_no_run_finished_is_said(tmp_path):
    assert "No run is finished yet." in Page(report(tmp_path, write_run(tmp_path / "run", learned=1))).text


def test_terms_and_phases_that_are_shown_are_explained(tmp_path, runs):
    text = Page(report(tmp_path, runs)).text
    assert "cross-entropy classification of the task's images" in text
    assert "how improbable the activations are" in text
    assert "angles between features" not in text  # these runs have no such term


def test_captions_do_not_scroll_with_their_tables(tmp_path, runs):
    assert not Page(report(tmp_path, runs)).all("caption")


def test_every_part_that_was_promised_is_there(tmp_path, runs):
    page = report(tmp_path, runs)
    found = Page(page)
    text = found.text
    charts = {figure["data-chart"] for figure in found.all("figure")}
    assert charts == {
        f"{name}-0" for name in ("accuracy", "new", "forgetting", "training", "inversion", "likelihood", "seconds")
    }
    assert len([table for table in found.all("table") if "heat" in (table.get("class") or "")]) == 2
    assert len([image for image in found.all("img") if image["src"].startswith("data:image/webp")]) == 2 * (TASKS - 1)
    assert "A Processor 9000, 4 processors, 8 GiB of memory" in text
    assert "torch 2.13.0" in text
    assert f"remix run {runs}/remix-0/config.yaml --seed 0 --out again" in text
    assert "backbone: convnet8" in text
    assert "milestones:" in text
    assert "500" in text  # MiB of the phase "train"
    assert len(page.encode()) < 5e6


def test_numbers_of_every_chart_are_in_tables(tmp_path, runs):
    """A browser without JavaScript shows them all, opened."""
    found = Page(report(tmp_path, runs))
    opened = [details for details in found.all("details") if details.get("class") == "numbers"]
    assert len(opened) >= 8
    assert all("open" in details for details in opened)
    for heading in (
        "accuracy after every task", "new and old classes after every task", "forgetting after every task",
        "last epoch of every stage, remix", "last step of inversion, remix", "remix, after task 3", "minutes per task",
    ):  # fmt: skip
        assert f"The numbers: {heading}" in found.text
    assert "82.0 ± 2.8" in found.text  # after task 1
    assert "The charts need JavaScript" in found.text
    assert all("hidden" in plot for plot in found.all("div") if "needs-script" in (plot.get("class") or ""))


def test_seeds_are_bands(tmp_path, runs):
    chart = content(report(tmp_path, runs))["charts"]["accuracy-0"][""]
    remix = next(line for line in chart["lines"] if line["name"] == "remix")
    assert remix["mean"][0] == 82
    assert remix["high"][0] - remix["mean"][0] == pytest.approx(2.8284, abs=1e-3)
    assert chart["xs"] == [1, 2, 3]


def test_one_run_has_no_spread(tmp_path):
    page = report(tmp_path, write_run(tmp_path / "run"))
    text = Page(page).text
    assert "Accuracy after 3 tasks: remix 77.0 %; 1 seed (0)" in text
    assert "±" not in text.split("Accuracy after each task")[1].split("Accuracy matrix")[0]
    line = content(page)["charts"]["training-0"]["0|3"]["lines"][0]
    assert "low" not in line
    assert line["mean"] == [1, 0.5, 0.33333, 0.25] * 2


def test_stages_and_phases_are_marked(tmp_path):
    charts = content(report(tmp_path, write_run(tmp_path / "run")))["charts"]
    assert charts["training-0"]["0|1"]["marks"] == [{"at": 1, "name": "network"}, {"at": 5, "name": "head"}]
    inversion = charts["inversion-0"]["0|2"]
    assert [mark["name"] for mark in inversion["marks"]] == ["block", "refine"]
    assert not inversion["log"]  # a term is negative
    assert charts["likelihood-0"]["3"]["places"] == [f"block.{i}:input:channels" for i in range(3)]


def test_real_images_of_embedded_data_stand_beside_dreams(tmp_path):
    page = report(tmp_path, write_run(tmp_path / "run", names=("0", "1")))
    assert "real images of 1" in page
    assert ".real-0-8" in page
    assert "Real images are shown here only for comparison" in page


def test_real_images_of_other_data_only_if_they_are_given(tmp_path, refusal, monkeypatch):
    monkeypatch.delenv("REMIX_DATA", raising=False)
    run = write_run(tmp_path / "run", assignments=["data.name=fashion-mnist"])
    assert "real images" not in report(tmp_path, run)
    (tmp_path / "report.html").unlink()
    message = refusal("report", run, "--data", tmp_path, "--out", tmp_path / "report.html")
    assert "fashion-mnist" in message
    assert not (tmp_path / "report.html").exists()


def test_variants_of_a_method_are_told_apart(tmp_path):
    write_run(tmp_path / "runs" / "a", assignments=["settings.samples=100"])
    write_run(tmp_path / "runs" / "b", assignments=["settings.samples=300"])
    text = Page(report(tmp_path, tmp_path / "runs")).text
    assert "remix (samples=100)" in text
    assert "remix (samples=300)" in text


# --- nothing else gets onto it ---

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</style><b>", "{{ 7 * 7 }}", "a&b'c\u2028"]


def test_hostile_names_stay_text(tmp_path):
    hostile = "remix run '</script><script>alert(3)</script>' <img src=y>"
    folder = tmp_path / "<img src=z onerror=alert(4)>"
    page = report(tmp_path, write_run(folder, names=HOSTILE, command=hostile))
    found = Page(page)
    assert len(found.all("script")) == 3
    assert {image["src"][:5] for image in found.all("img")} == {"data:"}
    assert not [1 for _, attributes in found.tags for name in attributes if name.startswith("on")]
    assert "{{ 7 * 7 }}" in found.text
    assert "5 synthetic images of <script>alert(1)</script>" in {image["alt"] for image in found.all("img")}
    assert not found.all("b")


def test_hostile_stages_and_layers_stay_data(tmp_path):
    run = write_run(tmp_path / "run")
    text = (run / "metrics.jsonl").read_text()
    stage = '"</script><script>alert(5)</script>"'
    (run / "metrics.jsonl").write_text(text.replace('"network"', stage).replace("block.0", "<!--<script>"))
    page = report(tmp_path, run)
    assert len(Page(page).all("script")) == 3
    assert content(page)["charts"]["training-0"]["0|1"]["marks"][0]["name"] == json.loads(stage)


def test_nothing_is_fetched_and_nothing_else_may_run(tmp_path, runs):
    page = report(tmp_path, runs)
    found = Page(page)
    (policy,) = [meta["content"] for meta in found.all("meta") if meta.get("http-equiv")]
    assert policy.startswith("default-src 'none'")
    assert "'unsafe-inline'" not in policy.split("script-src")[1]
    assert not found.all("link")
    links = [attributes.get(key) or "" for _, attributes in found.tags for key in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in links if link)


def test_json_in_a_page_cannot_end_its_element():
    text = _inert({"a": "</script><!--&"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": "</script><!--&"}


# --- size ---


def test_curves_of_many_points_are_thinned_and_keep_their_ends():
    values = [float(i) for i in range(1000)]
    chart = Chart("x", "y", 1000, [line_over_seeds("a", 0, [values])])
    plain = chart.to_plain(100)
    assert len(plain["xs"]) <= 102
    assert (plain["xs"][0], plain["xs"][-1]) == (1, 1000)
    assert plain["lines"][0]["mean"][-1] == 999


def test_a_page_of_many_large_runs_stays_small(tmp_path):
    for seed in range(3):
        for samples in (100, 200, 300):
            run = write_run(
                tmp_path / "runs" / f"{samples}-{seed}", "remix", seed, assignments=[f"settings.samples={samples}"],
                names=[f"class {i}" for i in range(20)],
            )  # fmt: skip
            lines = (run / "metrics.jsonl").read_text().splitlines()
            epoch = next(json.loads(line) for line in lines if '"epoch"' in line and '"task": 2' in line)
            more = [
                json.dumps(epoch | {"epoch": number, "terms": {f"t{i}": number**0.5 for i in range(8)}})
                for number in range(5, 3000)
            ]
            (run / "metrics.jsonl").write_text("\n".join([*lines, *more]) + "\n")
    assert len(report(tmp_path, tmp_path / "runs").encode()) < 5e6


def test_an_unfinished_run_is_not_part_of_the_mean_costs(tmp_path):
    write_run(tmp_path / "whole", "finetune", 0)
    ((before,), _) = group_runs(read_runs([tmp_path])[0])
    write_run(tmp_path / "half", "finetune", 1, learned=1)
    ((after,), _) = group_runs(read_runs([tmp_path])[0])
    assert phase_costs(after)["rows"] == phase_costs(before)["rows"]
