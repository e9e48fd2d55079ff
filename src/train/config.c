/* config.c -- the option table of `lockstep train`, and what does not fit together. */
#include "train/config.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/parallel.h"
#include "lockstep/optim.h"
#include "lockstep/sched.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"
#include "parallel/pipe_list.h"
#include "parallel/strategy.h"
#include "tensor/attention.h"
#include "train/load.h"

#define AT(field) offsetof(ls_train_config, field)

/* The true upper ends of ranges, where nothing nearer bounds a number. Products of two of them fit 64 bits: that of
 * epochs and their steps is checked where the steps are known (train/trainer.c), that of batch and tokens below. */
#define STEPS  "4294967295"          /* traces and events count steps in 32 bits; epochs have one step at least */
#define MOST_STEPS 4294967295
#define BATCH  "16777216"            /* samples */
#define SEED   "9223372036854775807"
#define BYTES  "1024TiB"
#define RATE   "1e30"                /* learning rates; a float holds it */
#define MOST_TOKENS ((int64_t)1 << 31) /* a rank computes at a time: times 2^24 values and 8 bytes they fit 64 bits */

const ls_opt ls_train_opts[] = {
    { "model.name", LS_OPT_CHOICE, AT(model.name), "mlp", ls_model_choices, "kind of model", 0, NULL },
    { "model.preset", LS_OPT_STRING, AT(model.preset), "", NULL,
      "language models: sizes by name, as gpt2-medium or llama-15m; keys that are given win", 0, NULL },
    { "model.dims", LS_OPT_INTS, AT(model.dims), "784,256,128,10", "1..16777216",
      "inputs, hidden widths (cnn: channels), classes", 0, NULL },
    { "model.activation", LS_OPT_CHOICE, AT(model.activation), "relu", "relu|gelu", "between the layers", 0,
      NULL },
    { "model.forward_ms", LS_OPT_DOUBLES, AT(model.forward_ms), "1", "0..1000",
      "how long each layer sleeps in forward, milliseconds: a time per layer, or one for all", 0, NULL },
    { "model.backward_ms", LS_OPT_DOUBLES, AT(model.backward_ms), "2", "0..1000",
      "the same in backward, before the layer's gradients are ready", 0, NULL },
    { "model.init", LS_OPT_CHOICE, AT(model.init), "philox", "torch|philox|file",
      "from PyTorch's generator, by global index, or from model.load, whose values win", 0, NULL },
    { "model.load", LS_OPT_STRING, AT(model.load), "", NULL,
      "what to start from: a safetensors file, a run folder, or a folder of Hugging Face; its sizes become the model's", 0, NULL },
    { "model.n_layer", LS_OPT_INT, AT(model.n_layer), "12", "1..1024", "blocks", 0, NULL },
    { "model.n_head", LS_OPT_INT, AT(model.n_head), "12", "1..1024", "attention heads", 0, NULL },
    { "model.n_kv_head", LS_OPT_INT, AT(model.n_kv_head), "0", "0..1024",
      "heads of keys and values, each for a group of queries; 0: those of model.load, else n_head", 0, NULL },
    { "model.d_model", LS_OPT_INT, AT(model.d_model), "768", "1..1048576", "width of a token", 0,
      NULL },
    { "model.d_ff", LS_OPT_INT, AT(model.d_ff), "0", "0..16777216",
      "width inside the mlp; 0: that of model.load, else 4 d_model", 0, NULL },
    { "model.vocab_size", LS_OPT_INT, AT(model.vocab_size), "0", "0..16777216",
      "tokens; 0: those of model.load, else of the data's tokenizer", 0, NULL },
    { "model.seq_len", LS_OPT_INT, AT(model.seq_len), "1024", "1..16777216", "longest sequence", 0,
      NULL },
    { "model.tied", LS_OPT_BOOL, AT(model.tied), "true", NULL, "the head's matrix is the embedding's", 0,
      "model.tie_word_embeddings" },
    { "model.rope_theta", LS_OPT_DOUBLE, AT(model.rope_theta), "10000", "1..1e12", "base of the angles of rotary positions", 0,
      NULL },
    { "model.norm_eps", LS_OPT_DOUBLE, AT(model.norm_eps), "1e-5", "1e-30..1", "what the norms add to a variance", 0,
      "model.layer_norm_epsilon|model.rms_norm_eps" },
    { "model.embd_dropout", LS_OPT_DOUBLE, AT(model.embd_dropout), "0", "0..0.999", "dropout after the embedding", 0,
      "model.embd_pdrop" },
    { "model.attn_dropout", LS_OPT_DOUBLE, AT(model.attn_dropout), "0", "0..0.999", "dropout of attention's weights", 0,
      "model.attn_pdrop" },
    { "model.resid_dropout", LS_OPT_DOUBLE, AT(model.resid_dropout), "0", "0..0.999",
      "dropout of what is added to the residual stream", 0, "model.resid_pdrop" },
    { "model.n_experts", LS_OPT_INT, AT(model.n_experts), "8", "1..1024", "experts of each layer", 0, "model.num_experts|model.num_local_experts" },
    { "model.top_k", LS_OPT_INT, AT(model.top_k), "2", "1..32", "experts that compute a token: the most probable ones", 0,
      "model.num_experts_per_tok" },
    { "model.d_expert", LS_OPT_INT, AT(model.d_expert), "0", "0..16777216",
      "width inside an expert; 0: that of model.load, else model.d_ff", 0, "model.moe_intermediate_size" },
    { "model.shared_expert", LS_OPT_INT, AT(model.shared_expert), "0", "0..16777216",
      "width of an expert that computes every token besides, as in Qwen2-MoE; 0: there is none", 0,
      "model.shared_expert_intermediate_size" },
    { "model.first_dense", LS_OPT_INT, AT(model.first_dense), "0", "0..1024",
      "so many layers, the first ones, have an mlp of width model.d_ff and no experts", 0, "model.first_k_dense_replace" },
    { "model.norm_topk", LS_OPT_BOOL, AT(model.norm_topk), "true", NULL,
      "the weights of a token's experts add up to 1; false: they are their probabilities among all", 0, "model.norm_topk_prob" },
    { "moe.capacity_factor", LS_OPT_DOUBLE, AT(moe.capacity_factor), "0", "0..1e6",
      "an expert takes at most ceil(T k / E x this) of the T tokens of a sequence, and others are dropped; 0: it takes all", 0, NULL },
    { "moe.drop", LS_OPT_CHOICE, AT(moe.drop), "position", "position|probability",
      "which tokens an expert drops: the last ones of a sequence, or the least probable", 0, NULL },
    { "moe.aux_loss", LS_OPT_DOUBLE, AT(moe.aux_loss), "0", "0..1000",
      "coefficient of the loss that balances experts, E sum f_i P_i of each sequence; 0: none", 0, "model.router_aux_loss_coef" },
    { "moe.z_loss", LS_OPT_DOUBLE, AT(moe.z_loss), "0", "0..1000",
      "coefficient of the loss that keeps the router's logits small; 0: none", 0, NULL },
    { "moe.bias_rate", LS_OPT_DOUBLE, AT(moe.bias_rate), "0", "0..1000",
      "balancing without a loss: a step moves a bias of each expert, which counts only where experts are chosen, so far; 0: none", 0, NULL },
    { "moe.force_expert", LS_OPT_INT, AT(moe.force_expert), "-1", "-1..1023",
      "an experiment: every token goes to this expert, and to the model.top_k - 1 after it; -1: the router chooses", 0, NULL },
    { "data.name", LS_OPT_STRING, AT(data.name), "", NULL,
      "images: fashion-mnist (default), idx, synthetic; language models: tokens (default), sotu, moby-dick, or a text: a "
      "file that ends in .txt, .md or .jsonl (its field text), each also with .gz, or a folder of them", 0, NULL },
    { "data.path", LS_OPT_STRING, AT(data.path), "", NULL,
      "folder of the IDX files (default: fashion-mnist's, which is fetched), or of train.bin, val.bin and tokenizer.json "
      "(of a text: by default in .cache/tokens), or a token file", 0, NULL },
    { "data.format", LS_OPT_CHOICE, AT(data.format), "auto", "auto|idx|llmc|nanogpt",
      "of data.path; auto: idx for images, else as the token file begins", 0, NULL },
    { "data.tokenizer", LS_OPT_STRING, AT(data.tokenizer), "", NULL,
      "tokenizer of a text: gpt2 (default), byte, char, a tokenizer.json or its folder, or one with vocab.bpe and encoder.json", 0, NULL },
    { "data.ignore_token", LS_OPT_INT, AT(data.ignore_token), "-1", "-1..16777215",
      "a token that does not count in the loss when it is to be predicted, such as padding; -1: all count", 0, NULL },
    { "data.shuffle", LS_OPT_BOOL, AT(data.shuffle), "true", NULL, "a new order every epoch", 0, NULL },
    { "data.drop_last", LS_OPT_BOOL, AT(data.drop_last), "false", NULL,
      "leave out samples that do not fill ranks and batches", 0, NULL },
    { "data.workers", LS_OPT_INT, AT(data.workers), "0", "0..64",
      "threads per rank that prepare the next batches; 0: the rank does. Any number gives the same batches", 0, NULL },
    { "train.steps", LS_OPT_INT, AT(train.steps), "0", "0.." STEPS, "optimizer steps, whatever train.epochs is; 0: train.epochs decides", 0, NULL },
    { "train.epochs", LS_OPT_INT, AT(train.epochs), "1", "0.." STEPS, "passes over the data", 0, NULL },
    { "train.global_batch", LS_OPT_INT, AT(train.global_batch), "128", "1.." BATCH,
      "samples per step, over all ranks and accumulation", 0, NULL },
    { "train.micro_batch", LS_OPT_INT, AT(train.micro_batch), "0", "0.." BATCH,
      "samples a forward on one rank; 0: no accumulation. With train.numerics invariant it is train.grain that counts", 0, NULL },
    { "train.seq_len", LS_OPT_INT, AT(train.seq_len), "0", "0..16777216",
      "tokens of a sample; 0: model.seq_len", 0, "training.seq_len" },
    { "train.seed", LS_OPT_INT, AT(train.seed), "0", "0.." SEED, "of initial values and data order", 0, NULL },
    { "train.dtype", LS_OPT_CHOICE, AT(train.dtype), "f32", "f32|bf16",
      "of activations and products; weights, gradients and sums stay in f32", 0, NULL },
    { "train.recompute", LS_OPT_CHOICE, AT(train.recompute), "none", "none|selective|full",
      "activations recomputed in backward", 0, NULL },
    { "train.pack_weights", LS_OPT_CHOICE, AT(train.pack_weights), "auto", "auto|never|always",
      "copies of weights that products read faster, made in each step; auto: bf16 of 4 micro-batches or more, unless train.numerics "
      "is invariant", 0, NULL },
    { "train.eval_every", LS_OPT_INT, AT(train.eval_every), "0", "0.." STEPS,
      "steps between evaluations; 0: after each epoch. There is one at the end; tokens need a val.bin", 0, "validation.freq|train.eval_interval" },
    { "train.eval_batches", LS_OPT_INT, AT(train.eval_batches), "0", "0.." STEPS,
      "batches of train.global_batch samples that an evaluation takes, from the first; 0: all there are", 0,
      "validation.steps|train.eval_iters" },
    { "train.sample_every", LS_OPT_INT, AT(train.sample_every), "0", "0.." STEPS,
      "steps between samples of what the model writes, and one at the end; 0: none", 0, NULL },
    { "train.sample_tokens", LS_OPT_INT, AT(train.sample_tokens), "64", "1..65536", "tokens of a sample, at most", 0, NULL },
    { "train.sample_prompt", LS_OPT_STRING, AT(train.sample_prompt), "", NULL,
      "how samples begin; empty: with an end of text", 0, NULL },
    { "train.numerics", LS_OPT_CHOICE, AT(train.numerics), "fast", "fast|invariant",
      "fast: the same bits for the same layout; invariant: the same losses and weights to the bit for every power of two of "
      "ranks, and every zero.stage, transport, bucket and micro-batch: gradients of each grain are summed as one binary tree",
      0, NULL },
    { "train.grain", LS_OPT_INT, AT(train.grain), "1", "1.." BATCH,
      "train.numerics invariant: samples of a forward, in place of train.micro_batch. Other grains give other bits; larger ones "
      "are faster, and as many ranks can train as a batch has grains, whose number must be a power of two", 0, NULL },
    { "optim.name", LS_OPT_CHOICE, AT(optim.name), "adam", ls_optim_choices, "optimizer; values that are not given are its own defaults", 0, NULL },
    { "optim.lr", LS_OPT_DOUBLE, AT(optim.lr), "1e-3", "0.." RATE, "learning rate", 0, NULL },
    { "optim.momentum", LS_OPT_DOUBLE, AT(optim.momentum), "0", "0..1", "how much of the last update stays in the next", 0, NULL },
    { "optim.betas", LS_OPT_DOUBLES, AT(optim.betas), "0.9,0.999", "0..<1", "decay of the moments", 0,
      NULL },
    { "optim.eps", LS_OPT_DOUBLE, AT(optim.eps), "1e-8", "0..1", "added to the denominator", 0, NULL },
    { "optim.weight_decay", LS_OPT_DOUBLE, AT(optim.weight_decay), "0", "0..1000",
      "added to the gradient, or decoupled from it where the optimizer does so, as adamw, with 0.01 unless given", 0, NULL },
    { "optim.decay", LS_OPT_CHOICE, AT(optim.decay), "all", "all|matrices",
      "what weight decay is for: every parameter, or tensors of two and more dimensions only", 0, NULL },
    { "optim.clip", LS_OPT_DOUBLE, AT(optim.clip), "0", "0..1e12", "largest global gradient norm; 0: no clipping", 0,
      "optim.grad_clip" },
    { "optim.schedule", LS_OPT_CHOICE, AT(optim.schedule), "constant", "constant|linear|cosine|wsd",
      "of the learning rate after warm-up; wsd: constant, then a linear decay", 0, "optim.lr_schedule" },
    { "optim.scale_lr", LS_OPT_CHOICE, AT(optim.scale_lr), "none", "none|linear|sqrt",
      "multiply optim.lr by the number of data parallel ranks, or by its square root; optim.min_lr stays as it is", 0, NULL },
    { "optim.warmup", LS_OPT_INT, AT(optim.warmup), "0", "0.." STEPS, "steps of linear warm-up", 0, "optim.warmup_steps" },
    { "optim.min_lr", LS_OPT_DOUBLE, AT(optim.min_lr), "0", "0.." RATE, "where a schedule ends", 0, NULL },
    { "optim.min_lr_ratio", LS_OPT_DOUBLE, AT(optim.min_lr_ratio), "0", "0..1",
      "the same as a fraction of optim.lr; only one of the two", 0, NULL },
    { "optim.decay_steps", LS_OPT_INT, AT(optim.decay_steps), "0", "0.." STEPS,
      "wsd: steps of the decay at the end; 0: a fifth of all", 0, NULL },
    { "optim.loss_scale", LS_OPT_STRING, AT(optim.loss_scale), "none", NULL,
      "none, a number or dynamic: backward computes gradients of the loss times the scale, the update divides by it", 0, NULL },
    { "optim.scale_init", LS_OPT_DOUBLE, AT(optim.scale_init), "65536", "1e-30..1e38", "optim.loss_scale dynamic: the first scale", 0, NULL },
    { "optim.scale_growth", LS_OPT_DOUBLE, AT(optim.scale_growth), "2", "1..1e6",
      "optim.loss_scale dynamic: the scale is multiplied by it after scale_interval finite steps in a row", 0, NULL },
    { "optim.scale_backoff", LS_OPT_DOUBLE, AT(optim.scale_backoff), "0.5", "0..<1",
      "optim.loss_scale dynamic: the scale is multiplied by it when gradients are not finite, and the step is skipped", 0, NULL },
    { "optim.scale_interval", LS_OPT_INT, AT(optim.scale_interval), "2000", "1.." STEPS,
      "optim.loss_scale dynamic: finite steps in a row until the scale grows", 0, NULL },
    { "parallel.dp", LS_OPT_INT, AT(parallel.dp), "0", "0..65536", "data parallel ranks; 0: all", 0,
      "parallelism.data_parallel_degree" },
    { "parallel.dp_strategy", LS_OPT_CHOICE, AT(parallel.dp_strategy), "auto", ls_dp_choices,
      "data parallel strategy: ddp replicates, fsdp shards; auto: by zero.stage", 0, NULL },
    { "parallel.tp", LS_OPT_INT, AT(parallel.tp), "1", "1..65536", "tensor parallel ranks, which divide every layer", 0,
      "parallelism.tensor_parallel_degree|tensor-model-parallel-size" },
    { "parallel.sp", LS_OPT_BOOL, AT(parallel.sp), "false", NULL,
      "sequence parallelism: norms, dropout and residuals on parts of the sequence, with parallel.tp above 1", 0, NULL },
    { "parallel.tp_pieces", LS_OPT_INT, AT(parallel.tp_pieces), "0", "0..16",
      "parallel.tp above 1: a layer's all_reduces in so many pieces, beside the products; 0: over slow links as many as pay, else 1", 0, NULL },
    { "parallel.pp", LS_OPT_INT, AT(parallel.pp), "1", "1..65536", "pipeline stages", 0,
      "parallelism.pipeline_parallel_degree|pipeline-model-parallel-size" },
    { "parallel.cp", LS_OPT_INT, AT(parallel.cp), "1", "1..65536", "context parallel ranks, which divide every sequence", 0,
      "parallelism.context_parallel_degree|context-parallel-size" },
    { "parallel.context", LS_OPT_CHOICE, AT(parallel.context), "ring", "ring|gather|ulysses|ulysses-ring",
      "how queries meet keys of other ranks, with parallel.cp above 1: keys in a ring, all gathered, heads exchanged, or both: heads "
      "exchanged among neighbours, keys in a ring of the rest", 0, NULL },
    { "parallel.cp_ulysses", LS_OPT_INT, AT(parallel.cp_ulysses), "0", "0..65536",
      "parallel.context ulysses-ring: neighbours that exchange heads; cp / cp_ulysses ranks are a ring; 0: 2", 0, NULL },
    { "parallel.cp_split", LS_OPT_CHOICE, AT(parallel.cp_split), "zigzag", "zigzag|contiguous",
      "tokens of a rank, with parallel.cp above 1: a piece from each end, so that causal work is equal, or one piece", 0, NULL },
    { "parallel.ep", LS_OPT_INT, AT(parallel.ep), "1", "1..65536", "expert parallel ranks, which divide the experts of a layer", 0,
      "parallelism.expert_parallel_degree|expert-model-parallel-size" },
    { "parallel.order", LS_OPT_STRING, AT(parallel.order), "pp-dp-ep-cp-tp", NULL,
      "axes of the mesh, the slowest first: ranks along the last one are neighbours. Axes of one rank may be left out", 0, NULL },
    { "parallel.placement", LS_OPT_CHOICE, AT(parallel.placement), "order", "order|auto",
      "which ranks share a node: those that follow each other in parallel.order; auto: in the order that takes least if the "
      "network is slower than a node", 0,
      NULL },
    { "ddp.bucket_cap", LS_OPT_BYTES, AT(ddp.bucket_cap), "25MiB", "1.." BYTES, "largest gradient bucket", 0, NULL },
    { "ddp.first_bucket", LS_OPT_BYTES, AT(ddp.first_bucket), "1MiB", "1.." BYTES,
      "size of the first bucket, which can start earliest", 0, NULL },
    { "ddp.overlap", LS_OPT_BOOL, AT(ddp.overlap), "true", NULL,
      "reduce buckets during backward; false: after it, to measure what overlap hides", 0, NULL },
    { "ddp.bucket_view", LS_OPT_BOOL, AT(ddp.bucket_view), "false", NULL,
      "divide gradients by the number of ranks instead of multiplying them by its inverse", 0, NULL },
    { "ddp.find_unused", LS_OPT_BOOL, AT(ddp.find_unused), "false", NULL,
      "parameters may take no part in the loss, other ones on each rank and in each step", 0, NULL },
    { "ddp.static_graph", LS_OPT_BOOL, AT(ddp.static_graph), "false", NULL,
      "some parameters take no part in the loss, the same ones on all ranks and in all steps", 0, NULL },
    { "ddp.guard", LS_OPT_BOOL, AT(ddp.guard), "true", NULL,
      "after each update compare all ranks' parameters (zero.hsdp: those of ranks with the same shard), by hashes that travel "
      "with the loss", 0, NULL },
    { "ddp.hook", LS_OPT_CHOICE, AT(ddp.hook), "none", "none|allreduce|f16|bf16|powersgd",
      "communication hook that reduces gradients: rounded to 16 bits, or as factors of low rank", 0, NULL },
    { "ddp.powersgd_rank", LS_OPT_INT, AT(ddp.powersgd_rank), "1", "1..1024", "ddp.hook powersgd: rank of the factors", 0, NULL },
    { "ddp.powersgd_start", LS_OPT_INT, AT(ddp.powersgd_start), "1000", "2..1000000000",
      "ddp.hook powersgd: steps before the first compressed one", 0, NULL },
    { "ddp.powersgd_feedback", LS_OPT_BOOL, AT(ddp.powersgd_feedback), "true", NULL,
      "ddp.hook powersgd: add the error of a step to the gradients of the next one", 0, NULL },
    { "ddp.powersgd_warm_start", LS_OPT_BOOL, AT(ddp.powersgd_warm_start), "true", NULL,
      "ddp.hook powersgd: begin with the factors of the step before; false: with random ones", 0, NULL },
    { "zero.stage", LS_OPT_INT, AT(zero.stage), "0", "0..3",
      "shard over dp: 1 optimizer state, 2 also gradients, 3 also parameters", 0, NULL },
    { "zero.reduce", LS_OPT_CHOICE, AT(zero.reduce), "every", "every|last",
      "stages 2, 3: reduce gradients in every micro-batch, or once, in the last one (each rank then stores all gradients)", 0,
      NULL },
    { "zero.copy", LS_OPT_CHOICE, AT(zero.copy), "host", "host|rank",
      "stage 3: one copy of the parameters per node, with new values from other nodes once per step; or each rank gathers a layer "
      "before it needs it", 0, NULL },
    { "zero.units", LS_OPT_CHOICE, AT(zero.units), "layer", "layer|model", "what stage 3 gathers at a time (not implemented: model)", 0, NULL },
    { "zero.prefetch", LS_OPT_INT, AT(zero.prefetch), "1", "0..64", "zero.copy rank: layers gathered ahead", 0, NULL },
    { "zero.reshard", LS_OPT_CHOICE, AT(zero.reshard), "default", "always|never|default",
      "zero.copy rank: layers that release their values after forward; default: all except the last", 0, NULL },
    { "zero.hsdp", LS_OPT_INT, AT(zero.hsdp), "1", "1..4096",
      "hybrid sharding: so many sets of shards, each on consecutive ranks, such as one per node", 0, NULL },
    { "pipeline.schedule", LS_OPT_CHOICE, AT(pipeline.schedule), "1f1b", ls_pipe_choices,
      "parallel.pp above 1: in which order a rank computes its micro-batches", 0, NULL },
    { "pipeline.chunks", LS_OPT_INT, AT(pipeline.chunks), "0", "0..64",
      "parallel.pp above 1: pieces of the model per rank (0: as few as pipeline.schedule needs)", 0, NULL },
    { "pipeline.split", LS_OPT_INTS, AT(pipeline.split), "", "0..1024",
      "parallel.pp above 1: layers of each piece, in the order of the model (default: the shortest replayed step)", 0, NULL },
    { "checkpoint.dir", LS_OPT_STRING, AT(checkpoint.dir), "", NULL,
      "folder of the checkpoints (default: <run.dir>/checkpoints)", 0, NULL },
    { "checkpoint.every", LS_OPT_EVERY, AT(checkpoint.every), "0", "0.." STEPS,
      "steps between checkpoints, or a time by the clock of rank 0, such as 10m; 0: one at the end", 0, NULL },
    { "checkpoint.keep", LS_OPT_INT, AT(checkpoint.keep), "2", "2.." STEPS, "newest checkpoints that stay", 0, NULL },
    { "checkpoint.best", LS_OPT_CHOICE, AT(checkpoint.best), "none", "none|loss|accuracy",
      "the checkpoint of the best evaluation stays, too: of the least loss, or the highest accuracy; checkpoints/best names it", 0, NULL },
    { "checkpoint.timeout", LS_OPT_TIME, AT(checkpoint.timeout), "30m", "1ms..24h",
      "longest time for a save, or other reading or writing of files that other ranks wait for", 0, NULL },
    { "checkpoint.async", LS_OPT_BOOL, AT(checkpoint.async), "false", NULL,
      "save from a copy in memory, which a thread of each rank writes while training goes on; the last save is waited for", 0, NULL },
    { "checkpoint.snapshot", LS_OPT_INT, AT(checkpoint.snapshot), "0", "0.." STEPS,
      "steps between snapshots in memory (/dev/shm), from which a run goes on that lost a rank, a node or its launcher; 0: none", 0, NULL },
    { "checkpoint.resume", LS_OPT_STRING, AT(checkpoint.resume), "never", "auto|never|PATH",
      "go on from a checkpoint: auto: the newest one in the run's folder, or begin; PATH: that one, in a new run folder", 0, NULL },
    { "checkpoint.consolidate", LS_OPT_CHOICE, AT(checkpoint.consolidate), "last", "always|last|never",
      "write model.safetensors, the whole model in one file, into each checkpoint, or into the last one", 0, NULL },
    { "log.every", LS_OPT_INT, AT(log.every), "0", "0.." STEPS, "steps between log lines; 0: ten an epoch", 0, NULL },
    { "log.format", LS_OPT_CHOICE, AT(log.format), "torchtitan", "torchtitan|megatron|llmc|nanogpt",
      "of the log line", 0, NULL },
    { "log.tensorboard", LS_OPT_BOOL, AT(log.tensorboard), "true", NULL,
      "write an event file for TensorBoard into <run.dir>/tb", 0, "metrics.enable_tensorboard" },
    { "log.samples", LS_OPT_BOOL, AT(log.samples), "false", NULL,
      "write which samples each rank uses in each step into <run.dir>/samples", 0, NULL },
    { "log.straggler", LS_OPT_DOUBLE, AT(log.straggler), "1.5", "0..1000",
      "warn of a rank that is busy for so many times as long as the median rank, above 1; 0: never", 0, NULL },
    { "trace.steps", LS_OPT_STRING, AT(trace.steps), "", NULL,
      "FIRST:LAST steps to record into <run.dir>/trace/trace.json; at most 131,072 events per rank", 0, NULL },
    { "comm.backend", LS_OPT_CHOICE, AT(comm.backend), "sched", "sched|auto|gloo|mpi|nccl",
      "who carries out collectives; mpi: the MPI library, under mpirun; auto, gloo: sched (not implemented: nccl)", 0, NULL },
    { "comm.order", LS_OPT_CHOICE, AT(comm.order), "library", "library|ranks",
      "backend mpi: order of sums: the library's own, or ascending ranks, to the bit as without it", 0, NULL },
    { "comm.transport", LS_OPT_STRING, AT(comm.transport), "", ls_transport_choices,
      "how messages travel, or fault:<one of them>[,<fault>...]; empty: shm, and mixed where the ranks are on several nodes", 0, NULL },
    { "comm.algo", LS_OPT_STRING, AT(comm.algo), "", NULL,
      "algorithm of every collective that it serves, or all_reduce=ring,broadcast=chain; empty: the fastest", 0, NULL },
    { "comm.progress", LS_OPT_CHOICE, AT(comm.progress), "inline", "inline|thread",
      "who moves collectives during compute", 0, NULL },
    { "comm.timeout", LS_OPT_TIME, AT(comm.timeout), "30s", "1ms..24h", "longest wait inside a collective", 0, NULL },
    { "comm.wire", LS_OPT_CHOICE, AT(comm.wire), "f32", "f32|bf16",
      "how f32 gradients travel between nodes; bf16: half the bytes, sums still in f32", 0, NULL },
    { "comm.security", LS_OPT_CHOICE, AT(comm.security), "auto", "auto|auth|encrypt",
      "bytes are encrypted, or travel as they are once both ends are authenticated; auto: encrypted between nodes", 0, NULL },
    { "comm.check", LS_OPT_CHOICE, AT(comm.check), "frame", "none|frame", "checksums of frames", 0, NULL },
    { "run.dir", LS_OPT_STRING, AT(run.dir), "", NULL,
      "folder of this run, new or empty (default: runs/<run.name>, with a suffix when that exists)", 0, NULL },
    { "run.name", LS_OPT_STRING, AT(run.name), "run", NULL, "name of this run: its folder, unless run.dir is given", 0, NULL },
    { "nproc-per-node", LS_OPT_STRING, AT(nproc_per_node), "0", NULL,
      "ranks to start on this machine: 1 to 256, or auto: one per usable core; 0: the parallel degrees' product", 'n', NULL },
    { "ranks-as", LS_OPT_CHOICE, AT(ranks_as), "processes", "processes|threads",
      "what the ranks are; threads of one process: for a debugger, a sanitizer, or many ranks on one machine", 0, NULL },
    { "eval-only", LS_OPT_BOOL, AT(eval_only), "false", NULL,
      "load model.load, print test loss and accuracy, train nothing", 0, NULL },
    { "print-config", LS_OPT_BOOL, AT(print_config), "false", NULL, "print every value and where it comes from", 0,
      NULL },
    { "explain", LS_OPT_CHOICE, AT(explain), "none", "none|mfu",
      "print how a number comes about, with those of this run, and stop: mfu", 0, NULL },
    { "memory.check", LS_OPT_BOOL, AT(memory.check), "true", NULL,
      "refuse to start when the ranks of this machine would need more memory than there is", 0, NULL },
    { "memory.limit", LS_OPT_BYTES, AT(memory.limit), "0", "0.." BYTES,
      "memory for the ranks of this machine; 0: what it has available", 0, NULL },
    { "dry-run", LS_OPT_BOOL, AT(dry_run), "false", NULL, "print the planned memory per rank and per unit of the model, and stop", 0, NULL },
    { "dump-buckets", LS_OPT_BOOL, AT(dump_buckets), "false", NULL,
      "print index, names and bytes of the gradient buckets", 0, NULL },
    { "json", LS_OPT_BOOL, AT(json), "false", NULL,
      "print one JSON object about the run after its last line: losses, digest, bytes per collective, memory, buckets", 0, NULL },
    { "predict", LS_OPT_BOOL, AT(predict), "false", NULL,
      "time the model on one rank first, and print the expected time, memory and communication of a step; `lockstep plan "
      "--check` compares afterwards", 0, NULL },
    { "inject", LS_OPT_STRING, AT(inject), "", NULL,
      "provoke a fault: kill|stop|hang|nan|mismatch|slow|slow-input|diverge|overflow|diverge-experts@RANK:STEP; not in "
      "ranks that were started again", 0, NULL },
    { "compare", LS_OPT_STRING, AT(compare), "", NULL,
      "folder of a run: stop at the first step that differs from it, with exit status 81", 0, NULL },
    { "events", LS_OPT_STRING, AT(events), "", NULL, "file for the job's events, JSON lines", 0, NULL },
    { "help", LS_OPT_BOOL, AT(help), "false", NULL, "print this and stop", 'h', NULL },
    { "log-dir", LS_OPT_STRING, AT(log_dir), "", NULL, "folder for the ranks' logs", 0, NULL },
    { "max-restarts", LS_OPT_INT, AT(max_restarts), "0", "0..1000000",
      "start the ranks again after a failure, so often: they go on from the run's newest checkpoint", 0, NULL },
};
const size_t ls_train_nopts = sizeof ls_train_opts / sizeof *ls_train_opts;

