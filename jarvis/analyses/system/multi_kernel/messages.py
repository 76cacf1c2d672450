"""Messages about communication."""

from jarvis.text.messages import MessageTable

MESSAGES = MessageTable(
    "communication",
    {
        "exposed.title": "Collective communication blocks compute",
        "exposed.issue": "Collective communication is exposed for {exposed_ms} ({wall_pct} of GPU "
        "wall time) of its {total_ms}, and the GPU computes nothing meanwhile{longest}.",
        "exposed.issue.longest": "; most time goes to {kind} with {rate}",
        "exposed.algorithmic.training": "Start gradient reductions asynchronously during the "
        "backward pass and pipeline micro-batches; send less, by accumulation, compression or "
        "quantization of large messages.",
        "exposed.algorithmic.inference": "Split the batch so that one part computes while the "
        "other communicates; send less, by fewer and fused collectives, or by compression or "
        "quantization of large messages.",
        "exposed.algorithmic.slow": "First look for the cause of late ranks, such as uneven "
        "batches, slow data loading or work that only one rank does: message size hardly matters. "
        "Then {hide}.",
        "hide.training": "start the reductions early in the backward pass, and make them fewer by "
        "accumulating gradients over micro-batches",
        "hide.inference": "split the batch so that one part computes while the other communicates",
        "exposed.kernel": "Check topology, interconnect and library settings, and run "
        "communication on a separate stream with buckets sized to the available compute.",
        "exposed.kernel.slow": "Time {collective} of {message_bytes} alone on the same GPUs: if it "
        "takes far less than {mean_ms}, ranks wait for each other; if not, check topology, "
        "interconnect and library settings.",
        "exposed.hypothesis": "Collectives start late, or ranks wait for each other.",
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
        "overlap.title": "Compute and communication overlap too little",
        "overlap.title.critical": "Compute and communication barely overlap",
        "overlap.issue": "Only {overlap_pct} of {communication_ms} of communication overlaps with "
        "compute; more than {target_pct:.0f}% is good.",
        "overlap.algorithmic.training": "Let reductions run asynchronously during the backward "
        "pass, with buckets that fill early, and overlap one micro-batch's compute with the "
        "communication of another.",
        "overlap.algorithmic.inference": "Overlap the compute of one part of the batch with the "
        "communication of another, and split large collectives so that their first parts can be "
        "used early.",
        "overlap.kernel": "Give communication a stream of higher priority and reserve compute "
        "units for it, so that its kernels start as soon as the data is ready.",
        "overlap.hypothesis": "Communication is issued only after the compute that could hide it "
        "has ended.",
        "overlap.caveat": "Only {free_ms} of compute runs without communication, so overlap alone "
        "cannot reach {target_pct:.0f}%: the rest needs less or faster communication.",
        "overlap.verify": "Record the trace again: the overlap ratio must rise and the total time "
        "fall.",
        "description.exposed": "Communication is exposed for {wall_pct} of GPU wall time.",
        "description.overlap": "{overlap_pct} of communication overlaps with compute.",
        "description.little": "Less than {least_ms:number} ms of communication: there is nothing "
        "to hide.",
    },
)
