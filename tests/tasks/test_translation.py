"""Lines that a translation run prints before it trains."""

from types import SimpleNamespace

import pytest
from torch import nn

from roformer.config.wmt import BpeConfig
from roformer.tasks.translation import TranslationTask
from tests.data.parallel_texts import ENGLISH, GERMAN, joint_bpe

CURLY = ["The thud of Gladiator’s hoofs was heard.", "“Bravo, Vronsky!” he said."]


@pytest.mark.parametrize(
    ("words", "lines", "exact"),
    [("moses", GERMAN, True), ("moses", CURLY, False), ("bytes", CURLY, True)],
)
def test_the_ceiling_is_the_score_of_the_detokenized_references(words, lines, exact):
    tokenizer = joint_bpe(ENGLISH, [*GERMAN, *CURLY], BpeConfig(words=words, merges=300))
    text = SimpleNamespace(
        tokenizer=tokenizer, texts=lambda split: ([], lines), train=SimpleNamespace(source=[0])
    )
    task = SimpleNamespace(text=text, model=nn.Linear(1, 1))
    _, ceiling = TranslationTask.introduction(task)
    assert ("sacreBLEU 100.00" in ceiling) is exact