/* --- language models ------------------------------------------------------------------- */

bool ls_train_snapshots(const ls_train_config *c) { return c->checkpoint.snapshot > 0 && !c->eval_only; }
bool ls_train_copies(const ls_train_config *c) { return c->checkpoint.async && !c->eval_only; }

bool ls_train_is_lm(const ls_train_config *c)
{
    const ls_model_class *cls = ls_model_class_find(c->model.name);
    return cls && cls->lm;
}

ls_ddp_config ls_train_ddp(const ls_train_config *c)
{
    const bool gathers = c->zero.stage == 3 && strcmp(c->zero.copy, "rank") == 0;
    return (ls_ddp_config){ .first_bucket = c->ddp.first_bucket, .bucket_cap = c->ddp.bucket_cap,
                            .bucket_view = c->ddp.bucket_view, .no_overlap = !c->ddp.overlap,
                            .find_unused = c->ddp.find_unused, .static_graph = c->ddp.static_graph,
                            .tree = ls_train_is_invariant(c),
                            .zero_stage = (int)c->zero.stage, .reduce_last = strcmp(c->zero.reduce, "last") == 0,
                            .copy = gathers ? LS_ZERO_COPY_RANK : LS_ZERO_COPY_HOST,
                            .prefetch = gathers ? (int)c->zero.prefetch : 0,
                            .reshard = strcmp(c->zero.reshard, "always") == 0  ? LS_RESHARD_ALWAYS
                                       : strcmp(c->zero.reshard, "never") == 0 ? LS_RESHARD_NEVER
                                                                               : LS_RESHARD_DEFAULT };
}

