/* tensorboard.c -- numbers of a run as an event file that TensorBoard reads. */
#include "report/tensorboard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/hash.h"
#include "report/rundir.h"

/* --- protocol buffers --------------------------------------------------------------- */

/* The byte before a field: its number, and how its value is written. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
#define KEY(field, type) ((uint8_t)((field) << 3 | (type)))

static void put_byte(ls_text *out, uint8_t b) { ls_text_addn(out, (const char *)&b, 1); }

static void put_little(ls_text *out, uint64_t v, int nbytes)
{
    for (int i = 0; i < nbytes; i++) put_byte(out, (uint8_t)(v >> 8 * i));
}

/* Seven bits a byte, the lowest first; the top bit: more follow. */
static void put_varint(ls_text *out, uint64_t v)
{
    for (; v > 0x7f; v >>= 7) put_byte(out, (uint8_t)(v | 0x80));
    put_byte(out, (uint8_t)v);
}

static size_t varint_bytes(uint64_t v)
{
    size_t n = 1;
    for (; v > 0x7f; v >>= 7) n++;
    return n;
}

static void put_string(ls_text *out, int field, const char *s)
{
    put_byte(out, KEY(field, BYTES));
    put_varint(out, strlen(s));
    ls_text_addn(out, s, strlen(s));
}

static void put_double(ls_text *out, int field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_byte(out, KEY(field, FIXED64));
    put_little(out, bits, 8);
}

static void put_float(ls_text *out, int field, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_byte(out, KEY(field, FIXED32));
    put_little(out, bits, 4);
}

/* --- records ---------------------------------------------------------------------------- */

static uint32_t masked_crc(const void *p, size_t n)
{
    uint32_t c = ls_crc32c(0, p, n);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* A record whose data comes next, and is put_record_end's when it is there. */
static size_t put_record_begin(ls_text *out, size_t nbytes)
{
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)nbytes >> 8 * i);
    ls_text_addn(out, (const char *)length, sizeof length);
    put_little(out, masked_crc(length, sizeof length), 4);
    return out->n;
}

static void put_record_end(ls_text *out, size_t begin)
{
    if (!out->failed) put_little(out, masked_crc(out->p + begin, out->n - begin), 4);
}

void ls_tensorboard_version(ls_text *out, double wall_time)
{
    static const char version[] = "brain.Event:2";
    size_t begin = put_record_begin(out, 9 + 2 + strlen(version));
    put_double(out, 1, wall_time);
    put_string(out, 3, version);
    put_record_end(out, begin);
}

static size_t value_bytes(const ls_scalar *v)
{
    size_t n = strlen(v->name);
    return 1 + varint_bytes(n) + n + 5;
}

void ls_tensorboard_scalars(ls_text *out, double wall_time, int64_t step, const ls_scalar *v, size_t n)
{
    size_t summary = 0;
    for (size_t i = 0; i < n; i++) summary += 1 + varint_bytes(value_bytes(&v[i])) + value_bytes(&v[i]);
    size_t begin =
        put_record_begin(out, 9 + (step ? 1 + varint_bytes((uint64_t)step) : 0) + 1 + varint_bytes(summary) + summary);
    put_double(out, 1, wall_time);
    if (step) { /* a field that is 0 is left out */
        put_byte(out, KEY(2, VARINT));
        put_varint(out, (uint64_t)step);
    }
    put_byte(out, KEY(5, BYTES));
    put_varint(out, summary);
    for (size_t i = 0; i < n; i++) {
        put_byte(out, KEY(1, BYTES));
        put_varint(out, value_bytes(&v[i]));
        put_string(out, 1, v[i].name);
        put_float(out, 2, (float)v[i].value);
    }
    put_record_end(out, begin);
}

/* --- the file ---------------------------------------------------------------------------- */

struct ls_tensorboard {
    int fd;
    ls_text text; /* not written yet */
    char path[512];
};

static double wall_time(void) { return (double)ls_env_get()->wall_ns() * 1e-9; }

ls_status ls_tensorboard_open(const char *folder, ls_tensorboard **out)
{
    const ls_env *env = ls_env_get();
    char host[256] = "";
    *out = NULL;
    LS_TRY(ls_mkdirs(folder));
    ls_tensorboard *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "an event file for TensorBoard");
    if (env->hostname(host, sizeof host) < 0 || !*host) snprintf(host, sizeof host, "localhost");
    long long seconds = env->wall_ns() / 1000000000;
    t->fd = -EEXIST;
    for (int n = 0; t->fd == -EEXIST && n < 1000; n++) { /* two runs of one process in a second */
        snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%010lld.%s.%d.%d", folder, seconds, host, env->pid(),
                 n);
        t->fd = env->create(t->path);
    }
    if (t->fd < 0) {
        ls_status st = ls_fail(LS_IO, "creating %s: %s", t->path, strerror(-t->fd));
        free(t);
        return st;
    }
    ls_tensorboard_version(&t->text, wall_time());
    ls_status st = ls_tensorboard_flush(t);
    if (st < 0)
        ls_tensorboard_close(t);
    else
        *out = t;
    return st;
}

void ls_tensorboard_add(ls_tensorboard *t, int64_t step, const ls_scalar *v, size_t n)
{
    ls_tensorboard_scalars(&t->text, wall_time(), step, v, n);
}

ls_status ls_tensorboard_flush(ls_tensorboard *t)
{
    const ls_env *env = ls_env_get();
    LS_TRY(ls_text_status(&t->text));
    for (size_t at = 0; at < t->text.n;) {
        ssize_t k = env->write(t->fd, t->text.p + at, t->text.n - at);
        if (k <= 0) return ls_fail(LS_IO, "writing %s: %s", t->path, strerror((int)-k));
        at += (size_t)k;
    }
    t->text.n = 0;
    return LS_OK;
}

void ls_tensorboard_close(ls_tensorboard *t)
{
    if (!t) return;
    if (t->fd >= 0) ls_env_get()->close_fd(t->fd);
    ls_text_free(&t->text);
    free(t);
}
