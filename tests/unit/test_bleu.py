"""Scores of translations: the tools' own numbers, those worked by hand, and what is significant."""

import math
import os
import random
import subprocess
import sys

import pytest

from roformer.errors import InputError
from roformer.evaluation.bleu import (
    compound_tokens,
    paired_bootstrap,
    sacrebleu,
    translation_scores,
)

REFERENCES = [
    "Der schnelle braune Fuchs springt über den faulen Hund.",
    "Das 25-jährige Jubiläum wurde gestern in Berlin gefeiert.",
    "„Wir wissen es nicht“, sagte er.",
]
HYPOTHESES = [
    "Der schnelle braune Fuchs sprang über den faulen Hund.",
    "Das 25-Jährige Jubiläum wurde gestern in Berlin gefeiert.",
    "„Wir wissen das nicht“, sagte sie.",
]


def test_sacrebleu_is_the_command_lines(tmp_path):
    (tmp_path / "hypotheses").write_text("\n".join(HYPOTHESES))
    (tmp_path / "references").write_text("\n".join(REFERENCES))
    for metric, index in (("bleu", 0), ("chrf", 1)):
        command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses"]
        line = subprocess.run(
            [*command, "-m", metric, "-f", "text", "-w", "6"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        score = translation_scores(HYPOTHESES, REFERENCES, "de")[index]
        assert f"|{score.signature} = {score.value:.6f}" in line


def test_each_score_has_its_signature():
    scores = translation_scores(HYPOTHESES, REFERENCES, "de")
    assert [score.name for score in scores] == list(scores._fields)
    assert scores.sacrebleu == sacrebleu(HYPOTHESES, REFERENCES)
    assert scores.sacrebleu.signature == (
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    )
    assert scores.chrf.signature == "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0"
    assert scores.bleu_compound.signature == (
        "nrefs:1|case:mixed|eff:no|tok:moses-de+atat|smooth:exp|version:2.6.0|sacremoses:0.2.0"
    )


def test_case_matters():
    lower = [text.lower() for text in REFERENCES]
    assert all(
        score.value == pytest.approx(100) for score in translation_scores(*[lower] * 2, "de")
    )
    assert all(score.value < 90 for score in translation_scores(lower, REFERENCES, "de"))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a rich-text format", "a rich ##AT##-##AT## text format"),
        ("gut - sehr gut", "gut - sehr gut"),  # a dash between words is no hyphen
        ("Nord-Süd-Gefälle", "Nord ##AT##-##AT## Süd ##AT##-##AT## Gefälle"),
        ("A-B-C", "A ##AT##-##AT## B-C"),  # as Perl's s///g: B is used up
        ("d.h. 3,5 %.", "d.h. 3,5 % ."),
        ('"x" & y', '" x " & y'),  # no escapes
    ],
)
def test_compounds_are_split_at_hyphens(text, tokens):
    assert compound_tokens([text], "de") == [tokens]


def test_split_compounds_by_hand():
    """The reference is `rich ##AT##-##AT## text format here .`, 6 tokens; so is the hypothesis, with
    one other token, `plain` for `text`. Unigrams 5 of 6; bigrams 3 of 5 (rich AT, format here,
    here .); trigrams 1 of 4; 4-grams 0 of 3, smoothed to ½ of 3. Unsplit it is 3 of 4 unigrams."""
    split = translation_scores(["rich-plain format here."], ["rich-text format here."], "en")
    by_hand = 100 * math.prod((5 / 6, 3 / 5, 1 / 4, 0.5 / 3)) ** 0.25
    assert split.bleu_compound.value == pytest.approx(by_hand)
    unsplit = 100 * math.prod((3 / 4, 2 / 3, 1 / 2, 0.5 / 1)) ** 0.25
    assert split.sacrebleu.value == pytest.approx(unsplit)


def test_without_hyphens_nothing_is_split():
    text, other = ["ein Satz ohne alles hier"], ["ein Satz ohne vieles hier"]
    scores = translation_scores(other, text, "de")
    assert scores.bleu_compound.value == pytest.approx(scores.sacrebleu.value)


@pytest.mark.parametrize(("hypotheses", "references"), [(["a"], ["a", "b"]), ([], [])])
def test_what_does_not_pair_is_refused(hypotheses, references):
    with pytest.raises(InputError, match="cannot be scored"):
        translation_scores(hypotheses, references, "de")
    with pytest.raises(InputError, match="cannot be scored"):
        paired_bootstrap({"a": hypotheses, "b": hypotheses}, references)


def garbled(share, seed, sentences=200):
    """Return references, and twice the same with a share of the words wrong, other words each."""
    draw = random.Random(seed)
    references = [
        " ".join(draw.choice("abcdefgh") * 2 for _ in range(12)) for _ in range(sentences)
    ]
    first, second = (
        [
            " ".join("x" if draw.random() < share else word for word in text.split())
            for text in references
        ]
        for _ in range(2)
    )
    return references, first, second


def test_the_better_system_is_significant_and_the_same_one_is_not():
    references, good, _ = garbled(0.1, 0)
    bad = [text.replace("aa", "y") for text in good]
    found, signature = paired_bootstrap(
        {"good": good, "bad": bad, "same": list(good)}, references, samples=200
    )
    baseline, worse, same = found
    assert [system.name for system in found] == ["good", "bad", "same"]
    assert baseline.p_value is None and 0 < baseline.half_width < 5
    assert worse.p_value < 0.01 and worse.bleu < baseline.bleu - 5
    assert worse.bleu == sacrebleu(bad, references).value
    # sacreBLEU itself gives 1 / 201 here, its smallest: a difference of 0 is beyond all chance.
    assert same.p_value == 1.0 and same.bleu == baseline.bleu
    assert signature == (
        "nrefs:1|bs:200|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    )


def test_systems_that_differ_by_chance_are_seldom_significant():
    p_values = []
    for seed in range(40):
        references, first, second = garbled(0.2, seed, sentences=50)
        systems = {"first": first, "second": second}
        p_values.append(paired_bootstrap(systems, references, samples=100).systems[1].p_value)
    assert max(p_values) < 0.6  # of sacreBLEU's way of counting: never near 1
    assert sum(p_value < 0.025 for p_value in p_values) <= 5


def test_the_draws_are_those_of_the_seed_whatever_the_environment(monkeypatch):
    references, first, second = garbled(0.2, 0)
    systems = {"first": first, "second": second}
    once = paired_bootstrap(systems, references, samples=50)
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert paired_bootstrap(systems, references, samples=50) == once
    assert os.environ["SACREBLEU_SEED"] == "none"
    assert paired_bootstrap(systems, references, samples=50, seed=7) != once


def test_a_comparison_takes_two_systems_and_a_seed():
    with pytest.raises(ValueError, match="give at least two"):
        paired_bootstrap({"one": ["a"]}, ["a"])
    with pytest.raises(InputError, match="give 1 or more"):
        paired_bootstrap({"one": ["a"], "two": ["a"]}, ["a"], seed=0)
