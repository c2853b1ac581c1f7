"""Only speed: everything works without this room, and gives the same numbers (docs/speed.md says how near).

The core reaches it through `mltta.model.acceleration` alone, one file a kind of device. Each trick has a name and can
be left out: `load_backbone(accelerate="shared-prefix,graphs")`, or MLTTA_ACCELERATE for a whole process.
"""

#: what each trick does
TRICKS = {
    "shared-prefix": "the labels' context runs through the text tower once, padding never",
    "allocation": "CPU: freed memory is kept for the next layer",
    "folding": "CPU: batch norms are folded into the convolutions before them",
    "search": "captions by the million: half precision on a GPU, FAISS on a CPU",
    "views": "GPU: three kernels make all views of a batch there, where Triton can compile them",
    "draws": "GPU: the random numbers of all views of a batch at once",
    "patches": "GPU: the patches of a ViT by one product",
    "graphs": "GPU: few views and few contexts are replayed from CUDA graphs",
    "tensor-cores": "GPU: products of the text side in TF32",
    "jacobian": "GPU: first-step gradients of long runs from a kept Jacobian",
}
