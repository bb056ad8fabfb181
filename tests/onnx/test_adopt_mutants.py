"""A sample of `tests.fuzz.foreign_mutants`: no changed file of another exporter is adopted wrongly."""

from collections import Counter

from tests.fuzz.foreign_mutants import judge

ASKED = "without metadata", "RT-DETR of its authors", "PP-YOLOE"
"""Kinds of files that do not say how an image becomes their input."""


def test_no_mutant_is_adopted_wrongly(tmp_path):
    counts: Counter[str] = Counter()
    for seed in range(45):
        verdict, case = judge(seed, tmp_path)
        counts[verdict] += 1
        assert verdict != "wrong", (seed, case.kind, case.changes)
        if not case.changes:
            assert verdict == ("asked" if case.kind.endswith(ASKED) else "right"), (seed, case.kind)
    assert counts["right"] > 10
    assert counts["asked"] > 10
    assert counts["refused"] > 1


def test_the_judge_finds_a_wrong_file(tmp_path, monkeypatch):
    """With the detections of another preprocessing, each adopted file would be wrong."""
    from tests.fuzz import foreign_mutants

    monkeypatch.setattr(foreign_mutants, "WEIGHTS", foreign_mutants.WEIGHTS[::-1].copy())
    write = foreign_mutants.write

    def write_with_other_weights(case, path):
        foreign_mutants.WEIGHTS = foreign_mutants.WEIGHTS[::-1].copy()
        write(case, path)
        foreign_mutants.WEIGHTS = foreign_mutants.WEIGHTS[::-1].copy()

    monkeypatch.setattr(foreign_mutants, "write", write_with_other_weights)
    verdicts = Counter(judge(seed, tmp_path)[0] for seed in range(20))
    assert verdicts["right"] == 0
    assert verdicts["wrong"] > 3
