"""Compiled tokenizer: bytes of a trace to columns of numbers; texts become dictionary codes.

The kernels read a block of bytes and stop before the first event that does not end in it. They are
strict first; ``lenient`` also accepts quotes inside strings, and takes a quote as the closing one
only if valid JSON can follow. Indices are in range by construction: blocks and the dictionary's
arena have ``PADDING`` bytes after their end, and positions are compared with ``end`` before use.

All kernels are in this file because numba checks only a kernel's own file for changes.
"""

from enum import IntEnum

import numpy as np

from jarvis.trace.jit import helper, inlined, kernel, types
from jarvis.trace.layout import (
    ARGS,
    ARGUMENT_KEY,
    CODE,
    INTEGER,
    JSON,
    MISSING_NS,
    NULL,
    PADDING,
    STRING,
    TEXT_KEYS,
    TOP_KEY,
    TS,
    Batch,
    Dictionary,
)

INCOMPLETE = -1
MALFORMED = -2
DICTIONARY_FULL = -3
PAIRS_FULL = -4
"""Negative positions: the block ends first; not JSON; the arrays are full."""

MAX_LENIENT_STRING_LENGTH = 1 << 16

BATCH_FULL, END_OF_EVENTS = 1, 2
"""Nonnegative return values of ``read_events``; errors are negative."""


class At(IntEnum):
    """Indices into the state array of ``read_events``."""

    POSITION = 0
    ROWS = 1
    PAIRS = 2
    NEXT_UID = 3
    AFTER_COMMA = 4
    AFTER_EVENT = 5
    TRAILING_COMMAS = 6
    MISSING_COMMAS = 7
    NOT_A_NUMBER = 8
    TEXT_IN_NAME = 9
    NOT_AN_EVENT = 10


_POSITION, _ROWS, _PAIRS, _NEXT_UID = 0, 1, 2, 3
_AFTER_COMMA, _AFTER_EVENT = 4, 5
_TRAILING_COMMAS, _MISSING_COMMAS, _NOT_A_NUMBER, _TEXT_IN_NAME, _NOT_AN_EVENT = 6, 7, 8, 9, 10

_U = np.uint64
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_MIX = np.uint64(0x9E3779B97F4A7C15)

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN_BRACE, _CLOSE_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = 0x7B, 0x7D, 0x5B, 0x5D
_N_OF_NULL, _N_OF_NAN, _I_OF_INFINITY = 0x6E, 0x4E, 0x49
_MINUS, _PLUS, _DOT, _ZERO, _SEVEN, _NINE = 0x2D, 0x2B, 0x2E, 0x30, 0x37, 0x39

_INT64_MAX = np.iinfo(np.int64).max

_BYTES = types.uint8[::1]
_DICTIONARY = types.NamedTuple(
    [
        types.int32[::1],
        types.uint64[::1],
        types.int64[::1],
        types.int32[::1],
        types.uint8[::1],
        types.uint8[::1],
        types.int64[::1],
        types.int32[::1],
    ],
    Dictionary,
)
_BATCH = types.NamedTuple(
    [
        types.int32[:, ::1],
        types.int64[:, ::1],
        types.int64[::1],
        types.int32[::1],
        types.int32[::1],
        types.uint8[::1],
        types.int64[::1],
    ],
    Batch,
)


@inlined
def _word(text, p):
    """Return eight bytes from ``p``, little-endian; compiled to a single load."""
    q = _U(p)
    return (
        _U(text[q])
        | (_U(text[q + _U(1)]) << _U(8))
        | (_U(text[q + _U(2)]) << _U(16))
        | (_U(text[q + _U(3)]) << _U(24))
        | (_U(text[q + _U(4)]) << _U(32))
        | (_U(text[q + _U(5)]) << _U(40))
        | (_U(text[q + _U(6)]) << _U(48))
        | (_U(text[q + _U(7)]) << _U(56))
    )


