"""The events of a run: what is written, and what is read of it."""

from remix.experiments.metrics_file import MetricsFile, read_events


def test_what_was_written_is_read(tmp_path):
    told = []
    file = MetricsFile(tmp_path / "metrics.jsonl", 0, told.append)
    file.write("phase", task=1, phase="dream", seconds=2.0)
    file.write("something new", task=1)
    file.close()
    found = read_events(tmp_path / "metrics.jsonl")
    assert list(found.events) == told
    assert [event["event"] for event in found.events] == ["phase", "something new"]
    assert found.damages == ()
    assert found.of("phase") == [told[0]]


def test_what_was_not_saved_goes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    file = MetricsFile(path, 0)
    file.write("start of something")
    length = file.length
    file.write("lost")
    file.close()
    MetricsFile(path, length).close()
    assert [event["event"] for event in read_events(path).events] == ["start of something"]


def test_a_file_that_is_not_there_has_no_events(tmp_path):
    assert read_events(tmp_path / "metrics.jsonl").events == ()


def test_a_line_cut_off_by_a_crash_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "a"}\n{"event": "b"')
    found = read_events(path)
    assert [event["event"] for event in found.events] == ["a"]
    assert found.damages == (f"{path}, line 2: damaged, skipped",)
