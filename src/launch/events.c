/* events.c -- one JSON line for each thing that happens to a job.
 *
 * The launcher writes rank_spawn, rank_exit, detect, gen_start, auth_reject
 * and exit; rank 0 appends its own (step, ckpt_*) to the same file. Every line
 * is one write to a descriptor opened for appending, so lines never mix.
 */
#include "launch/impl.h"

void ls_event_line(int fd, uint32_t generation, const char *event, int rank, const char *more)
{
    const ls_env *env = ls_env_get();
    ls_text t = { 0 };
    if (fd < 0) return;
    ls_text_add(&t, "{\"t_ns\":%llu,\"event\":\"%s\",\"gen\":%u", (unsigned long long)env->mono_ns(), event,
                generation);
    if (rank >= 0) ls_text_add(&t, ",\"rank\":%d", rank);
    ls_text_add(&t, "%s}\n", more);
    if (!t.failed) (void)env->write(fd, t.p, t.n); /* a full disk must not end a training */
    ls_text_free(&t);
}
