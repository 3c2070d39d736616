"""A tokenizer whose tokens are bytes, without a chat template."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


class ByteTokenizer(PreTrainedTokenizerFast):
    has_chat_template = False
    eos_token_ids = (256,)
    think_start = think_end = think_end_tokens = tool_call_start = tool_call_end = tool_parser = None

    def __init__(self):
        vocabulary = {each: i for i, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
        inner = Tokenizer(models.BPE({**vocabulary, "<end>": 256}, []))
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        super().__init__(tokenizer_object=inner, eos_token="<end>")
