"""Tokenised sentences on disk: what is written is read, and what is pickled is its name."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.data.sentences import Sentences, SentenceWriter


@given(st.lists(st.lists(st.lists(st.integers(0, 2**31 - 1)))))
def test_written_sentences_are_read_again(tmp_path_factory, batches):
    stem = tmp_path_factory.mktemp("sentences") / "train.source"
    with SentenceWriter(stem) as writer:
        for batch in batches:
            writer.append(batch)
    wanted = [ids for batch in batches for ids in batch]
    assert len(writer) == len(wanted) and writer.tokens == sum(map(len, wanted))
    for sentences in (Sentences.open(stem), Sentences.of(wanted)):
        assert [sentences[i].tolist() for i in range(len(sentences))] == wanted
    with pytest.raises(IndexError):
        Sentences.of(wanted)[len(wanted)]


def test_sentences_pickle_as_file_names(tmp_path):
    stem = tmp_path / "many"
    with SentenceWriter(stem) as writer:
        writer.append([[1, 2, 3]] * 10_000)
    pickled = pickle.dumps(Sentences.open(stem))
    assert len(pickled) < 1000
    assert pickle.loads(pickled)[9_999].tolist() == [1, 2, 3]
    here = pickle.loads(pickle.dumps(Sentences.of([[1], [2, 3]])))
    assert here[1].tolist() == [2, 3]
