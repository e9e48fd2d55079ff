/* lockstep.h -- everything, and where to start.
 *
 *   status.h   errors: a status for programs, a message for people
 *   world.h    ranks join a job; registered memory; abort
 *   group.h    groups, collectives, work handles
 *   sched.h    the collectives' schedules: print them, prove them
 *   tensor.h   tape and ops;   op.h operations of your own, devices
 *   nn.h       parameters;   unit.h a model's pieces;   model.h models
 *   mesh.h     the world as a grid of ranks: groups along each axis;   parallel.h a model on that grid
 *   dp.h       DDP: gradient buckets reduced during backward;   pipe.h the order of a step's micro-batches
 *   optim.h    SGD, Adam, AdamW;   data.h data sets, sampler, loader
 *   ckpt.h     safetensors checkpoints;   hf.h Hugging Face's folders;   launch.h starting ranks
 *   decode.h   the next token, with a KV cache;   generate.h text from a trained model
 *   topo.h     a cluster as data: levels of links, and what they carry
 *   train.h    a whole run from a recipe, as `lockstep train` does it
 */
#ifndef LS_LOCKSTEP_H
#define LS_LOCKSTEP_H
#include "lockstep/ckpt.h"
#include "lockstep/data.h"
#include "lockstep/decode.h"
#include "lockstep/dp.h"
#include "lockstep/dtype.h"
#include "lockstep/generate.h"
#include "lockstep/group.h"
#include "lockstep/hf.h"
#include "lockstep/hook.h"
#include "lockstep/launch.h"
#include "lockstep/mem.h"
#include "lockstep/mesh.h"
#include "lockstep/model.h"
#include "lockstep/moe.h"
#include "lockstep/nn.h"
#include "lockstep/op.h"
#include "lockstep/optim.h"
#include "lockstep/opts.h"
#include "lockstep/parallel.h"
#include "lockstep/pipe.h"
#include "lockstep/rng.h"
#include "lockstep/sched.h"
#include "lockstep/shard.h"
#include "lockstep/state.h"
#include "lockstep/status.h"
#include "lockstep/tensor.h"
#include "lockstep/trace.h"
#include "lockstep/topo.h"
#include "lockstep/train.h"
#include "lockstep/transport.h"
#include "lockstep/unit.h"
#include "lockstep/world.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LS_VERSION "0.1.0"
/* "0.1.0 (commit, compiler, libraries)". */
const char *ls_version(void);

#ifdef __cplusplus
}
#endif
#endif
