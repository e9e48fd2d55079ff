/* amx.c -- products of tiles by AMX. Its instructions are written by name: so no function asks for a target, and the
 * compiler knows that they read and write memory. */
#include "tensor/amx.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include "base/compiler.h"
#include "base/env.h"

/* AVX-512 with bfloat16 serves the vectors between the products. */
bool ls_amx_ready(void)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 }; /* leaf 7, edx */
    unsigned a, b, c, d;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512bf16"))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE)) return false;
    return ls_env_get()->use_tiles() >= 0;
}

void ls_amx_begin(void)
{
    struct {
        uint8_t palette, start_row, zero[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = { .palette = 1 };
    _Static_assert(sizeof config == 64, "as the instruction reads it");
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = 64;
        config.rows[t] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

void ls_amx_end(void) { __asm__ volatile("tilerelease"); }

#define LOAD(t, from) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"(64L) : "memory")
#define STORE(t, to) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"(64L) : "memory")
#define ZERO(t) __asm__ volatile("tilezero %tmm" #t)
#define MULTIPLY(c, a, b) __asm__ volatile("tdpbf16ps %tmm" #b ", %tmm" #a ", %tmm" #c)
#define BEGIN(t, from) do { if (add) LOAD(t, from); else ZERO(t); } while (0)

/* C of mr x nr tiles, 1 or 2 each, stays in registers 0 to 3; A in 4 and 5, B in 6 and 7. */
static LS_ALWAYS_INLINE void few(const ls_amx_product *p, const char *a, const char *b, char *c, const int mr,
                                 const int nr, const bool add)
{
    BEGIN(0, c);
    if (nr > 1) BEGIN(1, c + p->c_n);
    if (mr > 1) BEGIN(2, c + p->c_m);
    if (mr > 1 && nr > 1) BEGIN(3, c + p->c_m + p->c_n);
    for (int k = p->k; k > 0; k--, a += p->a_k, b += p->b_k) {
        LOAD(4, a);
        LOAD(6, b);
        MULTIPLY(0, 4, 6);
        if (nr > 1) {
            LOAD(7, b + p->b_n);
            MULTIPLY(1, 4, 7);
        }
        if (mr > 1) {
            LOAD(5, a + p->a_m);
            MULTIPLY(2, 5, 6);
            if (nr > 1) MULTIPLY(3, 5, 7);
        }
    }
    STORE(0, c);
    if (nr > 1) STORE(1, c + p->c_n);
    if (mr > 1) STORE(2, c + p->c_m);
    if (mr > 1 && nr > 1) STORE(3, c + p->c_m + p->c_n);
}

static LS_ALWAYS_INLINE void all(const ls_amx_product *p, const bool add)
{
    for (int i = 0; i < p->m; i += 2)
        for (int j = 0; j < p->n; j += 2) {
            const char *a = (const char *)p->a + i * p->a_m, *b = (const char *)p->b + j * p->b_n;
            char *c = (char *)p->c + i * p->c_m + j * p->c_n;
            if (i + 1 < p->m && j + 1 < p->n) few(p, a, b, c, 2, 2, add);
            else if (i + 1 < p->m) few(p, a, b, c, 2, 1, add);
            else if (j + 1 < p->n) few(p, a, b, c, 1, 2, add);
            else few(p, a, b, c, 1, 1, add);
        }
}

void ls_amx_multiply(const ls_amx_product *p)
{
    if (p->add) all(p, true);
    else all(p, false);
}
#else
bool ls_amx_ready(void) { return false; }
void ls_amx_begin(void) {}
void ls_amx_end(void) {}
void ls_amx_multiply(const ls_amx_product *p) { (void)p; }
#endif
