"""The trace of the stored links of all releases: every category, and many rows.

It was written once and must not change, else links of earlier releases would lead nowhere.
"""

import gzip
import json
from pathlib import Path

from jarvis.server import queue
from jarvis.server.database import database
from jarvis.server.jobs.kinds import Export
from jarvis.server.submission import Submission, resubmit, submit
from tests.builders import trace

TRACE = Path(__file__).parent / "links" / "trace.json.gz"
_REFERENCE_GPU = "H100 SXM"
_MANY_SHAPES = 130
_QKV = [[2, 8, 512, 64]] * 3
_IMAGE = [[8, 64, 56, 56], [64, 64, 3, 3]]
_OPERATORS = (
    ("aten::mm", [[1024, 512], [512, 256]], "Cijk_Ailk_Bljk_BBS_BH_MT64x64x32", 40.0),
    ("aten::mm", [[64, 8193], [8193, 64]], "Cijk_Ailk_Bljk_BBS_BH_MT16x16x32", 25.0),
    ("aten::_scaled_dot_product_flash_attention", _QKV, "attention_forward", 60.0),
    ("aten::convolution", _IMAGE, "igemm_fwd_gtcx_nhwc", 80.0),
    ("aten::native_batch_norm", [[8, 64, 56, 56], [64], [64], [64], [64]], "batch_norm_fwd", 30.0),
    ("aten::sum", [[4096, 1024]], "reduce_kernel", 20.0),
    ("triton_poi_fused_add_0", [[4096, 1024]], "triton_poi_fused_add_0", 15.0),
    ("aiter::fused_moe_", [[256, 512], [8, 1024, 512], [8, 512, 512], [256, 2]], "fmoe_bf16", 70.0),
    ("aten::sort", [[65536]], "radix_sort", 18.0),
)


def write_trace(path: Path = TRACE) -> None:
    """Regenerate the trace."""
    built = trace("AMD Instinct MI300X")
    for step in range(2):
        built.python("train.py(3): step").python(f"nn.Module: Block_{step}")
        for number, (name, dims, kernel, us) in enumerate(_OPERATORS):
            built.child(name, dims).launches(kernel, us=us).up()
            built.waits(30.0 * (number == 4))
        for number in range(_MANY_SHAPES):
            shape = [256 + number, 1024]
            built.child("aten::add", [shape, shape])
            built.launches("vectorized_elementwise_kernel", us=6 + number / 100).up()
        built.child("c10d::allreduce_", [[1024, 1024]])
        built.launches("ncclDevKernel_AllReduce", us=50, stream=9).up()
        built.op("aten::copy_", [[1024, 1024]])
        built.launches("Memcpy DtoD (Device -> Device)", us=12, cat="gpu_memcpy").up()
    text = json.dumps(built.document()).encode()
    path.write_bytes(gzip.compress(text, mtime=0))


def keep_linked() -> tuple[str, str]:
    """Store what the links need: the analysis, one on another GPU to compare with, and a job.

    The ids of both analyses.
    """
    stored = submit(Submission(TRACE, model_name="Linked")).id
    job = queue.submit(database(), Export(stored, "json").new_job())
    queue.cancel(database(), job.id)
    return stored, resubmit(stored, _REFERENCE_GPU, None).id
