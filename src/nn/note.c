/* note.c -- a note with the addresses of all gradients. */
#include "nn/note.h"

#include "base/lint.h"
#include "base/text.h"

void ls_params_note(const char *call, const ls_params *ps)
{
    const char *comma = "";
    ls_text t = { 0 };
    if (!ls_lint_on()) return;
    ls_text_add(&t, ", \"grads\": [");
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (!p->grad.data) continue;
        ls_text_add(&t, "%s[%llu, %zu]", comma, (unsigned long long)(uintptr_t)p->grad.data, ls_tensor_nbytes(&p->t));
        comma = ", ";
    }
    ls_text_add(&t, "]");
    if (ls_text_status(&t) == LS_OK) ls_lint_note(call, t.p);
    ls_text_free(&t);
}
