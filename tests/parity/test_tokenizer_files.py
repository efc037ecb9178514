"""Tokenizers of others: the ids equal `transformers`' or `tokenizers`' ids for the same files."""

import json
import pickle
import string
from pathlib import Path

import huggingface_hub
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, BertConfig

from roformer.config.schema import TokenizerConfig
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, load_wordpiece
from roformer.errors import InputError
from roformer.interop.tokenizers import read_tokenizer

LETTERS = string.ascii_letters + string.digits + "éüÉßœΣσжЖ"
WORDS = [
    *("Paris", "France", "paris", "is", "in", "##ing", "naïve", "naive", "été", "e\u0301", "...", "x.y"),
    *(".", ",", "!", "-", "'", "’", "[", "]", "#", "##", "中", "文", "##文", "の", "한", "😀", "##😀"),
    *("\u200d", "\u00ad", "\ufffd", "\t", "a b"),
]  # fmt: skip
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS]
VOCABULARY = [*SPECIAL_TOKENS, *dict.fromkeys(PIECES)]
TEXTS = [
    *("Paris is in France .", "PARIS", "Naïve naïve NAÏVE", "é...", "Été ÉTÉ e\u0301te\u0301"),
    *("x.y x . y", "中文", "x中文y", "中 文", "の한국어 日本語", "𠮷𠀀", "\u3000全角　ＡＢＣ", "ﬁ ﬂ ½ ²"),
    *("Straße ẞ ŒUVRE œ", "ΣΊΣΥΦΟΣ Σ", "ЖЖ ж", "İstanbul ı I\u0307", "שלום עולם", "مرحبا", "ไทย", "हिन्दी"),
    *("a\u0323\u0307 ạ̇", "a\tb", "a\nb\r\nc", "a\x0bb\x0cc"),
    *("a\x00b", "a\x1bb\x7f", "a\x85b", "a\u2028b\u2029c", "a\u00a0b\u2009c", "a\u200bb"),
    *("a\u200db\u200c", "\ufeffa", "a\u00adb", "a\ufffdb"),
    *("\ufdd0\U0010ffff", "\ue000 \U000f0000", "😀 is 😀😀", "👩\u200d👩\u200d👧"),
    *("🇫🇷", "x" * 100, "x" * 101, "中" * 150, "Paris" * 30),
    *("[MASK] a [SEP]", "[PAD][UNK][CLS]", "[mask] ##ing", "a b", "Paris’s don't e-mail", "#hash ## [x]"),
    *("", " ", "\t\n", " a  b ", "$5+3=8€ ~`^", "a_b", "1,000.50", "a<new> b Parisa"),
]  # fmt: skip
assert len(TEXTS) >= 50


def library(normalizer, pre_tokenizer, **model):
    ids = {entry: number for number, entry in enumerate([*VOCABULARY, "中文"])}
    made = Tokenizer(models.WordPiece(ids, **{"unk_token": "[UNK]", **model}))
    if normalizer is not None:
        made.normalizer = normalizer
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    made.add_special_tokens(list(SPECIAL_TOKENS))
    return made


def bert(**rules):
    return library(normalizers.BertNormalizer(**rules), pre_tokenizers.BertPreTokenizer())


def cut_and_padded():
    """Return a tokenizer as sentence encoders have it in their files."""
    made = bert()
    made.enable_truncation(3)
    made.enable_padding(length=5)
    return made


def with_added(*tokens):
    made = bert()
    made.add_tokens([*tokens])
    return made


def stated(name="BertTokenizer", **rules):
    return {"tokenizer_class": name, **rules}


CASED = {"do_lower_case": False}
ACCENTS = {"do_lower_case": True, "strip_accents": False}
SIDE_BY_SIDE = {"do_lower_case": True, "tokenize_chinese_chars": False}
SEQUENCE = normalizers.Sequence(
    [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
)
BY_CLASS = {
    "uncased": (None, {"do_lower_case": True}),
    "cased": (None, CASED),
    "accents": (None, ACCENTS),
    "Chinese side by side": (None, SIDE_BY_SIDE),
    "whole": (bert(), stated()),
    "cut and padded": (cut_and_padded(), stated()),
    "other rules in the class": (bert(), stated(**CASED)),
    "other rules in its defaults": (bert(lowercase=False), stated()),
    "a class over any rules": (library(SEQUENCE, pre_tokenizers.Whitespace()), stated()),
    "added tokens": (with_added("Paris", "<new>"), stated("PreTrainedTokenizerFast")),
    "as filed": (library(SEQUENCE, pre_tokenizers.Whitespace()), stated("PreTrainedTokenizerFast")),
}
"""Files that `AutoTokenizer` reads: tokenizer.json and tokenizer_config.json."""
BY_FILE = {
    "no rule": library(None, None),
    "cased BERT": bert(lowercase=False),
    "sequences": library(
        SEQUENCE,
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True)]),
    ),
    "short words": library(
        normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), max_input_chars_per_word=4
    ),
}
"""Contents of a tokenizer.json that is the only file."""


