/* Losses of PyTorch 2.15.0's FSDP2 on CPUs (gloo, f32): the five steps of a GPT-2 whose first weights are those of
 * fsdp2/model.safetensors.
 *
 * torch.distributed.fsdp.fully_shard of each block and then of the model; the head's weight is wte's. Step s has four
 * sequences of 17 tokens. Token i of the run, counted over all steps and sequences, is
 * ((i * 2654435761) mod 2^32 >> 7) mod 64. Each rank has as many sequences as every other. The loss is the mean over 4 x 16
 * labels before the step's update: clipping of the norm of all gradients to 1, then torch.optim.AdamW(lr=1e-2), fused,
 * whose other arguments have their defaults (betas 0.9 and 0.999, eps 1e-8, weight_decay 0.01, of all parameters).
 *
 * A program that writes the model out in nn.Modules gave these numbers; make-fsdp2.py, with the model of transformers, gives
 * them to 1e-6. */
enum { FSDP2_STEPS = 5, FSDP2_SEQUENCES = 4, FSDP2_LENGTH = 16, FSDP2_VOCAB = 64 };
static const struct {
    int ranks;
    double loss[FSDP2_STEPS];
} golden_fsdp2[] = {
    { 2, { 4.1792562, 4.09933877, 4.02586532, 3.92750859, 3.82109535 } }, /* the same with reshard_after_forward=False */
    { 4, { 4.17925632, 4.09933889, 4.0258652, 3.92750877, 3.82109535 } },
};

/* The same five steps by PyTorch 2.15.0's other ways to divide a model, by the same program: DTensor's tensor parallelism
 * (parallelize_module, loss_parallel), the same with SequenceParallel, and ring attention (the ring of context_parallel
 * around the CPU's attention kernels, which it does not call by itself); and torch.distributed.pipelining with four
 * micro-batches (Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B and ScheduleZBVZeroBubble with two chunks per rank,
 * ScheduleInterleavedZeroBubble). */
static const struct {
    const char *name;
    int ranks;
    double loss[FSDP2_STEPS];
} golden_axes[] = {
    { "tp", 2, { 4.17925644, 4.09933853, 4.02586508, 3.92750907, 3.82109547 } },
    { "tp and sp", 2, { 4.17925644, 4.09933853, 4.02586508, 3.92750907, 3.82109547 } },
    { "tp and sp", 4, { 4.17925644, 4.09933853, 4.02586508, 3.92750883, 3.82109594 } },
    { "cp", 2, { 4.17925644, 4.09933901, 4.02586508, 3.92750907, 3.82109547 } },
    { "pp, gpipe", 2, { 4.17925644, 4.09933949, 4.02586508, 3.92750883, 3.82109547 } },
    { "pp, 1f1b", 2, { 4.17925644, 4.09933949, 4.02586508, 3.92750883, 3.82109547 } },
    { "pp, interleaved", 2, { 4.17925644, 4.09933901, 4.02586508, 3.92750883, 3.82109547 } },
    { "pp, zb", 2, { 4.17925644, 4.09933901, 4.02586508, 3.92750883, 3.82109547 } },
    { "pp, zbv", 2, { 4.17925644, 4.09933949, 4.02586508, 3.92750883, 3.82109547 } },
};