/* parallel.order, which names all axes that have several ranks. */
static ls_status read_order(const ls_train_config *c, ls_plan *out)
{
    int named = 0;
    char why[300];
    if (ls_mesh_order_read(c->parallel.order, out->order, &named) < 0) {
        snprintf(why, sizeof why, "%s", ls_last_error());
        return ls_fail(LS_BAD_CONFIG, "parallel.%s", why);
    }
    for (int i = 0; i < LS_AXES - named; i++) {
        const int a = out->order[i];
        if (out->size[a] > 1)
            return ls_fail(LS_BAD_CONFIG, "parallel.order %s: %s, which has %d ranks, is missing", c->parallel.order,
                           ls_axis_name((ls_axis)a), out->size[a]);
    }
    return LS_OK;
}

ls_status ls_train_plan(const ls_train_config *c, int world_size, ls_plan *out)
{
    const int64_t others = c->parallel.pp * c->parallel.ep * c->parallel.cp * c->parallel.tp;
    const int64_t rest = world_size > others ? world_size / others : 1, dp = c->parallel.dp ? c->parallel.dp : rest;
    const int64_t local = c->train.global_batch / (dp * c->parallel.ep);
    const int64_t micro = ls_train_micro_batch(c, local);
    const bool by_stage = strcmp(c->parallel.dp_strategy, "auto") == 0, hooked = strcmp(c->ddp.hook, "none") != 0;
    *out = (ls_plan){
        .size = { [LS_AXIS_PP] = (int)c->parallel.pp,
                  [LS_AXIS_DP] = (int)dp,
                  [LS_AXIS_EP] = (int)c->parallel.ep,
                  [LS_AXIS_CP] = (int)c->parallel.cp,
                  [LS_AXIS_TP] = (int)c->parallel.tp },
        .dp = by_stage ? NULL : c->parallel.dp_strategy,
        .ddp = ls_train_ddp(c),
        .hsdp = (int)c->zero.hsdp,
        .hook = hooked ? c->ddp.hook : NULL,
        .powersgd = { .rank = (int)c->ddp.powersgd_rank,
                      .start = c->ddp.powersgd_start,
                      .no_feedback = !c->ddp.powersgd_feedback,
                      .no_warm_start = !c->ddp.powersgd_warm_start,
                      .seed = (uint64_t)c->train.seed },
        .sequence_parallel = c->parallel.sp,
        .tp_pieces = (int)c->parallel.tp_pieces,
        .context = c->parallel.cp > 1 ? c->parallel.context : NULL,
        .exchange = ls_train_neighbours(c),
        .in_turn = c->parallel.cp > 1 && strcmp(c->parallel.cp_split, "contiguous") == 0,
        .schedule = c->pipeline.schedule,
        .chunks = (int)c->pipeline.chunks,
        .split = c->pipeline.split.n ? c->pipeline.split.v : NULL,
        .nsplit = c->pipeline.split.n,
        .micro_batch = micro,
        .micro_batches = micro > 0 ? (int)((local + micro - 1) / micro) : 0,
        .dtype = ls_train_dtype(c),
    };
    if (out->ddp.tree) out->ddp.micro_batches = out->micro_batches;
    LS_TRY(read_order(c, out));
    return ls_recompute_find(c->train.recompute, &out->recompute);
}

