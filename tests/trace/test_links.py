"""Links of GPU events to runtime calls, and of backward to forward operators."""

import polars as pl

from jarvis.trace import Trace
from jarvis.trace.links import BACKWARD_PREFIX, link_column
from tests.builders import TraceBuilder, trace


def links(read: Trace) -> list[tuple[str, str]]:
    calls = read.runtime.select(runtime_uid="uid", call="name")
    gpu = read.gpu_events.select(gpu_uid="uid", kernel="name")
    joined = read.launches.join(calls, on="runtime_uid").join(gpu, on="gpu_uid")
    return joined.sort("link_index").select("call", "kernel").rows()


def test_a_launch_owns_the_event_to_which_its_arrow_points() -> None:
    read = trace().op("x").launches("a").launches("b", call="cudaMemcpyAsync").read()
    assert links(read) == [("cudaLaunchKernel", "a"), ("cudaMemcpyAsync", "b")]


def test_a_graph_launch_owns_all_events_with_its_id() -> None:
    read = trace().graph(("a", 1.0), ("b", 1.0)).graph(("c", 1.0), call="hipGraphLaunch").read()
    assert links(read) == [
        ("cudaGraphLaunch", "a"),
        ("cudaGraphLaunch", "b"),
        ("hipGraphLaunch", "c"),
    ]


def test_graph_launches_are_known_by_their_exact_name() -> None:
    built = trace().op("x").launches("b").graph(("a", 1.0), call="cudaGraphLaunch_v10000")
    assert links(built.read()) == [("cudaLaunchKernel", "b")]


def test_without_the_start_of_an_arrow_there_is_no_link() -> None:
    built = trace().op("x").launches("a")
    built.events = [event for event in built.events if event.get("ph") != "s"]
    assert links(built.read()) == []


def test_an_arrow_back_to_the_runtime_call_links_nothing() -> None:
    built = trace().op("x").launches("a")
    for event in built.events:
        if event.get("ph") == "f":
            event |= {"pid": 100, "tid": 1}
    assert links(built.read()) == []


def test_external_id_links_where_launches_carry_no_correlation() -> None:
    built = trace().op("x").launches("a")
    for event in built.events:
        args = event.get("args", {})
        if "correlation" in args:
            args["External id"] = args.pop("correlation")
    read = built.read()
    assert link_column(read.runtime) == "external_id"
    assert links(read) == [("cudaLaunchKernel", "a")]


def test_two_calls_with_one_id_both_own_the_event() -> None:
    built = trace().op("x").launches("a").launches("b")
    for event in built.events:
        if event.get("cat") == "cuda_runtime":
            event["args"]["correlation"] = 1
    assert links(built.read()) == [("cudaLaunchKernel", "a"), ("cudaLaunchKernel", "a")]


def without_arrows(built: TraceBuilder) -> TraceBuilder:
    built.events = [event for event in built.events if event.get("cat") != "ac2g"]
    return built


def test_a_trace_without_any_arrow_links_by_correlation() -> None:
    built = trace().op("x").launches("a").runtime("cudaStreamSynchronize").launches("b")
    assert links(without_arrows(built).read()) == [
        ("cudaLaunchKernel", "a"),
        ("cudaLaunchKernel", "b"),
    ]


def test_without_arrows_each_event_belongs_to_one_call_only() -> None:
    built = without_arrows(trace().op("x").launches("a").launches("b"))
    for event in built.events:
        if event.get("cat") == "cuda_runtime":
            event["args"]["correlation"] = 1
    read = built.read()
    calls = read.runtime["uid"].to_list()
    assert read.launches.select("runtime_uid", "gpu_uid").rows() == [
        (calls[1], read.gpu_events["uid"][0])
    ]


def test_without_arrows_an_unknown_correlation_links_nothing() -> None:
    built = without_arrows(trace().op("x").launches("a").launches("b"))
    for event in built.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] = 0
    assert links(built.read()) == []


def test_without_arrows_and_correlations_the_calls_of_an_op_share_its_events_in_order() -> None:
    built = trace().op("x").launches("a").runtime("cudaStreamSynchronize")
    built = without_arrows(built.launches("b", call="cudaGraphLaunch").unlinked("c"))
    for event in built.events:
        if event["cat"] in ("cuda_runtime", "kernel"):
            event["args"] = {"External id": 5}
    assert links(built.read()) == [
        ("cudaLaunchKernel", "a"),
        ("cudaGraphLaunch", "b"),
        ("cudaGraphLaunch", "c"),
    ]


def backwards(read: Trace) -> list[tuple[str, str]]:
    names = read.cpu_ops.select("uid", "name")
    joined = read.backwards.join(names, left_on="backward_uid", right_on="uid").join(
        names, left_on="forward_uid", right_on="uid", suffix="_forward"
    )
    return joined.select("name", "name_forward").rows()


def test_backward_belongs_to_the_last_op_with_its_number_on_another_thread() -> None:
    built = trace().op("aten::linear", seq=3).child("aten::addmm", seq=3).up(2)
    built.thread(2).waits(100).op(BACKWARD_PREFIX + " AddmmBackward0", seq=3)
    built.child("AddmmBackward0", seq=3)
    assert backwards(built.read()) == [(BACKWARD_PREFIX + " AddmmBackward0", "aten::addmm")]


def test_the_first_autograd_node_of_a_sequence_number_counts() -> None:
    built = trace().op("aten::mul", seq=3).up().thread(2)
    built.op(BACKWARD_PREFIX + " A", seq=3).op(BACKWARD_PREFIX + " B", seq=3)
    assert backwards(built.read()) == [(BACKWARD_PREFIX + " A", "aten::mul")]


def test_backward_on_the_forwards_own_thread_is_not_linked() -> None:
    built = trace().op("aten::mul", seq=3).op(BACKWARD_PREFIX + " MulBackward0", seq=3)
    read = built.read()
    assert read.backwards.is_empty()
    assert read.backwards.schema == {"backward_uid": pl.Int64, "forward_uid": pl.Int64}