@inlined
def _skip_space(text, p, end):
    """Return the first position from ``p`` that is not white space, at most ``end``."""
    while p < end:
        c = text[_U(p)]
        if c > 0x20 or not (c == 0x20 or c == 0x0A or c == 0x0D or c == 0x09):
            return p
        p += 1
    return p


@kernel("int64(uint8[::1], int64, int64)")
def skip_space(text, p, end):
    """Call ``_skip_space`` from Python."""
    return _skip_space(text, p, end)


@inlined
def _string_end(text, p, end):
    """Return the position of the closing quote of a string with content at ``p``, or INCOMPLETE."""
    while p < end:
        word = _word(text, p)
        quotes = word ^ _QUOTES
        slashes = word ^ _BACKSLASHES
        hits = (((quotes - _ONES) & ~quotes) | ((slashes - _ONES) & ~slashes)) & _HIGH
        if hits == _U(0):
            p += 8
            continue
        while hits & _U(0x80) == _U(0):
            hits >>= _U(8)
            p += 1
        if p >= end:
            return INCOMPLETE
        if text[_U(p)] == _QUOTE:
            return p
        p += 2
    return INCOMPLETE


@helper
def _lenient_string_end(text, p, end, is_key):
    """Like ``_string_end``, but treat a quote as text if no valid JSON can follow it."""
    begin = p
    while True:
        p = _string_end(text, p, end)
        if p < 0:
            return INCOMPLETE if end - begin <= MAX_LENIENT_STRING_LENGTH else MALFORMED
        if p - begin > MAX_LENIENT_STRING_LENGTH:
            return MALFORMED
        q = _skip_space(text, p + 1, end)
        if q >= end:
            return INCOMPLETE
        c = text[q]
        if is_key:
            if c == _COLON:
                return p
        elif c == _CLOSE_BRACE or c == _COMMA:
            r = _skip_space(text, q + 1, end)
            if r >= end:
                return INCOMPLETE
            d = text[r]
            if c == _CLOSE_BRACE:
                if d == _COMMA or d == _CLOSE_BRACE or d == _CLOSE_BRACKET:
                    return p
            elif d == _CLOSE_BRACE:
                return p
            elif d == _QUOTE:
                r = _string_end(text, r + 1, end)
                if r < 0:
                    return INCOMPLETE
                r = _skip_space(text, r + 1, end)
                if r >= end:
                    return INCOMPLETE
                if text[r] == _COLON:
                    return p
        p += 1


@kernel("int64(uint8[::1], int64, int64)")
def skip_value(text, p, end):
    """Return the position after the JSON value at ``p``, or INCOMPLETE, or MALFORMED.

    Brackets are counted, not matched; the caller parses the value.
    """
    if p >= end:
        return INCOMPLETE
    c = text[p]
    if c == _QUOTE:
        p = _string_end(text, p + 1, end)
        return p + 1 if p >= 0 else INCOMPLETE
    if c != _OPEN_BRACE and c != _OPEN_BRACKET:
        begin = p
        while p < end:
            c = text[_U(p)]
            if c <= 0x20 or c == _COMMA or c == _CLOSE_BRACE or c == _CLOSE_BRACKET or c == _COLON:
                return p if p > begin else MALFORMED
            if c == _QUOTE or c == _OPEN_BRACE or c == _OPEN_BRACKET:
                return MALFORMED
            p += 1
        return INCOMPLETE
    depth = 0
    while p < end:
        c = text[_U(p)]
        if c == _QUOTE:
            p = _string_end(text, p + 1, end)
            if p < 0:
                return INCOMPLETE
        elif c == _OPEN_BRACKET or c == _OPEN_BRACE:
            depth += 1
        elif c == _CLOSE_BRACKET or c == _CLOSE_BRACE:
            depth -= 1
            if depth == 0:
                return p + 1
        p += 1
    return INCOMPLETE