bool ls_train_exchanges(const ls_train_config *c) { return c->parallel.cp > 1 && strcmp(c->parallel.context, "ulysses-ring") == 0; }

int ls_train_neighbours(const ls_train_config *c)
{
    if (!ls_train_exchanges(c)) return 0;
    return c->parallel.cp_ulysses ? (int)c->parallel.cp_ulysses : 2;
}

const char *ls_train_backend(const ls_train_config *c) { return strcmp(c->comm.backend, "mpi") == 0 ? "mpi" : "sched"; }
ls_dtype ls_train_dtype(const ls_train_config *c) { return strcmp(c->train.dtype, "bf16") == 0 ? LS_BF16 : LS_F32; }

const char *ls_train_data_name(const ls_train_config *c)
{
    return *c->data.name ? c->data.name : ls_train_is_lm(c) ? "tokens" : "fashion-mnist";
}

#define PACKS_FROM 4 /* micro-batches: by then a copy has been worth its price (docs/performance.md) */

bool ls_train_packs(const ls_train_config *c, int world_size)
{
    if (strcmp(c->train.pack_weights, "auto") != 0) return strcmp(c->train.pack_weights, "always") == 0;
    if (c->zero.stage == 3) return false; /* no rank has weights of its own */
    if (ls_train_is_invariant(c)) return false; /* packed products round differently: layouts must not decide */
    const int64_t local = c->train.global_batch / ls_train_batch_ranks(c, world_size);
    return ls_train_dtype(c) == LS_BF16 && c->train.micro_batch > 0 && local / c->train.micro_batch >= PACKS_FROM;
}

