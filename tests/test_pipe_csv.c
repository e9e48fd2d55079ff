/* Pipeline schedules as CSV: PyTorch's files are read and are the schedules of the same name, and broken ones are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_pipe.h"
#include "harness_files.h"
#include "parallel/pipe_csv.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static ls_pipe_program read_of(const char *text)
{
    ls_pipe_program g = { 0 };
    int others;
    if (ls_pipe_csv_read("text", text, strlen(text), 0, &g, &others) < 0) fail_msg("%s", ls_last_error());
    return g;
}

static void are_the_same(const char *what, const ls_pipe_program *a, const ls_pipe_program *b)
{
    assert_memory_equal(&a->shape, &b->shape, sizeof a->shape);
    assert_int_equal(a->buffers, b->buffers);
    for (int r = 0; r < a->shape.ranks; r++) {
        assert_int_equal(a->list[r].n, b->list[r].n);
        for (int i = 0; i < a->list[r].n; i++) {
            const ls_pipe_action *x = &a->list[r].action[i], *y = &b->list[r].action[i];
            if (x->what != y->what || x->stage != y->stage || x->micro_batch != y->micro_batch || x->slot != y->slot)
                fail_msg("%s: rank %d, action %d differs", what, r, i);
        }
    }
}

/* Of torch.distributed.pipelining 2.15, written by csv.writer as in `_dump_csv`: the chunks that Schedule1F1B's
 * `_step_microbatches` computes on a stage that only takes notes; `_get_pipeline_order` of GPipe;
 * `_calculate_single_rank_operations` of Interleaved1F1B, InterleavedZeroBubble (zb-h1 is its one chunk), ZBVZeroBubble
 * and DualPipeV. Those of "comms" went through `_add_send_recv` and `_add_wait_send`. */
