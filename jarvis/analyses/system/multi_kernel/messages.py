"""Messages of the findings on communication."""

from jarvis.text.messages import MessageTable, action

ALL_RANKS = (
    "First ask for the other ranks: this rank cannot say how much of the {exposed_ms} is transfer. "
    "Analyze the traces of all ranks together (jarvis analyze FOLDER)."
)

MESSAGES = MessageTable(
    "communication",
    {
        "exposed.title": "Collective communication blocks compute",
        "exposed.issue": "Collective communication is exposed for {exposed_ms} ({wall_pct} of "
        "{whole}) of its {total_ms}, and the GPU computes nothing meanwhile{longest}."
        "{small}{staging}",
        "exposed.issue.small": " {small_collectives:count message} of {collective} "
        "{small_collectives:either is|are} small: {mean_bytes:size} on average.",
        "exposed.issue.staging": " Copies into and out of the buffers of collectives take "
        "{staging_ms} besides, as compute.",
        "exposed.issue.longest": "; most time goes to {kind} with {rate}",
        "exposed.algorithmic": [
            ALL_RANKS,
            action(
                "Start gradient reductions asynchronously during the backward pass.",
                "reduces_gradients",
                "communication_starts_late",
            ),
            "Split the batch so that one part computes while the other communicates.",
        ],
        "exposed.algorithmic.bucket": action(
            "Bundle the small messages into buckets.", "reduces_gradients"
        ),
        "exposed.algorithmic.slow": f"{ALL_RANKS} If ranks are late, look for uneven batches, slow "
        "data loading or work that only one rank does: message size hardly matters.{hide}",
        "hide": [
            action(
                " Then start the reductions early in the backward pass.",
                "reduces_gradients",
                "communication_starts_late",
            ),
            action(
                " Then split the batch so that one part computes while the other communicates.",
                "not reduces_gradients",
            ),
        ],
        "exposed.kernel": [
            "Check topology, interconnect and library settings.",
            action(
                "Run communication on a separate stream.", "communication_shares_compute_stream"
            ),
            action("Size the buckets to the available compute.", "reduces_gradients"),
        ],
        "exposed.kernel.slow": "Time {collective} of {message_bytes} alone on the same GPUs: if it "
        "takes far less than {mean_ms}, ranks wait for each other; if not, check topology, "
        "interconnect and library settings.",
        "exposed.hypothesis": [
            action(
                "Collectives start late, or ranks wait for each other.", "communication_starts_late"
            ),
            action(
                "Ranks wait for each other, or the transfers take longer than the compute beside "
                "them.",
                "not communication_starts_late",
            ),
        ],
        "exposed.hypothesis.slow": "Ranks wait for each other, or the transfer takes a slow path: "
        "every link between the GPUs of one machine carries more than {gb_per_s:.3g} GB/s.",
        "exposed.verify": "Record the trace again, on all ranks if possible: exposed communication "
        "must fall.",
        "caveat.single_rank": "One rank cannot distinguish the transfer from waiting for slower "
        "ranks; compare all ranks before naming a cause.",
        "caveat.no_details": "Types, message sizes and groups of the collectives are not "
        "available.",
        "capture": "Record the same step on all ranks: the last rank to reach a collective does "
        "not wait, so only all ranks together separate transfer from waiting.",
        "kind": "{count} x {collective} of {message_bytes}{over}",
        "kind.over": " over {ranks} ranks",
        "kind.rate": "{mean_ms}{count:either | each} ({gb_per_s:number} GB/s)",
        "evidence.kind": "{kind}, {rate}",
        "evidence.kinds": "{kinds:joined ; }",
        "overlap.title": "Compute hides too little of the communication",
        "overlap.title.critical": "Compute hides little of the communication",
        "overlap.issue": "Only {overlap_pct} of {communication_ms} of communication overlaps with "
        "compute; more than {target_pct:.0f}% is good.",
        "overlap.algorithmic": [
            action(
                "Let reductions run asynchronously during the backward pass, with buckets that "
                "fill early.",
                "reduces_gradients",
                "communication_starts_late",
            ),
            action(
                "Overlap the compute of one part of the batch with the communication of another.",
                "not reduces_gradients",
            ),
            action(
                "Split large collectives, so that their first parts can be used early.",
                "not reduces_gradients",
                "messages_are_large",
            ),
        ],
        "overlap.kernel": [
            action(
                "Run communication on a stream of its own.", "communication_shares_compute_stream"
            ),
            action(
                "Give the stream of communication a higher priority.",
                "has_several_streams",
                "not communication_shares_compute_stream",
                "communication_starts_late",
            ),
            action(
                "Reserve compute units for communication, so that its kernels start as soon as the "
                "data is ready.",
                "communication_starts_late",
            ),
            action(
                "Check topology, interconnect and library settings. Communication that takes "
                "longer than the compute beside it can only become faster or less{part}.",
                "not communication_starts_late",
            ),
        ],
        "overlap.part": ": this saving is a part of that of exposed communication",
        "overlap.hypothesis": [
            action(
                "Communication is issued only after the compute that could hide it has ended.",
                "communication_starts_late",
            ),
            action(
                "Communication starts while compute runs, and takes longer than that compute.",
                "not communication_starts_late",
            ),
        ],
        "overlap.caveat": "Only {free_ms} of compute runs without communication, so overlap alone "
        "cannot reach {target_pct:.0f}%: the rest needs less or faster communication.",
        "overlap.verify": "Record the trace again: the overlap ratio must rise and the total time "
        "fall.",
        "description.exposed": "Communication is exposed for {wall_pct} of the GPU window.",
        "description.overlap": "{overlap_pct} of communication overlaps with compute.",
        "description.little": "Less than {least_ms:number} ms of communication: there is nothing "
        "to hide.",
    },
)