ls_status ls_train_check_whole(const ls_train_config *c, const char *who)
{
    const struct { const char *name; int64_t size; } axis[] = {
        { "tp", c->parallel.tp }, { "cp", c->parallel.cp }, { "ep", c->parallel.ep }, { "pp", c->parallel.pp },
    };
    for (size_t i = 0; i < sizeof axis / sizeof *axis; i++)
        if (axis[i].size > 1)
            return ls_fail(LS_UNSUPPORTED, "%s knows of data parallelism alone, and parallel.%s is %lld: leave it out", who, axis[i].name,
                           (long long)axis[i].size);
    return LS_OK;
}

int ls_train_batch_ranks(const ls_train_config *c, int world_size)
{
    const int64_t same = c->parallel.pp * c->parallel.cp * c->parallel.tp;
    return world_size > same ? (int)(world_size / same) : 1;
}

int64_t ls_train_seq_len(const ls_train_config *c) { return c->train.seq_len ? c->train.seq_len : c->model.seq_len; }

ls_status ls_train_lm(const ls_train_config *c, int64_t vocab, ls_lm_config *out)
{
    ls_model_config resolved, mc = { .name = c->model.name };
    mc.lm = (ls_lm_config){
        .vocab_size = vocab, .seq_len = c->model.seq_len, .n_layer = c->model.n_layer, .n_head = c->model.n_head,
        .n_kv_head = c->model.n_kv_head, .d_model = c->model.d_model, .d_ff = c->model.d_ff, .tied = c->model.tied,
        .norm_eps = c->model.norm_eps, .rope_theta = c->model.rope_theta, .embd_dropout = c->model.embd_dropout,
        .attn_dropout = c->model.attn_dropout, .resid_dropout = c->model.resid_dropout,
        .n_experts = c->model.n_experts, .top_k = c->model.top_k, .d_expert = c->model.d_expert,
        .shared_expert = c->model.shared_expert, .first_dense = c->model.first_dense, .norm_topk = c->model.norm_topk,
        .drop_by_probability = strcmp(c->moe.drop, "probability") == 0, .capacity_factor = c->moe.capacity_factor,
        .aux_loss = c->moe.aux_loss, .z_loss = c->moe.z_loss, .bias_rate = c->moe.bias_rate,
        .forced_expert = c->moe.force_expert + 1,
    };
    LS_TRY(ls_model_resolve(&mc, &resolved));
    *out = resolved.lm;
    return LS_OK;
}

/* The vocabulary is the data's, unless it is given: it decides after the data is known. */
static ls_status apply_preset(ls_opts *o, const ls_train_config *c)
{
    const ls_model_preset *p = ls_model_preset_find(c->model.preset);
    char names[256], origin[96];
    if (!p)
        return ls_fail(LS_BAD_CONFIG, "model.preset is '%s': expected one of %s", c->model.preset,
                       ls_model_preset_names(names, sizeof names));
    if (ls_opts_is_set(o, "model.name") && strcmp(c->model.name, p->model) != 0)
        return ls_fail(LS_BAD_CONFIG, "model.preset %s is of model.name %s, not %s", p->name, p->model, c->model.name);
    const struct { const char *key; int64_t value; } size[] = {
        { "model.n_layer", p->lm.n_layer }, { "model.n_head", p->lm.n_head }, { "model.n_kv_head", p->lm.n_kv_head },
        { "model.d_model", p->lm.d_model }, { "model.d_ff", p->lm.d_ff },     { "model.seq_len", p->lm.seq_len },
        { "model.n_experts", p->lm.n_experts }, { "model.top_k", p->lm.top_k }, { "model.d_expert", p->lm.d_expert },
    };
    snprintf(origin, sizeof origin, "model.preset %s", p->name);
    if (!ls_opts_is_set(o, "model.name")) LS_TRY(ls_opts_set(o, "model.name", p->model, origin));
    if (!ls_opts_is_set(o, "model.tied")) LS_TRY(ls_opts_set(o, "model.tied", p->lm.tied ? "true" : "false", origin));
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char text[32];
        snprintf(text, sizeof text, "%lld", (long long)size[i].value);
        const bool read = ls_model_reads(ls_model_class_find(p->model), size[i].key);
        if (!ls_opts_is_set(o, size[i].key) && read) LS_TRY(ls_opts_set(o, size[i].key, text, origin));
    }
    return LS_OK;
}

