"""CJK characters: the test for them, and their adjacent pairs."""

import re
from itertools import chain
from operator import add
from typing import Final

# CJK punctuation and kana; ideographs with extensions A and B; Hangul syllables.
_CLASS: Final = "[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0002a6df]"
_CJK: Final = re.compile(_CLASS)
_RUN: Final = re.compile(_CLASS + "{2,}")


def is_cjk(text: str) -> bool:
    """Return whether `text` holds a CJK character."""
    return not text.isascii() and _CJK.search(text) is not None


def cjk_pairs(text: str) -> list[str]:
    """Return the distinct pairs of adjacent CJK characters of `text`."""
    runs = _RUN.findall(text) if is_cjk(text) else []
    return list(dict.fromkeys(chain.from_iterable(map(add, run, run[1:]) for run in runs)))


def is_cjk_pair(text: str) -> bool:
    """Return whether `text` is two CJK characters, and nothing else."""
    return len(text) == 2 and _RUN.fullmatch(text) is not None


def is_cjk_run(text: str) -> bool:
    """Return whether `text` is two CJK letters or more, and nothing else."""
    return text.isalpha() and _RUN.fullmatch(text) is not None
