"""Small tokenizers: one for checkpoints without a language model, one for small vocabularies.

vLLM starts a multimodal model only where there is a tokenizer. This one knows the image, the
end of a row of cells, and hexadecimal digits, in which the IO processor writes the key that
tells one request's windows from another's.
"""

import copy
import json
import re
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

IMAGE_TOKEN = "<image>"
ROW_TOKEN = "<row>"
_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", IMAGE_TOKEN, ROW_TOKEN)
_DIGITS = "0123456789abcdef"
DIGIT_TOKEN_IDS = tuple(range(len(_SPECIAL), len(_SPECIAL) + len(_DIGITS)))
"""What the digits are in both tokenizers, for those who have none to ask."""


def minimal_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of 22 tokens: six special ones, then the hexadecimal digits one by one."""
    return _tokenizer([], pre_tokenizers.Split(Regex("."), behavior="isolated"))


def word_tokenizer(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer of the same 22 tokens and of whole words, in small letters.

    Args:
        words: Those it is to know; others are `<unk>`.
    """
    known = sorted({word.lower() for word in words} - set(_DIGITS))
    return _tokenizer(known, pre_tokenizers.Whitespace(), normalizers.Lowercase())


def with_words(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer that knows all words and signs of some texts, and else is as the one given.

    The new ones come behind all others, so that what a model has learnt of those holds. Its table
    of words must grow with them: `model.resize_token_embeddings(len(tokenizer))`.

    Args:
        tokenizer: One of whole words, as `word_tokenizer` makes. One that takes words apart is
            given back as it is, for it has tokens for any word.
        texts: Words, or sentences of them; special tokens within are no words.
    """
    backend = tokenizer.backend_tokenizer
    if not isinstance(backend.model, models.WordLevel):
        return tokenizer
    whole = json.loads(backend.to_str())
    vocabulary = whole["model"]["vocab"]
    nothing = r"(?!)"
    special = "|".join(map(re.escape, tokenizer.all_special_tokens)) or nothing
    parts = [part for text in texts for part in re.split(special, text)]
    new = {word for part in parts for word in _split(backend, part)} - tokenizer.get_vocab().keys()
    vocabulary.update({word: i for i, word in enumerate(sorted(new), len(tokenizer))})
    grown = copy.deepcopy(tokenizer)
    grown._tokenizer = Tokenizer.from_str(json.dumps(whole))
    return grown


def _split(backend: Tokenizer, text: str) -> list[str]:
    """The words of a text as they are looked up."""
    normal = text if backend.normalizer is None else backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is None:
        return [normal]
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]


def _tokenizer(
    words: list[str],
    splitter: pre_tokenizers.PreTokenizer,
    normalizer: normalizers.Normalizer | None = None,
) -> PreTrainedTokenizerFast:
    vocabulary = {token: i for i, token in enumerate((*_SPECIAL, *_DIGITS, *words))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = splitter
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=[IMAGE_TOKEN, ROW_TOKEN],
    )
