"""Holds signatures against the registry of torch: python check_registry.py < signatures.json.

Reads ``signatures``, by operator lists of ``{"overload", "arguments": [[name, type, is_keyword,
is_optional, is_written]]}``, and ``equivalents``, the operators that have one; prints what differs,
a line each. Run by a Python that has torch; no test module, and nothing of ours is imported.
"""

import json
import sys

import torch

PLAIN = {"number": "Scalar", "SymInt": "int", "AnyEnumType": "ScalarType"}
PASSED_UNRECORDED = {"Device", "Generator"}


def type_name(argument):
    text = str(argument.real_type)
    if is_optional := text.startswith("Optional["):
        text = text[len("Optional[") : -1]
    if is_list := text.startswith("List["):
        text = text[len("List[") : -1]
        if text.startswith("Optional["):
            text = text[len("Optional[") : -1] + "?"
    text = PLAIN.get(text, text)
    return f"{text}[]" if is_list else text, is_optional


def differences(operator, overload, ours):
    packet = getattr(torch.ops.aten, operator.removeprefix("aten::"), None)
    found = getattr(packet, overload or "default", None)
    if found is None:
        yield "is not in the registry"
        return
    theirs = found._schema.arguments
    if [a.name for a in theirs] != [name for name, *_ in ours]:
        yield f"has the arguments {[a.name for a in theirs]}"
        return
    for argument, (name, wanted, is_keyword, is_optional, is_written) in zip(
        theirs, ours, strict=True
    ):
        found_type, takes_nothing = type_name(argument)
        may_be_missing = takes_nothing or argument.has_default_value()
        writes = argument.alias_info is not None and argument.alias_info.is_write
        if found_type != wanted:
            yield f"{name} is a {found_type}, not a {wanted}"
        if argument.kwarg_only != is_keyword:
            yield f"{name}: passed by keyword is {argument.kwarg_only}"
        if is_optional and not may_be_missing:
            yield f"{name} may not be missing"
        is_left_out = is_optional and is_keyword and wanted not in PASSED_UNRECORDED
        if is_left_out and not argument.has_default_value():
            yield f"{name} has no default"
        if writes != is_written:
            yield f"{name}: written is {writes}"


def runs_on_cpu(operator, overload):
    name = f"{operator}.{overload}" if overload else operator
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")


table = json.load(sys.stdin)
for operator, signatures in table["signatures"].items():
    for signature in signatures:
        overload = signature["overload"]
        for difference in differences(operator, overload, signature["arguments"]):
            sys.stdout.write(f"{operator}.{overload}: {difference}\n")
        if operator not in table["equivalents"] and not runs_on_cpu(operator, overload):
            sys.stdout.write(f"{operator}.{overload}: no kernel for the CPU and no equivalent\n")
