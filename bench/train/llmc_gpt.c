/* llmc_gpt.c -- steps of training GPT-2 124M by llm.c on CPUs, whose train_gpt2.c is included, not copied:
 * bench/train/fetch gets it, bench/train/build compiles this with llm.c's own flags.
 *
 *   llmc_gpt BATCH TOKENS STEPS        (output of bench/bench_gpt.c; llm.c clips nothing and has no bf16)
 */
#include "train_gpt2.c"

#include <sys/resource.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* As gpt2_build_from_checkpoint leaves it, with random weights. */
static void build(GPT2 *m)
{
    memset(m, 0, sizeof *m);
    m->config = (GPT2Config){ .max_seq_len = 1024, .vocab_size = 50257, .padded_vocab_size = 50304, .num_layers = 12,
                              .num_heads = 12, .channels = 768 };
    fill_in_parameter_sizes(m->param_sizes, m->config);
    for (int i = 0; i < NUM_PARAMETER_TENSORS; i++) m->num_parameters += m->param_sizes[i];
    m->params_memory = malloc_and_point_parameters(&m->params, m->param_sizes);
    uint32_t s = 1;
    for (size_t i = 0; i < m->num_parameters; i++) {
        s = s * 1664525u + 1013904223u;
        m->params_memory[i] = 0.069f * ((float)(s >> 8) / (float)(1u << 24) - 0.5f); /* standard deviation 0.02 */
    }
    float *ones[] = { m->params.ln1w, m->params.ln2w, m->params.lnfw };
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 768 * (k < 2 ? 12 : 1); i++) ones[k][i] = 1.0f;
    m->mean_loss = -1.0f;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: llmc_gpt BATCH TOKENS STEPS\n");
        return 64;
    }
    const int B = atoi(argv[1]), T = atoi(argv[2]), steps = atoi(argv[3]);
    int *x = malloc(sizeof(int) * (size_t)(B * T)), *y = malloc(sizeof(int) * (size_t)(B * T));
    GPT2 m;
    build(&m);
    printf("step,sync,ms,loss\n");
    for (int s = 0; s < steps; s++) {
        for (int b = 0; b < B; b++)
            for (int t = 0; t < T; t++) { /* bench_gpt.c's ids */
                const uint64_t i = (uint64_t)(s * B + b) * (uint64_t)(T + 1) + (uint64_t)t;
                x[b * T + t] = (int)(((uint32_t)(i * 2654435761u) >> 7) % 50257);
                y[b * T + t] = (int)(((uint32_t)((i + 1) * 2654435761u) >> 7) % 50257);
            }
        const double t0 = now_ms();
        gpt2_zero_grad(&m);
        gpt2_forward(&m, x, y, (size_t)B, (size_t)T);
        gpt2_backward(&m);
        gpt2_update(&m, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, s + 1);
        printf("%d,1,%.3f,%.7g\n", s + 1, now_ms() - t0, (double)m.mean_loss);
        fflush(stdout);
    }
    struct rusage u;
    if (getrusage(RUSAGE_SELF, &u) == 0) printf("max_rss_mib,%.1f\n", (double)u.ru_maxrss / 1024);
    return 0;
}