static void files_of_pytorch_are_the_same_schedules(void **state)
{
    (void)state;
    static const struct { const char *file, *name; int p, v, m, others; } row[] = {
        { "gpipe_3_1_4", "gpipe", 3, 1, 4, 6 }, /* each rank reduces its gradients, and waits for that */
        { "1f1b_4_1_8", "1f1b", 4, 1, 8, 0 },
        { "1f1b_4_1_3", "1f1b", 4, 1, 3, 0 },
        { "interleaved_4_2_8", "interleaved", 4, 2, 8, 0 },
        { "interleaved_4_3_5", "interleaved", 4, 3, 5, 0 },
        { "zb_h1_4_1_8", "zb-h1", 4, 1, 8, 0 },
        { "zb_h1_4_1_2", "zb-h1", 4, 1, 2, 0 },
        { "zb_v_4_2_8", "zb-v", 4, 2, 8, 0 },
        { "zb_v_3_2_4", "zb-v", 3, 2, 4, 0 },
        { "dualpipe_v_4_2_8", "dualpipe-v", 4, 2, 8, 0 },
        { "dualpipe_v_3_2_7", "dualpipe-v", 3, 2, 7, 0 },
        { "comms_1f1b_4_1_3", "1f1b", 4, 1, 3, 0 },
        { "comms_zb_v_3_2_4", "zb-v", 3, 2, 4, 0 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        char path[512];
        size_t n;
        snprintf(path, sizeof path, LOCKSTEP_SOURCE "/tests/data/pipe/pytorch_%s.csv", row[k].file);
        char *text = (char *)slurp(path, &n);
        ls_pipe_program got, want = program_of(row[k].name, row[k].p, row[k].v, row[k].m);
        int others = -1;
        if (ls_pipe_csv_read(row[k].file, text, n, 0, &got, &others) < 0) fail_msg("%s", ls_last_error());
        assert_int_equal(others, row[k].others);
        are_the_same(row[k].file, &got, &want);
        ls_pipe_program_free(&got);
        ls_pipe_program_free(&want);
        free(text);
    }
}

static void a_file_that_is_written_is_read_again(void **state)
{
    (void)state;
    for (int k = 0; ls_pipe_schedules[k]; k++)
        for (int p = 1; p <= 5; p++)
            for (int messages = 0; messages < 2; messages++) {
                ls_pipe_program g = program_of(ls_pipe_schedules[k]->name, p, 0, 6);
                ls_text text = { 0 };
                ls_pipe_csv_write(&g, messages, &text);
                ls_pipe_program again = read_of(ls_text_str(&text));
                are_the_same(ls_pipe_schedules[k]->name, &g, &again);
                ls_pipe_program_free(&again);
                ls_pipe_program_free(&g);
                ls_text_free(&text);
            }
}

static void a_file_is_a_row_per_rank(void **state)
{
    (void)state;
    static const struct { const char *name; int p, m; bool messages; const char *want; } row[] = {
        { "1f1b", 2, 2, false, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n" },
        { "1f1b", 2, 2, true,
          "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1,0WAIT_SEND_F1\n"
          "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1WAIT_SEND_B0,1WAIT_SEND_B1\n" },
        { "zb-h1", 2, 1, true, "0F0,0SEND_F0,0RECV_B0,0I0,0WAIT_SEND_F0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0,1WAIT_SEND_B0\n" },
        { "zb-v", 2, 1, true, /* nothing travels at the turn of the V */
          "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,0RECV_B0,0I0,0WAIT_SEND_F0,0W0,3WAIT_SEND_B0\n"
          "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2I0,2WAIT_SEND_F0,2W0,1I0,1SEND_B0,1W0,1WAIT_SEND_B0\n" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_program g = program_of(row[k].name, row[k].p, 0, row[k].m);
        ls_text text = { 0 };
        ls_pipe_csv_write(&g, row[k].messages, &text);
        assert_string_equal(ls_text_str(&text), row[k].want);
        ls_text_free(&text);
        ls_pipe_program_free(&g);
    }
}

static void cells_are_taken_as_pytorch_writes_them(void **state)
{
    (void)state;
    int others;
    ls_pipe_program g, want = read_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    static const char *const same[] = {
        "0F0,0F1,,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1,,\r\n",
        " 0F0 ,0F1,0B0,\t0B1\n1F0,1B0,1F1,1B1",
        "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n",
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0WAIT_SEND_F0,0RECV_B1,0B1\n1RECV_F0,1RECV_F1,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n",
    };
    for (size_t k = 0; k < COUNT(same); k++) {
        g = read_of(same[k]);
        are_the_same(same[k], &g, &want);
        ls_pipe_program_free(&g);
    }
    const char *fsdp = "0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n";
    assert_int_equal(ls_pipe_csv_read("text", fsdp, strlen(fsdp), 0, &g, &others), LS_OK);
    assert_int_equal(others, 4);
    ls_pipe_program_free(&g);
    ls_pipe_program_free(&want);
}

static void a_file_that_is_no_schedule_is_refused(void **state)
{
    (void)state;
    static const struct { const char *text; int alive; const char *says; } row[] = {
        { "", 0, "f.csv: there is no action: expected a row per rank, such as 0F0,0F1,0B0,0B1" },
        { "0F0,0X0\n", 0, "f.csv: row 1, cell 2: '0X0': expected a stage, F, B, I or W, and a micro-batch, such as 2F0" },
        { "0F0,0F\n", 0, "row 1, cell 2: '0F'" },
        { "0F0,F0\n", 0, "row 1, cell 2: 'F0'" },
        { "0F0,0B0x\n", 0, "row 1, cell 2: '0B0x'" },
        { "0F0,-1B0\n", 0, "row 1, cell 2: '-1B0'" },
        { "0F0,0B9999999999\n", 0, "row 1, cell 2: '0B9999999999'" },
        { "0F0,\x1b[2J\n", 0, "row 1, cell 2: '?[2J'" },
        { "0F0,(0B0;0F1)OVERLAP\n", 0, "row 1, cell 2: '(0B0;0F1)OVERLAP'" },
        { "0F0,()OVERLAP_F_B\n", 0, "row 1, cell 2: ''" },
        { "0F0,0B0\n\n", 0, "row 2 is empty: expected the actions of rank 1" },
        { "0F0,0B999999999\n", 0, "2 computations are fewer than the forwards of 1 stages and 1000000000 micro-batches" },
        { "0F0,0B0,2F0,2B0\n1F0,1B0\n", 0, "3 stages on the ranks of 2 rows: expected a multiple of 2" },
        { "1F0,1B0\n0F0,0B0\n", 0, "row 1, cell 1: stage 1 is in the row of rank 0: expected it in that of rank 1, or all stages in a V" },
        /* what is not proved */
        { "0F0,0F1,0B0\n1F0,1B0,1F1,1B1\n", 0, "f.csv: not proved: pipeline schedule: rank 0 ends after 3 actions: in stage 0, 2 of 2" },
        { "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", 0,
          "not proved: pipeline schedule: deadlock, with 2 messages stored per edge: rank 0, action 1 (0B0), waits for 1B0 of rank 1; rank 1, "
          "action 1 (1F1), waits for 0F1 of rank 0" },
        { "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n", 2,
          "rank 0, action 2, the forward of micro-batch 2 (0F2): 3 are alive with it, and there is memory for 2" },
        { "0F0,0B0,0W0\n", 0, "rank 0, action 2, the backward of the weights of micro-batch 0 (0W0): all 1 micro-batches have gone that way" },
        { "0F0,0B0,0W0,0W0,0W0,0W0,0W0\n", 0, "(0W0): all 1 micro-batches have gone that way" },
        /* messages */
        { "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n", 0, "row 2, cell 1: 1F0: expected it after the receive of what it needs" },
        { "0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "row 1, cell 1: 0SEND_F0: expected it after the computation of what" },
        { "0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "row 1, cell 3: 0SEND_F0: expected each message once" },
        { "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "0SEND_F0 is missing: expected all messages or none" },
        { "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", 0, "1SEND_B0 is missing: expected all messages or none" },
        { "0F0,0SEND_F0,1RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "row 1, cell 3: 1RECV_B0: there is no such message" },
        { "0F0,0SEND_F0,0SEND_F7,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "row 1, cell 3: 0SEND_F7: there is no such message" },
        { "0F0,0SEND_F0,1SEND_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "row 1, cell 3: 1SEND_B0: that stage is on another rank" },
        { "0F0,0WAIT_SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 0, "0WAIT_SEND_F0: expected it after its send" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_program g;
        int others;
        const ls_status st = ls_pipe_csv_read("f.csv", row[k].text, strlen(row[k].text), row[k].alive, &g, &others);
        if (st != LS_BAD_FILE) fail_msg("'%s': %s", row[k].text, ls_status_word(st));
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s': '%s' is not in '%s'", row[k].text, row[k].says, ls_last_error());
        assert_null(g.list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_pytorch_are_the_same_schedules),
        cmocka_unit_test(a_file_that_is_written_is_read_again),
        cmocka_unit_test(a_file_is_a_row_per_rank),
        cmocka_unit_test(cells_are_taken_as_pytorch_writes_them),
        cmocka_unit_test(a_file_that_is_no_schedule_is_refused),
    };
    return cmocka_run_group_tests_name("pipe_csv", tests, NULL, NULL);
}
