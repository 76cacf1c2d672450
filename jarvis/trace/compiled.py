"""Compile or load all kernels for reading traces by importing this module.

Setup and server start do so, because the first compilation takes half a minute.
"""

from jarvis.trace import compiled_nesting, sorting, tokenizer

__all__ = ["compiled_nesting", "sorting", "tokenizer"]