def write(folder, whole, settings):
    folder.mkdir(exist_ok=True)
    if whole is None:
        (folder / "vocab.txt").write_text("".join(f"{entry}\n" for entry in VOCABULARY), "utf-8")
    else:
        whole.save(str(folder / "tokenizer.json"))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    BertConfig().save_pretrained(folder)
    return folder


def source(path, **rules):
    return load_wordpiece(TokenizerConfig(source=str(path), **rules))


def ids_of(theirs):
    return [
        theirs(t, add_special_tokens=False, split_special_tokens=True)["input_ids"] for t in TEXTS
    ]


def check(folder, expected, tmp_path):
    """Read a folder in every way; what is read is kept by files, by a pickle and by transformers."""
    ours = WordPiece.load(folder)
    assert ours.encode_batch(TEXTS) == expected
    assert source(folder, lowercase=ours.lowercase).fingerprint == ours.fingerprint
    ours.save(tmp_path / "again")
    again = [WordPiece.load(tmp_path / "again"), pickle.loads(pickle.dumps(ours))]
    for other in again:
        assert other.encode_batch(TEXTS) == expected and other.fingerprint == ours.fingerprint
    assert ids_of(ours.to_transformers()) == expected
    return ours.fingerprint


@pytest.mark.parametrize("name", BY_CLASS)
def test_ids_are_those_of_auto_tokenizer(name, tmp_path):
    folder = write(tmp_path / "it", *BY_CLASS[name])
    check(folder, ids_of(AutoTokenizer.from_pretrained(folder)), tmp_path)


@pytest.mark.parametrize("name", BY_FILE)
def test_ids_are_those_of_a_tokenizer_json_alone(name, tmp_path):
    folder = write(tmp_path / "it", BY_FILE[name], None)
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    theirs.encode_special_tokens = True
    expected = [theirs.encode(text, add_special_tokens=False).ids for text in TEXTS]
    check(folder, expected, tmp_path)
    ours = source(folder / "tokenizer.json", lowercase=WordPiece.load(folder).lowercase)
    assert ours.encode_batch(TEXTS) == expected


def test_fingerprints_differ_where_rules_do(tmp_path):
    """And are as ever for BERT's own rules: records and checkpoints have them."""
    files = [*BY_FILE.values(), bert(), bert(lowercase=False, strip_accents=True)]
    found = [
        WordPiece.load(write(tmp_path / str(number), whole, None)).fingerprint
        for number, whole in enumerate(files)
    ]
    assert len(set(found)) == len(files)
    explicit = write(tmp_path / "explicit", bert(strip_accents=True), None)
    usual = WordPiece.bert([*VOCABULARY, "中文"], lowercase=True)
    assert WordPiece.load(explicit).fingerprint == usual.fingerprint
    plain = WordPiece.bert([*SPECIAL_TOKENS, "a", "##b", "非常", "Ä"], True)
    assert plain.fingerprint.startswith("ef38b612886400ea")


def test_a_cased_vocabulary_alone_is_read_as_cased(tmp_path):
    folder = write(tmp_path / "it", None, None)
    theirs = AutoTokenizer.from_pretrained(write(tmp_path / "stated", None, CASED))
    assert WordPiece.load(folder).encode_batch(TEXTS) == ids_of(theirs)
    for path in (folder, folder / "vocab.txt"):
        with pytest.raises(InputError, match="was made with lowercase=false: set "):
            source(path)
        assert source(path, lowercase=False).encode_batch(TEXTS) == ids_of(theirs)
    cyrillic = [*SPECIAL_TOKENS, "Париж", "Франция", "в", "##а"]
    (tmp_path / "vocab.txt").write_text("\n".join(cyrillic), "utf-8")
    assert not WordPiece.load(tmp_path).lowercase


REFUSED = {
    "no tokenizer.json": (None, stated("PreTrainedTokenizerFast"), "has no tokenizer.json"),
    "unclear": (None, {"do_lower_case": "yes"}, "'do_lower_case': 'yes'.*write true or false"),
    "added to a vocab.txt": (
        *(None, {"added_tokens_decoder": {"999": {"content": "[NEW]"}}}),
        r"added tokens \(\[NEW\]\) that vocab.txt lacks",
    ),
    "declared": (
        *(bert(), {"additional_special_tokens": ["[X]", {"content": "[Y]"}]}),
        r"added tokens \(\[X\], \[Y\]\) that tokenizer.json lacks",
    ),
    "added, in the vocabulary": (
        *(bert(), stated(added_tokens_decoder={"5": {"content": "Paris", "special": False}})),
        r"added tokens \(Paris\) that tokenizer.json does not add",
    ),
    "another mask": (bert(), {"mask_token": {"content": "Paris"}}, "mask_token=Paris, which is no"),
    "another role": (None, {"cls_token": "[SEP]"}, r"has cls_token=\[SEP\], which is not"),
    "another prefix": (
        library(None, None, continuing_subword_prefix="@@"),
        *(None, "has continuing_subword_prefix=@@"),
    ),
    "pieces": (None, {"do_basic_tokenize": False}, "do_basic_tokenize=false, which is not"),
    "words and added tokens": (
        with_added("<new>"),
        *(stated("RoFormerTokenizer"), "cuts Chinese into words, and .* has added tokens"),
    ),
    "words and a length": (
        BY_FILE["short words"],
        *(stated("RoFormerTokenizer"), "or another max_input_chars_per_word"),
    ),
}
"""What is stated and cannot be followed; a special_tokens_map.json states tokens too."""


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_are_unclear_are_refused_by_name(name, tmp_path):
    whole, settings, message = REFUSED[name]
    folder = write(tmp_path / "it", whole, settings)
    for read in (WordPiece.load, source):
        with pytest.raises(InputError, match=message):
            read(folder)
    if "token" in str(settings) and "class" not in str(settings):
        (folder / "tokenizer_config.json").rename(folder / "special_tokens_map.json")
        with pytest.raises(InputError, match=message):
            source(folder)


