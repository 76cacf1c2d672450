"""All that is compiled for reading traces: importing this module compiles or loads it.

Set-up and the start of a server do so, because a first compilation takes half a minute.
"""

from jarvis.trace import compiled_nesting, sorting, tokenizer

__all__ = ["compiled_nesting", "sorting", "tokenizer"]
