"""Scores of translations, each with the signature that says how it was computed.

Scores are compared only where their signatures are the same: of one output, the three ways below
can lie two points apart, and so can two versions of a tokeniser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesTokenizer

from roformer.errors import InputError

STATISTICS = (
    *("hypothesis_length", "reference_length"),
    *(f"{kind}_{order}" for kind in ("correct", "total") for order in (1, 2, 3, 4)),
)
"""What BLEU is made of, a line each, in sacreBLEU's order: tokens, and n-grams right and in all."""
HYPHEN = re.compile(r"(\S)-(\S)")


class Score(NamedTuple):
    """A score in [0, 100] and how it was computed."""

    name: str
    value: float
    signature: str


class Scores(NamedTuple):
    """What the translations of a test set are scored by; each has the name of its field."""

    sacrebleu: Score
    """BLEU of detokenised text, tokenised as mteval-v13a, cased (Post 2018)."""
    chrf: Score
    """chrF2: character n-grams up to 6 (Popović 2015)."""
    bleu_compound: Score
    """BLEU as the papers of 2017 gave it; see `compound_tokens`."""


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], target_language: str
) -> Scores:
    """Return all scores of the translations of a test set.

    Args:
        hypotheses: detokenised text, one sentence each.
        references: as many, one for each.
        target_language: of the Moses tokeniser, as `de`.

    Raises:
        InputError: no sentences, or not as many references.
    """
    bleu = sacrebleu(hypotheses, references)
    chrf, tokens = CHRF(), BLEU(tokenize="none", force=True)  # force: tokenised text is meant
    chrf_value = chrf.corpus_score(hypotheses, [references]).score
    split, split_references = (
        compound_tokens(t, target_language) for t in (hypotheses, references)
    )
    compound = tokens.corpus_score(split, [split_references]).score
    steps = f"tok:moses-{target_language}+atat"
    signature = str(tokens.get_signature()).replace("tok:none", steps)
    return Scores(
        bleu,
        Score("chrf", chrf_value, str(chrf.get_signature())),
        Score("bleu_compound", compound, f"{signature}|sacremoses:{version('sacremoses')}"),
    )


def sacrebleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Return sacreBLEU alone; as `translation_scores`, which takes several times as long."""
    _check(hypotheses, references)
    bleu = BLEU(tokenize="13a")
    value = bleu.corpus_score(hypotheses, [references]).score
    return Score("sacrebleu", value, str(bleu.get_signature()))


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """Return the `STATISTICS` of each line, of which `sacrebleu` is a function of the sums alone.

    Scores of resampled lines can be computed from them without the texts.
    """
    _check(hypotheses, references)
    bleu = BLEU(tokenize="13a", effective_order=True)  # of which the counts know nothing
    found = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        line = bleu.sentence_score(hypothesis, [reference])
        found.append([line.sys_len, line.ref_len, *line.counts, *line.totals])
    return found


def compound_tokens(sentences: Sequence[str], language: str) -> list[str]:
    """Return Moses tokens with split compounds, spaces between them.

    `rich-text format` becomes `rich ##AT##-##AT## text format`, as in tensor2tensor's
    get_ende_bleu.sh and fairseq's compound_split_bleu.sh: three chances of a match instead of one.
    It adds about 0.7-1 BLEU to English-German. Of three hyphened letters, as `A-B-C`, the second
    hyphen stays, as with those scripts' regular expression.

    Two differences from them do not change the score: no escapes such as `&quot;`, each of which
    would stand for one token; and sacreBLEU's smoothing in the place of multi-bleu.perl's none,
    unless not one 4-gram of the whole test set is right.
    """
    moses = MosesTokenizer(lang=language)
    tokenized = (moses.tokenize(text, escape=False, return_str=True) for text in sentences)
    return [HYPHEN.sub(r"\1 ##AT##-##AT## \2", text) for text in tokenized]


def _check(hypotheses: Sequence[str], references: Sequence[str], of: str = "") -> None:
    if len(hypotheses) != len(references) or not references:
        raise InputError(
            f"{len(hypotheses)} translations{of} and {len(references)} references cannot be "
            "scored: give one reference for each sentence of the test set"
        )
