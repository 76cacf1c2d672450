"""Messages of the convolution checks."""

from jarvis.text.messages import MessageTable

LAYOUT = MessageTable(
    "convolution_layout",
    {
        "convolving": "; without transposes, fills and casts the heaviest call reaches "
        "{convolving_pct}",
        "keep": "Keep the layout, since transposes take hardly any of its time; "
        "{layout_then:message}.",
        "change": "Layout transposes take {transpose_pct:.0f}% of the heaviest call: "
        "{layout_first:message}. Then {layout_then:message}.",
        "change_last": "Layout transposes take {transpose_pct:.0f}% of the heaviest call although "
        "its input is in channels_last: {layout_first:message}. Then {layout_then:message}.",
        "first.card": "change the layout first, as the finding on transposes describes",
        "first.model": "convert the model to channels_last first",
        "first.weights": "convert weights and gradients too",
        "then.forward": "fuse the following normalization and activation into the {filter} "
        "convolution",
        "then.backward": "a larger batch gives the products for both gradients more work",
    },
)
"""Parts of the advice that depend on the layout of the heaviest call."""

TO_KERNEL_TEAM = MessageTable(
    "convolution_kernel_team",
    {
        "transposes": "Give a replay package of {arguments} (transposes are {share_pct} of its "
        "time) to the kernel team",
        "fills": "Give a replay package of {arguments} (fills and casts are {share_pct} of its "
        "time) to the kernel team",
        "names": "Report {kernels:names} to the kernel team",
    },
)

TRANSPOSES = MessageTable(
    "layout_transposes",
    {
        "evidence.kernels": "{kernels:names}",
        "title": "Layout transposes around convolutions",
        "issue": "Layout transposes take {transpose_ms}, {overhead_pct} of convolution time "
        "({compute_pct} of compute), in {launches} without arithmetic.",
        "algorithmic.last": "The inputs are already in channels_last: convert weights, gradients "
        "and the remaining modules too, so that no tensor changes its layout between them.",
        "algorithmic.high": "Convert the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`); this usually saves "
        "{low_pct:.0f}-{high_pct:.0f}% of convolution time.",
        "algorithmic.moderate": "Consider converting the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`).",
        "kernel": "{to_kernel_team}, to select kernels that accept the current layout.",
        "hypothesis.first": "The tensors are in channels-first layout while the selected kernels "
        "expect channels last.",
        "hypothesis.last": "Some tensors, weights or gradients are still in channels-first layout.",
        "caveat": "The low estimate assumes that half of the transposes remain at the borders of "
        "the converted part.",
        "verify": "Record the trace again: the {launches} of {kernels:names} must be "
        "gone from the convolution operators.",
        "capture": "Record one step with the DNN library's log of selected algorithms enabled: it "
        "shows which kernels it uses in either layout for {arguments:?each call}.",
    },
)

FILLS = MessageTable(
    "fills_and_casts",
    {
        "evidence.kernels": "{kernels:names}",
        "title": "Fills and casts around convolutions",
        "issue": "Kernels that only fill or convert tensors take {fill_ms}, {overhead_pct} of "
        "convolution time ({compute_pct} of compute), in {launches}{backward}.",
        "backward": ", {backward_ms} of it backward",
        "algorithmic": "Let the DNN library benchmark its algorithms (benchmark mode), so that "
        "its choice includes the cost of these kernels.",
        "kernel": "{to_kernel_team}, to select kernels that write the final dtype directly.",
        "hypothesis": "The selected kernels accumulate partial sums in a buffer of another dtype, "
        "which is cleared before and converted after.",
        "caveat": "Another algorithm may itself be slower: the saving is an upper bound.",
        "verify": "Record the trace again: the {launches} of {kernels:names} must be "
        "fewer, and convolution time less than {convolution_ms}.",
        "capture": "Record one step with the DNN library's log of selected algorithms enabled: it "
        "names the algorithm and the workspace of every convolution.",
    },
)
