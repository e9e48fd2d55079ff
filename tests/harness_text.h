/* harness_text.h -- a text of 9000 letters for suites that train on one: made before the first test, and taken
 * away with the tokens that were made of it after the last one. */
#ifndef LS_TESTS_HARNESS_TEXT_H
#define LS_TESTS_HARNESS_TEXT_H
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *text, *tokens; /* the file, and the folder for its tokens */

static int make_text(void **state)
{
    static char path[64], folder[80];
    (void)state;
    snprintf(path, sizeof path, "/tmp/lockstep-test-text-%d.txt", (int)getpid());
    snprintf(folder, sizeof folder, "%s.tokens", path);
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    for (int i = 0; i < 9000; i++) fputc("etaoin shrdlu\n"[i * 7 % 13 + i % 2], f);
    text = path;
    tokens = folder;
    return fclose(f);
}

static int remove_text(void **state)
{
    char command[200];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", text, tokens);
    return system(command);
}

#endif