bool ls_train_nproc_auto(const ls_train_config *c) { return strcmp(c->nproc_per_node, "auto") == 0; }

int ls_train_nproc(const ls_train_config *c)
{
    const int cpus = ls_train_nproc_auto(c) ? ls_env_get()->cpus() : 0;
    if (cpus > 0) return cpus < LS_HOST_MOST_RANKS ? cpus : LS_HOST_MOST_RANKS;
    char *end;
    const long n = strtol(c->nproc_per_node, &end, 10);
    return end == c->nproc_per_node || *end || n < 0 || n > LS_HOST_MOST_RANKS ? -1 : (int)n;
}

int ls_train_ranks(const ls_train_config *c)
{
    const int64_t product =
        c->parallel.tp * c->parallel.pp * c->parallel.cp * c->parallel.ep * (c->parallel.dp ? c->parallel.dp : 1);
    const int nproc = ls_train_nproc(c);
    return nproc ? nproc : (int)product;
}

ls_status ls_train_optim_defaults(ls_opts *o, const ls_train_config *c, const ls_optim_class *cls)
{
    const ls_optim_config *d = cls ? &cls->defaults : NULL;
    const ls_opt_doubles *b = &c->optim.betas;
    char betas[64];
    if (!d) return LS_OK; /* the name is wrong: whoever creates it says so */
    const struct { const char *key; double now, own; } number[] = {
        { "optim.lr", c->optim.lr, d->lr },    { "optim.momentum", c->optim.momentum, d->momentum },
        { "optim.eps", c->optim.eps, d->eps }, { "optim.weight_decay", c->optim.weight_decay, d->weight_decay },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        const char *key = number[i].key;
        char text[32];
        if (number[i].now == number[i].own || ls_opts_is_set(o, key) || !ls_optim_reads(cls, key)) continue;
        snprintf(text, sizeof text, "%.17g", number[i].own);
        LS_TRY(ls_opts_set(o, key, text, "default"));
    }
    if ((b->n == 2 && b->v[0] == d->beta1 && b->v[1] == d->beta2) || ls_opts_is_set(o, "optim.betas") ||
        !ls_optim_reads(cls, "optim.betas"))
        return LS_OK;
    snprintf(betas, sizeof betas, "%.17g,%.17g", d->beta1, d->beta2);
    return ls_opts_set(o, "optim.betas", betas, "default");
}

/* A strategy that is chosen by name, where no zero.stage is given, has the first of its own. */
static ls_status default_stage(ls_opts *o, const ls_train_config *c)
{
    const char *name = c->parallel.dp_strategy;
    const ls_dp_strategy *s;
    char text[32], origin[96];
    if (strcmp(name, "auto") == 0 || ls_opts_is_set(o, "zero.stage")) return LS_OK;
    LS_TRY(ls_dp_strategy_find(name, NULL, &s));
    if (ls_dp_strategy_has(s, (int)c->zero.stage)) return LS_OK;
    snprintf(text, sizeof text, "%d", s->first_stage);
    snprintf(origin, sizeof origin, "parallel.dp_strategy %s", name);
    return ls_opts_set(o, "zero.stage", text, origin);
}

ls_status ls_train_config_resolve(ls_opts *o, const ls_train_config *c)
{
    if (ls_train_nproc(c) < 0)
        return ls_fail(LS_USAGE, "--nproc-per-node is '%.40s': expected 0 to %d, or auto", c->nproc_per_node, LS_HOST_MOST_RANKS);
    if (*c->model.preset) LS_TRY(apply_preset(o, c));
    LS_TRY(ls_train_load_config(o, c));
    LS_TRY(default_stage(o, c));
    return ls_train_optim_defaults(o, c, ls_optim_class_find(c->optim.name));
}

ls_status ls_train_steps(const ls_train_config *c, int64_t steps_per_epoch, int64_t *out)
{
    const int64_t epochs = c->train.epochs;
    *out = c->train.steps;
    if (*out > 0) return LS_OK;
    if (steps_per_epoch > 0 && epochs > MOST_STEPS / steps_per_epoch)
        return ls_fail(LS_BAD_CONFIG, "train.epochs is %lld: of %lld steps each, a run of at most " STEPS " steps has %lld: lower it or set "
                       "train.steps", (long long)epochs, (long long)steps_per_epoch, (long long)(MOST_STEPS / steps_per_epoch));
    *out = epochs * steps_per_epoch;
    return LS_OK;
}

ls_status ls_train_betas(const ls_train_config *c, double *beta1, double *beta2)
{
    const ls_opt_doubles *b = &c->optim.betas;
    *beta1 = b->v[0];
    *beta2 = b->v[1];
    return b->n == 2 ? LS_OK
                     : ls_fail(LS_BAD_CONFIG, "optim.betas has %d numbers: expected two, as [0.9, 0.999]", b->n);
}

ls_status ls_train_optim(const ls_train_config *c, ls_optim_config *out)
{
    LS_TRY(ls_optim_defaults(c->optim.name, out));
    out->lr = c->optim.lr;
    out->momentum = c->optim.momentum;
    out->eps = c->optim.eps;
    out->weight_decay = c->optim.weight_decay;
    return ls_train_betas(c, &out->beta1, &out->beta2);
}

ls_status ls_train_lr(const ls_train_config *c, int ranks, int64_t steps, ls_lr *out)
{
    double factor;
    LS_TRY(ls_lr_scale(c->optim.scale_lr, ranks, &factor));
    const double peak = c->optim.lr * factor, low = c->optim.min_lr, ratio = c->optim.min_lr_ratio;
    if (low > 0.0 && ratio > 0.0)
        return ls_fail(LS_BAD_CONFIG, "optim.min_lr is %g and optim.min_lr_ratio is %g: expected only one of them: set the other to 0", low,
                       ratio);
    if (low > peak)
        return ls_fail(LS_BAD_CONFIG, "optim.min_lr is %g, more than optim.lr, which is %g%s%s", low, peak,
                       factor > 1 ? " after optim.scale_lr " : "", factor > 1 ? c->optim.scale_lr : "");
    *out = (ls_lr){
        .peak = peak, .min_ratio = low > 0.0 ? low / peak : ratio, .warmup = c->optim.warmup, .steps = steps,
        .decay = c->optim.decay_steps ? c->optim.decay_steps : steps / 5,
    };
    return ls_lr_find(c->optim.schedule, &out->kind);
}

ls_status ls_train_scaler(const ls_train_config *c, ls_grad_scaler *out, bool *adapts)
{
    const char *text = c->optim.loss_scale;
    char *end;
    double scale = 1.0;
    ls_grad_scaler_init(out);
    *adapts = strcmp(text, "dynamic") == 0;
    if (*adapts) {
        scale = c->optim.scale_init;
        out->growth = c->optim.scale_growth;
        out->backoff = c->optim.scale_backoff;
        out->interval = c->optim.scale_interval;
        if (!(out->backoff > 0.0)) return ls_fail(LS_BAD_CONFIG, "optim.scale_backoff is 0: expected more, and less than 1");
    } else if (strcmp(text, "none") != 0) {
        scale = strtod(text, &end);
        if (end == text || *end)
            return ls_fail(LS_BAD_CONFIG, "optim.loss_scale is '%s': expected none, dynamic or a number above 0", text);
    }
    out->scale = (float)scale;
    if (out->scale >= FLT_MIN && isfinite(out->scale)) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "optim.%s is %g: expected a number from %g to %g", *adapts ? "scale_init" : "loss_scale", scale,
                   (double)FLT_MIN, (double)FLT_MAX);
}

ls_status ls_train_trace_steps(const ls_train_config *c, uint32_t *first, uint32_t *last)
{
    const char *text = c->trace.steps;
    *first = *last = 0;
    if (!*text) return LS_OK;
    char *end;
    unsigned long a = strtoul(text, &end, 10), b = a;
    if (*end == ':') b = strtoul(end + 1, &end, 10);
    if (*end || a < 1 || b < a || b > UINT32_MAX)
        return ls_fail(LS_BAD_CONFIG, "trace.steps is '%s': expected FIRST:LAST, counted from 1, as 3:5", text);
    *first = (uint32_t)a;
    *last = (uint32_t)b;
    return LS_OK;
}

/* The strategy of a plan; a stage that it does not have is refused by the names of the keys. */
static ls_status check_strategy(const ls_plan *p, const ls_dp_strategy **out)
{
    const int stage = p->ddp.zero_stage;
    const ls_dp_strategy *s;
    LS_TRY(ls_dp_strategy_of(stage, out));
    if (!p->dp) return LS_OK;
    LS_TRY(ls_dp_strategy_find(p->dp, NULL, &s));
    if (!ls_dp_strategy_has(s, stage))
        return ls_fail(LS_BAD_CONFIG, "parallel.dp_strategy is %s, but zero.stage is %d: set zero.stage to %d, or "
                       "parallel.dp_strategy to %s or auto", s->name, stage, s->first_stage, (*out)->name);
    *out = s;
    return LS_OK;
}

