"""What the checks of convolutions say."""

from jarvis.text.messages import MessageTable

LAYOUT = MessageTable(
    "convolution_layout",
    {
        "convolving": "; without transposes, fills and casts the heaviest call reaches "
        "{convolving_pct}",
        "keep": "Keep the layout, since hardly any of its time goes to transposes; "
        "{layout_then:message}.",
        "change": "{transpose_pct:.0f}% of the heaviest call are layout transposes: "
        "{layout_first:message}. Then {layout_then:message}.",
        "change_last": "{transpose_pct:.0f}% of the heaviest call are layout transposes although "
        "its input is in channels_last: {layout_first:message}. Then {layout_then:message}.",
        "first.card": "change the layout first, as the card on transposes says",
        "first.model": "convert the model to channels_last first",
        "first.weights": "convert weights and gradients too",
        "then.forward": "fuse the normalization and activation after the {filter} filter into it",
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
        "names": "Name {kernels:names} to the kernel team",
    },
)

TRANSPOSES = MessageTable(
    "layout_transposes",
    {
        "evidence.kernels": "{kernels:names}",
        "title": "Layout transposes around convolutions",
        "issue": "Layout transposes take {transpose_ms}, {overhead_pct} of convolution time "
        "({compute_pct} of compute), in {launches} that compute nothing.",
        "algorithmic.last": "The inputs are in channels_last already: convert weights, gradients "
        "and the remaining modules too, so that no tensor changes its order on the way.",
        "algorithmic.high": "Convert the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`); {low_pct:.0f}-{high_pct:.0f}% of "
        "convolution time is what this usually gives back.",
        "algorithmic.moderate": "Consider converting the model and its input to channels_last "
        "(`model.to(memory_format=torch.channels_last)`).",
        "kernel": "{to_kernel_team}, to select kernels that take the layout as it is.",
        "hypothesis.first": "The tensors are in channels-first order while the selected kernels "
        "want channels last.",
        "hypothesis.last": "Some tensors, weights or gradients are still in channels-first order.",
        "caveat": "Low assumes that half of the transposes stay at the borders of the converted "
        "part.",
        "verify": "Record the trace again: the {launches} of {kernels:names} must be "
        "gone from the convolution operators.",
        "capture": "Record one step with the DNN library's log of chosen algorithms switched on: "
        "it says which kernels it takes in either layout for {arguments:?each call}.",
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
        "algorithmic": "Let the DNN library try out its algorithms (benchmark mode), so that the "
        "cost of these kernels counts in its choice.",
        "kernel": "{to_kernel_team}, to select kernels that write the final dtype at once.",
        "hypothesis": "The chosen kernels add up parts of the sum in a buffer of another dtype, "
        "which is cleared before and converted after.",
        "caveat": "Another algorithm may be slower itself: the saving is an upper bound.",
        "verify": "Record the trace again: the {launches} of {kernels:names} must be "
        "fewer, and convolution time less than {convolution_ms}.",
        "capture": "Record one step with the DNN library's log of chosen algorithms switched on: "
        "it names the algorithm and the workspace of every convolution.",
    },
)
