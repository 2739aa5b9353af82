"""The smallest tokenizer that a checkpoint without a language model can carry.

vLLM starts a multimodal model only where there is a tokenizer. This one knows the image, the
end of a row of cells, and hexadecimal digits, in which the IO processor writes the key that
tells one request's windows from another's.
"""

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

IMAGE_TOKEN = "<image>"
ROW_TOKEN = "<row>"
_SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>", IMAGE_TOKEN, ROW_TOKEN)
_DIGITS = "0123456789abcdef"


def minimal_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of 22 tokens: six special ones, then the hexadecimal digits one by one."""
    vocabulary = {token: i for i, token in enumerate((*_SPECIAL, *_DIGITS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<bos>",
        eos_token="<eos>",
        unk_token="<unk>",
        additional_special_tokens=[IMAGE_TOKEN, ROW_TOKEN],
    )