/* Packing gives each rank a second copy of all weights, which stage 3 is there to avoid. */
static ls_status check_packed(const ls_train_config *c)
{
    if (c->zero.stage < 3 || strcmp(c->train.pack_weights, "always") != 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "train.pack_weights always with zero.stage 3: each rank would have a copy of all weights, "
                   "which stage 3 is there to avoid: set train.pack_weights to auto, or zero.stage to 2");
}

/* What needs whole gradients. */
static ls_status check_whole(const ls_train_config *c)
{
    const char *key = c->ddp.find_unused ? "find_unused true" : c->ddp.static_graph ? "static_graph true" : NULL;
    const bool hooked = strcmp(c->ddp.hook, "none") != 0;
    if (!key && !hooked) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "ddp.%s%s with zero.stage %lld: it is for stage 0, where gradients are not sharded: leave one of them "
                   "out", key ? key : "hook ", key ? "" : c->ddp.hook, (long long)c->zero.stage);
}

/* Whether each set of shards has all experts: sets are consecutive replicas, so those of dp have to be far apart. */
static ls_status check_sets(const ls_train_config *c, const ls_plan *p)
{
    if (p->hsdp < 2 || p->size[LS_AXIS_EP] < 2) return LS_OK;
    for (int i = 0; i < LS_AXES; i++) {
        const ls_axis a = ls_mesh_axis(p->order, i);
        if (a == LS_AXIS_DP) return LS_OK;
        if ((a == LS_AXIS_EP || a == LS_AXIS_CP) && p->size[a] > 1)
            return ls_fail(LS_UNSUPPORTED, "parallel.order %s with zero.hsdp %d and parallel.ep %d: each set of shards has all "
                           "experts, so dp comes before %s: expected an order like pp-dp-ep-cp-tp", c->parallel.order, p->hsdp,
                           p->size[LS_AXIS_EP], ls_axis_name(a));
    }
    return LS_OK;
}

/* Which values of parallelism are implemented is the plan's business (ls_plan_supported). It is asked for one key after
 * another, so that a message names the one that is refused. */
static ls_status check_plan(const ls_train_config *c, int world_size)
{
    static const struct { const char *key; size_t at; } number[] = {
        { "parallel.tp", offsetof(ls_plan, size[LS_AXIS_TP]) }, { "parallel.pp", offsetof(ls_plan, size[LS_AXIS_PP]) },
        { "parallel.cp", offsetof(ls_plan, size[LS_AXIS_CP]) }, { "parallel.ep", offsetof(ls_plan, size[LS_AXIS_EP]) },
    };
    ls_plan p;
    LS_TRY(ls_train_plan(c, world_size, &p));
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        ls_plan one = { .size = { 1, world_size, 1, 1, 1 }, .micro_batch = 1, .micro_batches = 1 };
        memcpy((char *)&one + number[i].at, (const char *)&p + number[i].at, sizeof(int));
        const ls_status st = ls_plan_supported(&one, world_size);
        if (st < 0) return ls_while(st, "checking %s", number[i].key);
    }
    const ls_plan context = { .size = { [LS_AXIS_PP] = 1, 1, 1, p.size[LS_AXIS_CP], 1 }, .context = p.context,
                              .exchange = p.exchange, .micro_batch = 1, .micro_batches = 1 };
    const ls_status rings = ls_plan_supported(&context, p.size[LS_AXIS_CP]);
    if (rings < 0) return ls_while(rings, "checking parallel.%s", p.exchange ? "cp_ulysses" : "context");
    if (p.size[LS_AXIS_PP] > 1 || p.chunks > 1 || p.split) {
        const ls_status st = ls_plan_supported(&p, world_size);
        if (st < 0) return ls_while(st, "checking parallel.pp, pipeline.schedule and pipeline.chunks");
    }
    LS_TRY(check_sets(c, &p));
    const ls_dp_strategy *s;
    LS_TRY(check_strategy(&p, &s));
    LS_TRY(check_packed(c));
    const ls_plan hybrid = { .size = { 1, world_size, 1, 1, 1 }, .ddp.zero_stage = p.ddp.zero_stage, .hsdp = p.hsdp,
                             .micro_batch = 1, .micro_batches = 1 };
    const ls_status sets = ls_plan_supported(&hybrid, world_size);
    if (sets < 0) return ls_while(sets, "checking zero.hsdp");
    if (s->shards && c->zero.hsdp < 2 && strncmp(c->inject, "diverge", 7) == 0)
        return ls_fail(LS_UNSUPPORTED, "--inject diverge with zero.stage %lld: each shard is on one rank, and there is nothing to compare it "
                       "with: use zero.stage 0, or zero.hsdp above 1", (long long)c->zero.stage);
    return s->shards ? check_whole(c) : LS_OK;
}

/* What is accepted above for the versions to come, and what this one supports instead. */
static ls_status check_supported(const ls_train_config *c, int world_size)
{
    LS_TRY(check_plan(c, world_size));
    if (strcmp(c->comm.backend, "nccl") == 0)
        return ls_fail(LS_UNSUPPORTED, "comm.backend %s is not implemented: sched, mpi, auto and gloo are", c->comm.backend);
    return LS_OK;
}

/* Whether ranks can divide a sequence: cp into one or two pieces for each rank, and with sequence parallelism tp what a
 * rank has of it. */
static ls_status check_sequence(const ls_train_config *c)
{
    const bool in_turn = strcmp(c->parallel.cp_split, "contiguous") == 0;
    const int64_t T = ls_train_seq_len(c), cp = c->parallel.cp, pieces = cp == 1 || in_turn ? cp : 2 * cp;
    const int64_t parts = cp * (c->parallel.sp ? c->parallel.tp : 1), unit = pieces % parts == 0   ? pieces
                                                                             : parts % pieces == 0 ? parts
                                                                                                   : pieces * parts;
    const int64_t below = T / unit * unit;
    if (T % pieces == 0 && T % parts == 0) return LS_OK;
    char fit[64], among[96] = "", parts_of[64] = "";
    if (below > 0 && below + unit <= c->model.seq_len)
        snprintf(fit, sizeof fit, "%lld or %lld", (long long)below, (long long)(below + unit));
    else snprintf(fit, sizeof fit, "%lld", (long long)(below > 0 ? below : unit));
    if (cp > 1) snprintf(among, sizeof among, "parallel.cp %lld%s", (long long)cp, pieces > cp ? " (two pieces for each rank)" : "");
    if (parts > cp)
        snprintf(parts_of, sizeof parts_of, "%sparallel.tp %lld (parallel.sp)", cp > 1 ? " and " : "", (long long)c->parallel.tp);
    return ls_fail(LS_BAD_CONFIG, "a sequence of %lld tokens (train.seq_len) cannot be divided by %s%s: expected a multiple of %lld; "
                   "nearest that fit: %s", (long long)T, among, parts_of, (long long)unit, fit);
}

/* What a model of tokens and its data have to do with each other. */
static ls_status check_lm(const ls_train_config *c, int world_size)
{
    static const char *const images[] = { "fashion-mnist", "idx", "synthetic" };
    const char *name = ls_train_data_name(c);
    ls_lm_config lm;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, images[i]) == 0)
            return ls_fail(LS_BAD_CONFIG, "data.name is %s: %s learns from text: tokens, sotu, moby-dick, or a text file or a folder "
                           "of them", name, c->model.name);
    if (strcmp(c->data.format, "idx") == 0)
        return ls_fail(LS_BAD_CONFIG, "data.format is idx: token files are llmc or nanogpt, auto finds out");
    if (strcmp(name, "tokens") == 0 && !*c->data.path)
        return ls_fail(LS_BAD_CONFIG, "data.path is missing: a folder that `lockstep data prepare` made, or a token file; or set "
                       "data.name to sotu, moby-dick or a text file");
    if (strcmp(c->model.init, "torch") == 0)
        return ls_fail(LS_UNSUPPORTED, "model.init torch: only mlp, cnn and timed have PyTorch's initial values; set it to philox");
    LS_TRY(ls_train_lm(c, c->model.vocab_size ? c->model.vocab_size : 1, &lm));
    if (lm.d_model / lm.n_head > LS_ATTENTION_MOST_D)
        return ls_fail(LS_BAD_CONFIG, "model.d_model %lld over model.n_head %lld gives heads of %lld channels: at most %d are supported",
                       (long long)lm.d_model, (long long)lm.n_head, (long long)(lm.d_model / lm.n_head),
                       LS_ATTENTION_MOST_D);
    if (ls_train_seq_len(c) > lm.seq_len)
        return ls_fail(LS_BAD_CONFIG, "train.seq_len is %lld, but the model's longest sequence, model.seq_len, is %lld",
                       (long long)ls_train_seq_len(c), (long long)lm.seq_len);
    LS_TRY(check_sequence(c));
    const int64_t micro = ls_train_micro_batch(c, c->train.global_batch / ls_train_batch_ranks(c, world_size));
    if (micro > MOST_TOKENS / ls_train_seq_len(c))
        return ls_fail(LS_BAD_CONFIG, "train.micro_batch is %lld and a sample has %lld tokens: expected at most %lld tokens at a time on one "
                       "rank: set train.micro_batch to %lld or less (0: all samples of the rank)",
                       (long long)micro, (long long)ls_train_seq_len(c), (long long)MOST_TOKENS,
                       (long long)(MOST_TOKENS / ls_train_seq_len(c)));
    return LS_OK;
}

