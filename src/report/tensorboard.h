/* tensorboard.h -- numbers of a run as an event file that TensorBoard reads.
 *
 * A file of records (TensorFlow's TFRecord), little-endian:
 *
 *   length of data (8)   masked CRC-32C of these 8 bytes (4)   data   masked CRC-32C of data (4)
 *
 * masked(c) = (c rotated right by 15 bits) + 0xa282ead8. The data of a record is a protocol buffer:
 *
 *   Event   { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
 *   Summary { repeated Value value = 1; }      Value { string tag = 1; float simple_value = 2; }
 *
 * and the first one says file_version "brain.Event:2".
 */
#ifndef LS_REPORT_TENSORBOARD_H
#define LS_REPORT_TENSORBOARD_H
#include <stddef.h>
#include <stdint.h>
#include "base/text.h"

/* A number with its name: "loss_metrics/global_avg_loss". TensorBoard groups by what is before the slash. */
typedef struct ls_scalar {
    const char *name;
    double value;
} ls_scalar;

/* Adds the record that a file begins with. wall_time: seconds since 1970. */
void ls_tensorboard_version(ls_text *out, double wall_time);
/* Adds a record with n numbers of a step; they are kept as float. */
void ls_tensorboard_scalars(ls_text *out, double wall_time, int64_t step, const ls_scalar *v, size_t n);

/* An open event file. */
typedef struct ls_tensorboard ls_tensorboard;

/* Makes the folder, where it is missing, and in it events.out.tfevents.<seconds>.<host>.<pid>.<n>, n counting up from 0
 * until the name is free. LS_IO. */
ls_status ls_tensorboard_open(const char *folder, ls_tensorboard **out);
/* Now, in memory until it is flushed. */
void ls_tensorboard_add(ls_tensorboard *t, int64_t step, const ls_scalar *v, size_t n);
/* Into the file. LS_IO, LS_NO_MEMORY. */
ls_status ls_tensorboard_flush(ls_tensorboard *t);
void ls_tensorboard_close(ls_tensorboard *t); /* without a flush; NULL is fine */

#endif
