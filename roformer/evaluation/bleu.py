"""Scores of translations, each with the signature that says how it was computed.

Only scores with equal signatures are comparable: for the same output, the three scores below, or two versions
of a tokeniser, can differ by two points.
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
"""The counts of BLEU for each line, in sacreBLEU's order: tokens, correct n-grams and all n-grams."""
HYPHEN = re.compile(r"(\S)-(\S)")


class Score(NamedTuple):
    """A score in [0, 100] and its signature."""

    value: float
    signature: str


class Scores(NamedTuple):
    """The scores of the translations of a test set."""

    sacrebleu: Score
    """BLEU of detokenised text, tokenised as mteval-v13a, cased (Post 2018)."""
    chrf: Score
    """chrF2: character n-grams up to 6 (Popović 2015)."""
    bleu_compound: Score
    """BLEU as papers of 2017 report it; see `compound_tokens`."""


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[str], target_language: str
) -> Scores:
    """Return all scores of detokenised translations; the language, such as `de`, is for Moses."""
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
        Score(chrf_value, str(chrf.get_signature())),
        Score(compound, f"{signature}|sacremoses:{version('sacremoses')}"),
    )


def sacrebleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Return only sacreBLEU, several times as fast as `translation_scores`."""
    _check(hypotheses, references)
    bleu = BLEU(tokenize="13a")
    value = bleu.corpus_score(hypotheses, [references]).score
    return Score(value, str(bleu.get_signature()))


def bleu_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> list[list[int]]:
    """Return the `STATISTICS` of each line; sacreBLEU is a function of their sums over lines."""
    _check(hypotheses, references)
    bleu = BLEU(tokenize="13a", effective_order=True)  # the counts do not depend on it
    statistics = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        line = bleu.sentence_score(hypothesis, [reference])
        statistics.append([line.sys_len, line.ref_len, *line.counts, *line.totals])
    return statistics


def compound_tokens(sentences: Sequence[str], language: str) -> list[str]:
    """Return Moses tokens with split compounds, spaces between them.

    `rich-text format` becomes `rich ##AT##-##AT## text format`, as in tensor2tensor's
    get_ende_bleu.sh and fairseq's compound_split_bleu.sh: three chances of a match instead of one,
    about 0.7-1 BLEU for English-German. In `A-B-C` the second hyphen stays, as in those scripts.

    Two differences do not change the score: no escapes such as `&quot;`, each of which is one token,
    and sacreBLEU's smoothing, which acts only where no 4-gram of the whole test set is correct.
    """
    moses = MosesTokenizer(lang=language)
    tokenized = (moses.tokenize(text, escape=False, return_str=True) for text in sentences)
    return [HYPHEN.sub(r"\1 ##AT##-##AT## \2", text) for text in tokenized]


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        raise InputError(
            f"{len(hypotheses)} translations and {len(references)} references cannot be "
            "scored: give one reference for each sentence of the test set"
        )