def test_how_added_tokens_cut_a_text_decides_the_fingerprint():
    """Which prepared data is found by."""
    tokens = ("<new>", AddedToken("<new>", single_word=True))
    found = [WordPiece(with_added(token)) for token in tokens]
    assert found[0].vocabulary == found[1].vocabulary
    assert found[0].encode("a<new>") != found[1].encode("a<new>")
    assert found[0].fingerprint != found[1].fingerprint


def added(processor):
    made = bert(handle_chinese_chars=False)
    made.post_processor = processor
    return made


ENDS = [("[SEP]", VOCABULARY.index("[SEP]")), ("[CLS]", VOCABULARY.index("[CLS]"))]
PROCESSORS = {
    True: processors.BertProcessing(*ENDS),
    "none": None,
    "no beginning": processors.TemplateProcessing("$A [SEP]", "$A [SEP] $B [SEP]", ENDS[:1]),
    "RoBERTa's": processors.RobertaProcessing(*ENDS),
    "one type": processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ENDS),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_trained_weights_need_the_special_tokens_that_their_tokenizer_adds(name, tmp_path):
    """Where tokenizer.json decides it: a class of BERT's family adds BERT's in any case."""
    for kind in ("PreTrainedTokenizerFast", "BertTokenizer"):
        folder = write(tmp_path / kind, added(PROCESSORS[name]), stated(kind, **SIDE_BY_SIDE))
        settings = BertConfig(vocab_size=len(VOCABULARY) + 1)
        read = read_tokenizer(folder, settings)
        theirs = AutoTokenizer.from_pretrained(folder)("a", "b").encodings[0]
        same = (theirs.ids, theirs.type_ids) == ([2, 5, 3, 6, 3], [0, 0, 0, 1, 1])
        assert isinstance(read, WordPiece) is same
        assert same or f"{folder}: the post_processor of tokenizer.json does not make" in read


def test_other_kinds_of_tokenizers_are_one_line(tmp_path):
    """As a folder, a tokenizer.json, or the files of GPT-2 and SentencePiece."""
    only = ".*only WordPiece is read, from a vocab.txt, a tokenizer.json, or a folder or Hub id"
    for model in (models.BPE({"a": 0}, []), models.Unigram([("<unk>", 0.0)], unk_id=0)):
        Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
        for path in (tmp_path, tmp_path / "tokenizer.json"):
            with pytest.raises(InputError, match=f"its tokenizer is {type(model).__name__}{only}"):
                source(path)
    (tmp_path / "tokenizer.json").unlink()
    for name, content, message in (
        ("vocab.json", b'{"a": 0, "b": 1}', "is no tokenizer "),
        ("merges.txt", "#version: 0.2\nĠ t\n".encode(), r"has no \[PAD\]"),
        ("spiece.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\xff", "not UTF-8"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}.*{message}{only}"):
            source(tmp_path / name)
    for settings in (None, {"tokenizer_class": "GPT2Tokenizer"}):
        if settings:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(InputError, match=f"(has no tokenizer.json|is GPT2Tokenizer){only}"):
            source(tmp_path)


def test_rules_of_the_hub_are_followed_at_the_pinned_revision(hub, tmp_path, monkeypatch):
    """The files are of the commit that is named, and load again without a network."""
    commit = "a" * 40
    for name in ("cased", "as filed"):
        folder, repository = (
            write(tmp_path / name, *BY_CLASS[name]),
            f"org/{name.replace(' ', '-')}",
        )
        expected = ids_of(AutoTokenizer.from_pretrained(folder))
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
        hub.push(repository, content | {"pytorch_model.bin": b"weights"}, commit)
        hub.push(repository, {"vocab.txt": b"newer"})
        lowercase = name != "cased"
        for offline in (False, True):
            monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
            ours = source(repository, revision=commit, lowercase=lowercase)
            assert ours.encode_batch(TEXTS) == expected, name
        assert hub.fetched(repository) == {
            f"{commit}/{file}" for file in content if Path(file).name != "config.json"
        }
        if not lowercase:
            with pytest.raises(InputError, match="was made with lowercase=false"):
                source(repository, revision=commit)