@helper
def _float_nanoseconds(text, p, end, result):
    """Like ``_nanoseconds`` for a number with an exponent, in double precision."""
    negative = text[p] == _MINUS
    if negative:
        p += 1
    value = 0.0
    scale = 0
    after_point = False
    while p < end:
        c = np.int64(text[p])
        if c >= _ZERO and c <= _NINE:
            value = value * 10.0 + (c - _ZERO)
            if after_point:
                scale -= 1
        elif c == _DOT and not after_point:
            after_point = True
        else:
            break
        p += 1
    exponent = 0
    falls = False
    if p < end and (text[p] == 0x65 or text[p] == 0x45):
        p += 1
        if p < end and (text[p] == _MINUS or text[p] == _PLUS):
            falls = text[p] == _MINUS
            p += 1
        while p < end and text[p] >= _ZERO and text[p] <= _NINE:
            exponent = min(exponent * 10 + (np.int64(text[p]) - _ZERO), 1000)
            p += 1
    nanoseconds = np.floor(value * 10.0 ** (scale + 3 + (-exponent if falls else exponent)) + 0.5)
    if nanoseconds < 9.2e18:
        result[0] = np.int64(-nanoseconds if negative else nanoseconds)
    else:
        result[0] = MISSING_NS
    return p


@helper
def _nanoseconds(text, p, end, result):
    """Convert decimal microseconds to integer nanoseconds, rounding halves away from zero.

    Sets ``result[0]`` (MISSING_NS beyond 64 bits) and returns the position after the number.
    """
    begin = p
    negative = text[p] == _MINUS
    if negative:
        p += 1
    mantissa = np.int64(0)
    missing_digits = 3  # of the three after the point
    after_point = False
    dropped = -1
    fits = True
    while p < end:
        c = np.int64(text[_U(p)])
        if c >= _ZERO and c <= _NINE:
            if not after_point or missing_digits > 0:
                if mantissa > _INT64_MAX // 10 or (mantissa == _INT64_MAX // 10 and c > _SEVEN):
                    fits = False
                else:
                    mantissa = mantissa * 10 + (c - _ZERO)
                if after_point:
                    missing_digits -= 1
            elif dropped < 0:
                dropped = c - _ZERO
        elif c == _DOT and not after_point:
            after_point = True
        elif c == 0x65 or c == 0x45:  # an exponent
            return _float_nanoseconds(text, begin, end, result)
        else:
            break
        p += 1
    for _ in range(missing_digits):
        if mantissa > _INT64_MAX // 10:
            fits = False
        else:
            mantissa *= 10
    if dropped >= 5:
        mantissa += 1
    result[0] = (-mantissa if negative else mantissa) if fits else MISSING_NS
    return p


@inlined
def _integer(text, p, end, result):
    """Parse an integer of at most 18 digits into ``result[0]``; return the position after it.

    MALFORMED for another kind of number, INCOMPLETE if the number may continue.
    """
    negative = text[p] == _MINUS
    if negative:
        p += 1
    first = p
    value = np.int64(0)
    while p < end:
        c = np.int64(text[_U(p)])
        if c < _ZERO or c > _NINE:
            break
        if p - first == 18:
            return MALFORMED
        value = value * 10 + (c - _ZERO)
        p += 1
    if p >= end:
        return INCOMPLETE
    c = np.int64(text[p])
    if p == first or c == _DOT or c == 0x65 or c == 0x45:
        return MALFORMED
    result[0] = -value if negative else value
    return p


@inlined
def _same(text, p, other, q, length):
    """Return whether ``length`` bytes are equal; both texts are padded."""
    while length >= 8:
        if _word(text, p) != _word(other, q):
            return False
        p += 8
        q += 8
        length -= 8
    if length == 0:
        return True
    unused = _U(8 * (8 - length))
    return (_word(text, p) << unused) == (_word(other, q) << unused)


