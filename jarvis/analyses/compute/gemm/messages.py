"""Messages of the matrix product checks."""

from jarvis.text.messages import MessageTable

SHAPES = MessageTable(
    "gemm_shapes",
    {
        "short_side.m": "M={m}",
        "short_side.n": "N={n}",
        "skinny.m": "Batch more rows (tokens, requests) into one product, so that M grows.",
        "skinny.n": "Fuse products that read the same input into one, so that N grows.",
        "tile.counted": "tile {tile} from the kernel name, {output_tiles} output tiles"
        "{for_units:message}",
        "tile.for_units": " for {compute_units} compute units",
        "tile.named": "tile {tile} from the kernel name",
        "tile.unknown": "the kernel name states no tile",
        "merge": "The {operation_count} calls come {per_module} at a time in their module: if "
        "these read one input, a merged product of N={merged_n} reads it only once. ",
        "rows.larger": "Batch more rows than M={m} into {name}: a larger output lets the kernel "
        "use larger tiles, which read less data per operation, and still fill the GPU.",
        "rows.other": "Try another batch size than M={m} for {name}: its output tiles leave about "
        "{idle_pct:.0f}% of the compute units' capacity idle.",
        "narrower.quantized": " The inputs are already quantized.",
        "narrower.wide": " If accuracy allows, bf16 inputs raise the peak and halve the bytes.",
        "narrower.8bit": " If accuracy allows, 8-bit inputs (W8A8, FP8) raise the peak and halve "
        "the bytes.",
        "misaligned.load": "its kernel loads {load_elements:count element} at once "
        "({load_bytes:size}, by its name), where aligned operands allow 16 B",
        "misaligned.fallback": "{kernel} is made for an older generation of GPUs, to which "
        "libraries fall back for operands that are not aligned",
        "misaligned.rows": "the length of rows in memory is not a multiple of 16 bytes "
        "({odd_rows:joined ; })",
        "misaligned.neighbor": "with {neighbor} the same product reaches {faster_pct:.0f}% more "
        "FLOPS/s in this trace",
        "align.pad": "Pad or trim {misaligned:joined  and } to a multiple of 64, for instance by "
        "padding the vocabulary, the sequence or the head dimension.",
        "align.layout": "Check strides and storage offsets of the operands: the sizes of M={m}, "
        "N={n}, K={k} allow aligned loads.",
        "split.request": "Request a kernel that splits K={k} ({tile_note:message}) and give "
        "{package} to the kernel team.",
        "split.done": "{kernel} splits K={k} already: give {package} to the kernel team to compare "
        "other numbers of splits.",
        "slow_batch": "The batch takes {slowdown:.0f} times its roofline time, more than the "
        "{tiny_slowdown} times that small products explain: an unsuitable kernel was probably "
        "selected.",
        "last_round": "{output_tiles} output tiles of {tile} need {rounds} rounds over "
        "{compute_units} compute units, and the last round leaves about {idle_pct:.0f}% of the "
        "total capacity idle.",
        "few_tiles": "{output_tiles:count output tile} of {tile} {output_tiles:either leaves|"
        "leave} {idle_pct:.0f}% of {compute_units} compute units without work.",
        "padded_tiles": "Only {useful_pct:.0f}% of the output tiles of {tile} is output, the rest "
        "is padding of M={m} by N={n}.",
    },
)
"""Parts of the advice, and hypotheses, that follow from the shape of a product."""

HELPERS = MessageTable(
    "helper_kernels",
    {
        "evidence.helpers": "{helpers:names}",
        "title": "Helper kernels: {name}",
        "issue": "{helpers:names} around the product take {helper_ms} ({helper_pct}) of the "
        "{time_ms} of {name}.",
        "algorithmic": "Store the weights of {arguments} in the layout that {kernel} reads, and "
        "batch the {calls} so that K does not have to be split.",
        "kernel": "Compare {kernel} with a kernel that needs no helper for {arguments}"
        "{reproduced}.",
        "verify": "Record the trace again: {helpers:names} must be gone, and {kernel} must not be "
        "slower.",
        "capture": "Time {arguments} alone with and without the helper: the trace does not show "
        "how long the product takes in another layout or without splitting K.",
    },
)

QUANTIZED = MessageTable(
    "quantized_without_gain",
    {
        "title": "Quantized without gain: {name}",
        "issue": "The {calls} of {name} ({dtype}) reach {achieved_tflops_per_s:number} TFLOP/s, "
        "less than the {wide_tflops_per_s:number} TFLOP/s of a good bf16 product, so quantization "
        "saves no time in these {time_ms}.",
        "algorithmic": "Check whether the scheme {dtype} and its calibration are worth it for "
        "{arguments}: without a faster kernel, bf16 takes no longer.",
        "kernel": "Give {package} to the kernel team to tune {kernel} ({tile_note:message}).",
        "caveat": "The finding on efficiency, if any, states the saving. A trace shows times, not "
        "accuracy.",
        "verify": "Record the trace again: {name} must exceed {wide_tflops_per_s:number} TFLOP/s.",
        "capture": "Time {arguments} alone in bf16 and in {dtype}, and evaluate the model with "
        "both.",
    },
)

REPEATED = MessageTable(
    "repeated_reads",
    {
        "title": "Weights read repeatedly: {name}",
        "issue": "The {calls} of {name} (M={m}, N={n}, K={k}) take {time_ms} ({compute_pct} of "
        "compute) at {pct_roofline:pct} of the memory roofline: each moves {moved_bytes} for "
        "{m:count row}, {weight_pct} of it weights.",
        "algorithmic": "Batch more rows than M={m} into each call (tokens, requests): the weights "
        "are read once regardless of M.{narrower_note:message}",
        "kernel": "Leave {kernel} as it is: it is close to its roofline.",
        "caveat": "The saving is not quantified: a trace does not show how many rows could be "
        "batched.",
        "verify": "Record the trace again for the same amount of output: there must be fewer than "
        "{calls}, each with more rows and hardly longer.",
        "capture": "Record batch sizes and request lengths with the trace, to see how many rows "
        "could share one of the {calls}.",
    },
)