/* A model of features. */
static ls_status check_features(const ls_train_config *c)
{
    const char *a = c->model.name[0] == 'm' ? "an" : "a"; /* mlp, cnn */
    char names[128];
    const char *words = ls_model_names(LS_LM_KEY, names, sizeof names);
    const char *name = ls_train_data_name(c);
    const int64_t divided = c->parallel.tp > 1 ? c->parallel.tp : c->parallel.cp;
    if (divided > 1)
        return ls_fail(LS_UNSUPPORTED, "parallel.%s is %lld, but %s has no layers that ranks divide; %s have: leave it out",
                       c->parallel.tp > 1 ? "tp" : "cp", (long long)divided, c->model.name, words);
    if (ls_train_dtype(c) != LS_F32)
        return ls_fail(LS_UNSUPPORTED, "train.dtype %s: %s %s trains in f32; %s train in bf16, too", c->train.dtype, a,
                       c->model.name, words);
    if (c->model.dims.n < 2)
        return ls_fail(LS_BAD_CONFIG, "model.dims has %d numbers: expected inputs, widths or channels, classes",
                       c->model.dims.n);
    if (strcmp(name, "fashion-mnist") != 0 && strcmp(name, "idx") != 0 && strcmp(name, "synthetic") != 0)
        return ls_fail(LS_BAD_CONFIG, "data.name is '%s': %s %s learns from fashion-mnist, idx or synthetic; %s from "
                       "text", name, a, c->model.name, words);
    if (strcmp(c->data.format, "auto") != 0 && strcmp(c->data.format, "idx") != 0)
        return ls_fail(LS_BAD_CONFIG, "data.format is %s: %s %s learns from idx files", c->data.format, a, c->model.name);
    return LS_OK;
}

/* PowerSGD puts what it has left out of a step into the next one: what is not finite would stay for good. */
static ls_status check_scaler(const ls_train_config *c)
{
    ls_grad_scaler scaler;
    bool adapts;
    LS_TRY(ls_train_scaler(c, &scaler, &adapts));
    if (!adapts || strcmp(c->ddp.hook, "powersgd") != 0) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "optim.loss_scale dynamic with ddp.hook powersgd: factors and errors of a skipped step would "
                   "not be finite any more: set optim.loss_scale to none or a number");
}

/* Whether the degrees make up the job. */
static ls_status check_product(const ls_train_config *c, int world_size)
{
    const int64_t same = c->parallel.pp * c->parallel.cp * c->parallel.tp * c->parallel.ep;
    if (same == 1 && c->parallel.dp != 0 && c->parallel.dp != world_size)
        return ls_fail(LS_BAD_CONFIG,
                       "parallel.dp is %lld but the job has %d ranks: the product of the parallel degrees must be the "
                       "number of ranks: set it to %d, or to 0 for all",
                       (long long)c->parallel.dp, world_size, world_size);
    ls_plan p;
    LS_TRY(ls_train_plan(c, world_size, &p));
    const ls_status st = ls_mesh_check(p.size, world_size);
    return st < 0 ? ls_while(st, "checking parallel.dp, parallel.ep, parallel.cp, parallel.tp and parallel.pp") : LS_OK;
}

/* Samples of a step: of each rank that has its own, and of each of its micro-batches. */
static ls_status check_batch(const ls_train_config *c, int world_size)
{
    const int samplers = ls_train_batch_ranks(c, world_size);
    const int64_t batch = c->train.global_batch, micro = c->train.micro_batch, each = batch / samplers;
    char nearest[80];
    if (batch % samplers != 0) {
        const long long unit = samplers * (micro > 0 ? micro : 1), below = batch / unit * unit;
        if (below == 0) snprintf(nearest, sizeof nearest, "nearest that fits is %lld", unit);
        else snprintf(nearest, sizeof nearest, "nearest that fit are %lld and %lld", below, below + unit);
        return ls_fail(LS_BAD_CONFIG, "train.global_batch is %lld, which %d ranks cannot share equally: the %s",
                       (long long)batch, samplers, nearest);
    }
    if (micro == 0 || each % micro == 0) return LS_OK;
    int64_t less = micro < each ? micro : each, more = micro;
    while (each % less != 0) less--;
    while (more < each && each % more != 0) more++;
    if (more > each || more == less) snprintf(nearest, sizeof nearest, "nearest that does is %lld", (long long)less);
    else snprintf(nearest, sizeof nearest, "nearest that do are %lld and %lld", (long long)less, (long long)more);
    return ls_fail(LS_BAD_CONFIG, "train.micro_batch is %lld, which does not divide the %lld samples of a rank: the %s",
                   (long long)micro, (long long)each, nearest);
}

ls_status ls_train_config_check(const ls_train_config *c, int world_size)
{
    double b1, b2;
    ls_lr lr;
    uint32_t first, last;
    ls_injection inject;
    const int64_t same = c->parallel.pp * c->parallel.cp * c->parallel.tp;
    if (c->parallel.pp > 1 && world_size % same == 0) LS_TRY(check_batch(c, world_size)); /* before stages count it */
    LS_TRY(check_supported(c, world_size));
    LS_TRY(ls_train_betas(c, &b1, &b2));
    LS_TRY(ls_train_lr(c, world_size, c->train.steps, &lr));
    LS_TRY(check_scaler(c));
    LS_TRY(ls_train_trace_steps(c, &first, &last));
    LS_TRY(ls_injection_parse(c->inject, world_size, &inject));
    if (c->log.straggler > 0 && c->log.straggler <= 1)
        return ls_fail(LS_BAD_CONFIG, "log.straggler is %g: a rank is slow from so many times the median rank's time on: set it "
                       "above 1, or to 0 for no warning", c->log.straggler);
    const ls_algo *by[LS_COLLS];
    ls_status st = ls_algo_parse(c->comm.algo, by);
    if (st < 0) return ls_while(st, "comm.algo");
    if (*c->comm.transport && (st = ls_transport_check(c->comm.transport)) < 0) return ls_while(st, "reading comm.transport");
    LS_TRY(check_product(c, world_size));
    LS_TRY(check_batch(c, world_size));
    LS_TRY(ls_train_check_invariant(c, world_size));
    bool file = strcmp(c->model.init, "file") == 0;
    if (ls_train_is_lm(c) && strcmp(c->checkpoint.best, "accuracy") == 0)
        return ls_fail(LS_BAD_CONFIG, "checkpoint.best is accuracy, and an evaluation of %s has a loss alone: set it to loss", c->model.name);
    if (c->checkpoint.async && strcmp(c->checkpoint.consolidate, "always") == 0)
        return ls_fail(LS_BAD_CONFIG, "checkpoint.async true with checkpoint.consolidate always: all ranks would stop training for "
                       "each model.safetensors: set checkpoint.consolidate to last or never (`lockstep ckpt merge` makes the file from a "
                       "checkpoint), or checkpoint.async to false");
    if (c->eval_only && strcmp(c->checkpoint.resume, "never") != 0)
        return ls_fail(LS_BAD_CONFIG, "--eval-only reads model.load, and checkpoint.resume %s goes on with a training: leave "
                       "one of them out", c->checkpoint.resume);
    if ((file || c->eval_only) && !*c->model.load)
        return ls_fail(LS_BAD_CONFIG, "%s needs model.load: the safetensors file to read",
                       file ? "model.init file" : "--eval-only");
    return ls_train_is_lm(c) ? check_lm(c, world_size) : check_features(c);
}