@inlined
def _hash(text, p, q, kind, seed):
    h = _U(seed) ^ (_U(q - p) * _MIX) ^ _U(kind)
    while p + 8 <= q:
        h = (h ^ _word(text, p)) * _MIX
        h ^= h >> _U(32)
        p += 8
    if p < q:
        h = (h ^ (_word(text, p) << _U(8 * (8 - (q - p))))) * _MIX
        h ^= h >> _U(32)
    return h


@helper
def _insert(text, p, q, kind, h, d):
    """Add the entry ``text[p:q]`` with the hash ``h``; return its code, or DICTIONARY_FULL."""
    code = d.sizes[0]
    used = d.sizes[1]
    length = q - p
    if code >= len(d.hashes) or 2 * code >= len(d.slots) or used + length + PADDING > len(d.arena):
        return DICTIONARY_FULL
    mask = _U(len(d.slots) - 1)
    slot = h & mask
    while d.slots[slot] >= 0:
        slot = (slot + _U(1)) & mask
    for i in range(length):
        d.arena[used + i] = text[p + i]
    d.slots[slot] = code
    d.hashes[code] = h
    d.starts[code] = used
    d.lengths[code] = length
    d.kinds[code] = kind
    d.sizes[0] = code + 1
    d.sizes[1] = used + length
    return code


@kernel(types.int64(_BYTES, types.int64, types.int64, types.int64, _DICTIONARY))
def intern(text, p, q, kind, d):
    """Return the code of ``text[p:q]``; add a new entry if needed, or return DICTIONARY_FULL."""
    length = q - p
    h = _hash(text, p, q, kind, d.sizes[2])
    mask = _U(len(d.slots) - 1)
    slot = h & mask
    while True:
        code = np.int64(d.slots[slot])
        if code < 0:
            return _insert(text, p, q, kind, h, d)
        if (
            d.hashes[code] == h
            and d.lengths[code] == length
            and d.kinds[code] == kind
            and _same(text, p, d.arena, d.starts[code], length)
        ):
            return code
        slot = (slot + _U(1)) & mask


@kernel(types.void(types.int32[::1], types.uint64[::1], types.int64))
def rehash(slots, hashes, count):
    """Fill empty (-1) ``slots`` with the codes of ``count`` entries."""
    mask = _U(len(slots) - 1)
    for code in range(count):
        slot = hashes[code] & mask
        while slots[slot] >= 0:
            slot = (slot + _U(1)) & mask
        slots[slot] = code


@kernel(types.void(_DICTIONARY))
def hash_all(d):
    """Compute the hashes of all entries of a dictionary."""
    for code in range(d.sizes[0]):
        begin = d.starts[code]
        d.hashes[code] = _hash(d.arena, begin, begin + d.lengths[code], d.kinds[code], d.sizes[2])


@inlined
def _closing_quote(text, p, end, lenient, is_key):
    if lenient:
        return _lenient_string_end(text, p, end, is_key)
    return _string_end(text, p, end)


@helper
def _key(text, p, end, lenient, previous, d):
    """Return the code of the key with content at ``p``, or a negative reason."""
    last = _closing_quote(text, p, end, lenient, True)
    if last < 0:
        return last
    in_arguments = previous == 1 or (previous > 1 and d.kinds[previous - 2] == ARGUMENT_KEY)
    code = intern(text, p, last, ARGUMENT_KEY if in_arguments else TOP_KEY, d)
    if code >= 0:
        d.follows[previous] = code
    return code


@helper
def _literal(text, p):
    """Return the kind of the bare word at ``p``: CODE, NULL (null), or -NULL (NaN, Infinity)."""
    c = text[p]
    if c == _N_OF_NULL:
        return NULL
    if c == _N_OF_NAN or c == _I_OF_INFINITY or (c == _MINUS and text[p + 1] == _I_OF_INFINITY):
        return -NULL
    return CODE


