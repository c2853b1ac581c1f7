"""Optional optimizations: results are the same without them (docs/speed.md quantifies the differences).

The core uses this package through `mltta.model.acceleration` only, with one file per kind of device. Each optimization
can be disabled by name: `load_backbone(accelerate="shared-prefix,graphs")`, or MLTTA_ACCELERATE for the process.
"""

#: description of each optimization
TRICKS = {
    "shared-prefix": "run the labels' shared context through the text tower once, and skip padding",
    "allocation": "CPU: keep freed memory for the next layer",
    "folding": "CPU: fold batch norms into the preceding convolutions",
    "search": "for millions of captions: half precision on a GPU, FAISS on a CPU",
    "views": "GPU: render all views of a batch with three Triton kernels",
    "draws": "GPU: draw the random numbers of all views of a batch at once",
    "patches": "GPU: compute ViT patch embeddings as one matrix product",
    "graphs": "GPU: replay small batches of views and contexts from CUDA graphs",
    "tensor-cores": "GPU: use TF32 for matrix products of the text tower",
    "jacobian": "GPU: compute first-step gradients of long runs from a stored Jacobian",
}
