"""Scores of translations: the tools' own numbers, and those worked by hand."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roformer.errors import InputError
from roformer.evaluation.bleu import (
    STATISTICS,
    bleu_statistics,
    compound_tokens,
    sacrebleu,
    translation_scores,
)
from roformer.report.resampling import COUNTS, bleu

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


def test_sacrebleu_is_the_command_lines_and_each_score_has_its_signature(tmp_path):
    (tmp_path / "hypotheses").write_text("\n".join(HYPOTHESES))
    (tmp_path / "references").write_text("\n".join(REFERENCES))
    words = ["references", "-i", "hypotheses", "-m", "bleu", "chrf", "-f", "text", "-w", "6"]
    command = [sys.executable, "-m", "sacrebleu", *words]
    printed = subprocess.check_output(command, cwd=tmp_path, text=True)
    scores = translation_scores(HYPOTHESES, REFERENCES, "de")
    for score in (scores.sacrebleu, scores.chrf):
        assert f"|{score.signature} = {score.value:.6f}" in printed
    assert scores.sacrebleu == sacrebleu(HYPOTHESES, REFERENCES)
    assert scores.bleu_compound.signature == (
        "nrefs:1|case:mixed|eff:no|tok:moses-de+atat|smooth:exp|version:2.6.0|sacremoses:0.2.0"
    )


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


@pytest.mark.parametrize("score", [sacrebleu, bleu_statistics])
def test_what_does_not_pair_is_refused(score):
    for hypotheses, references in ((["a"], ["a", "b"]), ([], [])):
        with pytest.raises(InputError, match="cannot be scored"):
            score(hypotheses, references)


WORDS = st.sampled_from(["der", "die", "Hund", "Katze,", "sieht", "25-jährige", "„so“", "."])
TEXTS = st.lists(WORDS, max_size=9).map(" ".join)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=6))
@settings(max_examples=60, derandomize=True)
def test_the_sums_of_the_statistics_are_sacrebleus_score(pairs):
    """Exactly, with empty translations and references, and where no 4-gram is right."""
    hypotheses, references = map(list, zip(*pairs, strict=True))
    found = np.array(bleu_statistics(hypotheses, references))
    assert found.shape == (len(pairs), len(STATISTICS))
    assert bleu(found.sum(0)) == sacrebleu(hypotheses, references).value


def test_the_statistics_by_hand():
    """`a b c d` of `a b x d`: three of four words, one of three pairs, nothing longer."""
    assert bleu_statistics(["a b c d"], ["a b x d e"]) == [[4, 5, 3, 1, 0, 0, 4, 3, 2, 1]]
    assert len(STATISTICS) == COUNTS