@kernel(types.int64(_BYTES, types.int64, types.boolean, _DICTIONARY, _BATCH, types.int64[::1]))
def read_events(text, end, lenient, d, b, state):
    """Read events from ``state[POSITION]`` until the block or the list ends, or buffers are full.

    ``lenient`` applies to the first event only. Returns BATCH_FULL, END_OF_EVENTS or a negative
    reason; ``state[POSITION]`` is then the start of the unread text.
    """
    result = np.zeros(2, np.int64)
    slots, hashes, starts, lengths = d.slots, d.hashes, d.starts, d.lengths
    kinds, arena, follows = d.kinds, d.arena, d.follows
    codes, times = b.codes, b.times
    pair_rows, pair_keys, pair_kinds, pair_values = (
        b.pair_rows,
        b.pair_keys,
        b.pair_kinds,
        b.pair_values,
    )
    uids = b.uids
    seed = d.sizes[2]
    mask = _U(len(slots) - 1)
    p = state[_POSITION]
    row = state[_ROWS]
    while row < len(uids):
        p = _skip_space(text, p, end)
        state[_POSITION] = p
        if p >= end:
            return INCOMPLETE
        c = text[p]
        if c == _COMMA:
            if state[_AFTER_COMMA] or not state[_AFTER_EVENT]:
                state[_TRAILING_COMMAS] += 1
            state[_AFTER_COMMA] = 1
            p += 1
            continue
        if c == _CLOSE_BRACKET:
            state[_TRAILING_COMMAS] += state[_AFTER_COMMA]
            state[_POSITION] = p + 1
            return END_OF_EVENTS
        if c == _CLOSE_BRACE or c == _COLON:
            return MALFORMED
        if c != _OPEN_BRACE:
            p = skip_value(text, p, end)
            if p < 0:
                return p
            state[_NOT_AN_EVENT] += 1
        else:
            p += 1
            pairs = state[_PAIRS]
            for key in range(TEXT_KEYS):
                codes[key, row] = -1
            times[0, row] = MISSING_NS
            times[1, row] = MISSING_NS
            trailing_commas = 0
            missing_commas = 0
            not_numbers = 0
            in_arguments = False
            is_first = True
            after_comma = False
            previous = 0
            while True:
                p = _skip_space(text, p, end)
                if p >= end:
                    return INCOMPLETE
                c = text[p]
                if c == _COMMA:
                    if after_comma or is_first:
                        return MALFORMED
                    after_comma = True
                    p = _skip_space(text, p + 1, end)
                    if p >= end:
                        return INCOMPLETE
                    c = text[p]
                if c == _CLOSE_BRACE:
                    if after_comma:
                        trailing_commas += 1
                    p += 1
                    if not in_arguments:
                        break
                    in_arguments = False
                    previous = ARGS + 2
                    is_first = False
                    after_comma = False
                    continue
                if c != _QUOTE:
                    return MALFORMED
                if not is_first and not after_comma:
                    missing_commas += 1
                p += 1
                key = np.int64(follows[previous])
                if key >= 0:
                    length = np.int64(lengths[key])
                    if not (
                        p + length < end
                        and text[p + length] == _QUOTE
                        and _same(text, p, arena, starts[key], length)
                    ):
                        key = -1
                if key < 0:
                    key = _key(text, p, end, lenient, previous, d)
                    if key < 0:
                        return key
                p += np.int64(lengths[key]) + 1
                previous = key + 2
                p = _skip_space(text, p, end)
                if p >= end:
                    return INCOMPLETE
                if text[p] != _COLON:
                    return MALFORMED
                p = _skip_space(text, p + 1, end)
                if p >= end:
                    return INCOMPLETE
                is_first = False
                after_comma = False
                c = text[p]
                if not in_arguments and key >= TS and key <= ARGS:
                    if key == ARGS:
                        for pair in range(state[_PAIRS], pairs):  # of an earlier "args"
                            if kinds[pair_keys[pair]] == ARGUMENT_KEY:
                                pair_kinds[pair] = NULL
                        if c == _OPEN_BRACE:
                            in_arguments = True
                            is_first = True
                            previous = 1
                            p += 1
                        else:
                            p = skip_value(text, p, end)
                    elif (c >= _ZERO and c <= _NINE) or (
                        c == _MINUS and text[p + 1] >= _ZERO and text[p + 1] <= _NINE
                    ):
                        p = _nanoseconds(text, p, end, result)
                        if p >= end:
                            return INCOMPLETE
                        times[key - TS, row] = result[0]
                    else:
                        if _literal(text, p) == -NULL:
                            not_numbers += 1
                        times[key - TS, row] = MISSING_NS
                        p = skip_value(text, p, end)
                    if p < 0:
                        return p
                    continue
                is_text = not in_arguments and key < TEXT_KEYS
                what = CODE
                value = np.int64(0)
                last = MALFORMED
                begin = p
                if c == _QUOTE:
                    begin += 1
                    last = _closing_quote(text, begin, end, lenient, False)
                    p = last + 1
                else:
                    if not is_text and (c == _MINUS or (c >= _ZERO and c <= _NINE)):
                        last = _integer(text, begin, end, result)
                    if last >= 0:
                        what = INTEGER
                        value = result[0]
                    else:
                        last = skip_value(text, begin, end)
                        what = _literal(text, begin)
                        if what < 0:
                            what = NULL
                            not_numbers += 1
                    p = last
                if last < 0:
                    return last
                if what == CODE:
                    kind = STRING if c == _QUOTE else JSON
                    length = last - begin
                    h = _hash(text, begin, last, kind, seed)
                    slot = h & mask
                    while True:
                        value = np.int64(slots[slot])
                        if value < 0:
                            value = _insert(text, begin, last, kind, h, d)
                            if value < 0:
                                return value
                            break
                        if (
                            hashes[value] == h
                            and lengths[value] == length
                            and kinds[value] == kind
                            and _same(text, begin, arena, starts[value], length)
                        ):
                            break
                        slot = (slot + _U(1)) & mask
                if is_text:
                    codes[key, row] = value if what == CODE else -1
                else:
                    if pairs >= len(pair_rows):
                        return PAIRS_FULL
                    pair_rows[pairs] = row
                    pair_keys[pairs] = key
                    pair_kinds[pairs] = what
                    pair_values[pairs] = value
                    pairs += 1
            uids[row] = state[_NEXT_UID]
            row += 1
            state[_ROWS] = row
            state[_PAIRS] = pairs
            state[_TRAILING_COMMAS] += trailing_commas
            state[_MISSING_COMMAS] += missing_commas
            state[_NOT_A_NUMBER] += not_numbers
            if lenient:
                state[_TEXT_IN_NAME] += 1
        if state[_AFTER_EVENT] and not state[_AFTER_COMMA]:
            state[_MISSING_COMMAS] += 1
        state[_POSITION] = p
        state[_NEXT_UID] += 1
        state[_AFTER_EVENT] = 1
        state[_AFTER_COMMA] = 0
        lenient = False
    return BATCH_FULL


@kernel(types.int64(_BYTES, types.int64, types.int64))
def find_event(text, p, end):
    """Return the position of the next event, to resume after invalid JSON.

    That is an opening brace followed by a quote and preceded by another event's closing brace, or
    the bracket that ends the events. INCOMPLETE if there is none before ``end``.
    """
    while p < end:
        if text[_U(p)] != _CLOSE_BRACE:
            p += 1
            continue
        q = _skip_space(text, p + 1, end)
        if q < end and text[q] == _COMMA:
            q = _skip_space(text, q + 1, end)
        if q >= end:
            return INCOMPLETE
        r = _skip_space(text, q + 1, end)
        if r >= end:
            return INCOMPLETE
        if text[q] == _OPEN_BRACE and text[r] == _QUOTE:
            return q
        if text[q] == _CLOSE_BRACKET and (text[r] == _COMMA or text[r] == _CLOSE_BRACE):
            return q
        p += 1
    return INCOMPLETE
