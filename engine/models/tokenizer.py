"""Loading the tokenizer of a target, and seeing that it is this target's."""

from pathlib import Path
from typing import Any

from engine.checkpoints import files
from engine.errors import BadInput
from engine.lm import utils as lm_utils

# Embeddings are padded to a round number of rows: published models leave up to two in a hundred unused.
MOST_UNUSED = 0.1
MOST_WITHOUT = (
    0.01  # tokens that were added to a tokenizer, such as one for images, but not to the embeddings
)


def load_tokenizer(folder: Path, config: dict[str, Any]) -> Any:
    """Return mlx-lm's wrapper of the tokenizer in ``folder``; code that a folder brings along is not run.

    Args:
        folder: of the target.
        config: the target's; its ``vocab_size`` has to fit.

    Raises:
        BadInput: no tokenizer, one that cannot be read, or one with another vocabulary.
    """
    path = files.vocabulary_file(folder)
    try:
        tokenizer = lm_utils.load_tokenizer(
            folder, {"trust_remote_code": False}, eos_token_ids=config.get("eos_token_id")
        )
    except Exception as error:
        raise BadInput(
            f"the tokenizer {path} cannot be read: {' '.join(str(error).split())}", files.AGAIN
        ) from error
    rows = files.text_config(config).get("vocab_size")
    ids = max(tokenizer.get_vocab().values(), default=-1) + 1
    if rows is not None and not (1 - MOST_UNUSED) * rows <= ids <= (1 + MOST_WITHOUT) * rows:
        raise BadInput(
            f"the tokenizer {path} has {ids} tokens, and the model {rows}", "it is another model's tokenizer"
        )
    return tokenizer
