/* completion.c -- completion scripts for three shells, from the commands' tables of options. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define MOST_WORDS 32

/* What can be said about an option's value. */
typedef enum kind { SWITCH, CHOICE, ANY_FILE, OTHER } kind;

static kind kind_of(const ls_opt *row)
{
    switch (row->type) {
    case LS_OPT_BOOL: return SWITCH;
    case LS_OPT_CHOICE: return CHOICE;
    case LS_OPT_STRING: return row->range ? CHOICE : ANY_FILE; /* or a word of its own: no name of a file hinders it */
    default: return OTHER;
    }
}

static size_t count(const ls_cmd *cmd) { return cmd->nopts ? *cmd->nopts : 0; }

/* A choice's range "a|b|c" as words between blanks. */
static void choices(ls_text *out, const char *range)
{
    for (const char *p = range; *p; p++) ls_text_addn(out, *p == '|' ? " " : p, 1);
}

static void words(ls_text *out, const ls_cmd *cmd)
{
    const char *word[MOST_WORDS];
    const int n = ls_cli_words(cmd, word, MOST_WORDS);
    for (int i = 0; i < n; i++) ls_text_add(out, "%s%.*s", i ? " " : "", (int)ls_cli_word_bytes(word[i]), word[i]);
}

/* In single quotes of a shell; `more` are other bytes that get a backslash. */
static void quoted(ls_text *out, const char *s, const char *quote, const char *more)
{
    for (; *s; s++) {
        if (*s == '\'') ls_text_add(out, "%s", quote);
        else ls_text_add(out, "%s%c", strchr(more, *s) ? "\\" : "", *s);
    }
}

/* What an option is for, quoted. */
static void purpose(ls_text *out, const ls_cmd *cmd, const ls_opt *row, const char *quote, const char *more)
{
    ls_text words = { 0 };
    ls_opt_say(row, cmd->readers, &words);
    quoted(out, ls_text_str(&words), quote, more);
    out->failed = out->failed || words.failed;
    ls_text_free(&words);
}

/* --- bash ------------------------------------------------------------------------------------ */

/* case patterns of one kind of option: 'train --optim.name'|'train -x' */
static void bash_patterns(ls_text *out, const ls_cmd *cmd, const ls_opt *row, bool first)
{
    ls_text_add(out, "%s'%s --%s'", first ? "" : " | \\\n        ", cmd->name, row->name);
    if (row->short_name) ls_text_add(out, " | '%s -%c'", cmd->name, row->short_name);
}

static void bash_values(ls_cmd_list all, ls_text *out, kind what, const char *action)
{
    bool first = true;
    for (ls_cmd_list cmd = all; *cmd; cmd++)
        for (size_t i = 0; i < count(*cmd); i++) {
            const ls_opt *row = &(*cmd)->opts[i];
            if (kind_of(row) != what) continue;
            if (first) ls_text_add(out, "    ");
            bash_patterns(out, *cmd, row, first);
            first = false;
        }
    if (!first) ls_text_add(out, ")\n        %s ;;\n", action);
}

static const char bash_front[] =
    "# bash completion for lockstep, as `lockstep completion bash` prints it.\n"
    "\n"
    "# Which values an option takes: kind is '' (it is a switch), words, file or any.\n"
    "_lockstep_value() { # command, option\n"
    "    kind='' values=''\n"
    "    case \"$1 $2\" in\n";

static const char bash_middle[] =
    "    esac\n"
    "}\n"
    "\n"
    "_lockstep() {\n"
    "    local commands='";

static const char bash_back[] =
    "'\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} kind values i\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -le 1 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$commands --help --version\" -- \"$cur\"))\n"
    "        return\n"
    "    fi\n"
    "    # bash cuts --name=value into three words\n"
    "    [ \"$prev\" != = ] || prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    [ \"$cur\" != = ] || cur=''\n"
    "    if [ \"$command\" = run ]; then # the words after the program are its own\n"
    "        i=2\n"
    "        while [ $i -lt $COMP_CWORD ] && [[ ${COMP_WORDS[i]} == -* && ${COMP_WORDS[i]} != -- ]]; do\n"
    "            _lockstep_value run \"${COMP_WORDS[i]}\"\n"
    "            i=$((i + 1))\n"
    "            if [ \"${COMP_WORDS[i]}\" = = ]; then i=$((i + 2)); elif [ -n \"$kind\" ]; then i=$((i + 1)); fi\n"
    "        done\n"
    "        [ \"${COMP_WORDS[i]}\" != -- ] || i=$((i + 1))\n"
    "        if [ $i -lt $COMP_CWORD ] || { [ $i -eq $COMP_CWORD ] && [[ $cur != -* ]]; }; then\n"
    "            compopt -o filenames 2>/dev/null\n"
    "            COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "            [ $i -lt $COMP_CWORD ] || COMPREPLY+=($(compgen -c -- \"$cur\"))\n"
    "            return\n"
    "        fi\n"
    "    fi\n"
    "    _lockstep_value \"$command\" \"$prev\"\n"
    "    case $kind in\n"
    "    words) COMPREPLY=($(compgen -W \"$values\" -- \"$cur\")); return ;;\n"
    "    file) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n"
    "    any) return ;;\n"
    "    esac\n"
    "    local options='' first=''\n"
    "    case $command in\n";

static const char bash_end[] =
    "    esac\n"
    "    [ \"$command\" != help ] || first=$(lockstep completion topics 2>/dev/null)\n"
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
    "    elif [ -n \"$first\" ] && [ \"$COMP_CWORD\" = 2 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$first\" -- \"$cur\"))\n"
    "    else\n"
    "        compopt -o filenames 2>/dev/null\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "        [ \"$command\" != train ] || COMPREPLY+=($(compgen -W \"$(lockstep completion recipes 2>/dev/null)\" -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -F _lockstep lockstep\n";

static void bash(ls_cmd_list all, ls_text *out)
{
    ls_text_add(out, "%s", bash_front);
    bash_values(all, out, ANY_FILE, "kind=file");
    bash_values(all, out, OTHER, "kind=any");
    for (ls_cmd_list cmd = all; *cmd; cmd++)
        for (size_t i = 0; i < count(*cmd); i++) {
            const ls_opt *row = &(*cmd)->opts[i];
            if (kind_of(row) != CHOICE) continue;
            ls_text_add(out, "    ");
            bash_patterns(out, *cmd, row, true);
            ls_text_add(out, ") kind=words values='");
            choices(out, row->range);
            ls_text_add(out, "' ;;\n");
        }
    ls_text_add(out, "%s", bash_middle);
    for (ls_cmd_list cmd = all; *cmd; cmd++) ls_text_add(out, "%s%s", cmd == all ? "" : " ", (*cmd)->name);
    ls_text_add(out, "%s", bash_back);
    for (ls_cmd_list cmd = all; *cmd; cmd++) {
        ls_text_add(out, "    %s)\n        first='", (*cmd)->name);
        words(out, *cmd);
        ls_text_add(out, "'\n        options='");
        for (size_t i = 0; i < count(*cmd); i++) ls_text_add(out, "%s--%s", i ? " " : "", (*cmd)->opts[i].name);
        ls_text_add(out, "' ;;\n");
    }
    ls_text_add(out, "%s", bash_end);
}

/* --- zsh ------------------------------------------------------------------------------------- */

static void zsh_option(ls_text *out, const ls_cmd *cmd, const ls_opt *row)
{
    const kind what = kind_of(row);
    if (row->short_name) ls_text_add(out, "        '(-%c --%s)'{-%c,--%s", row->short_name, row->name, row->short_name, row->name);
    else ls_text_add(out, "        '--%s", row->name);
    if (what != SWITCH) ls_text_add(out, "%s", row->short_name ? "=}" : "=");
    else if (row->short_name) ls_text_add(out, "}");
    ls_text_add(out, "%s[", row->short_name ? "'" : "");
    purpose(out, cmd, row, "'\\''", "[]\\");
    ls_text_add(out, "]");
    if (what != SWITCH) ls_text_add(out, ":%s:", ls_opt_placeholder(row->type) + 1);
    if (what == CHOICE) {
        ls_text_add(out, "(");
        choices(out, row->range);
        ls_text_add(out, ")");
    } else if (what == ANY_FILE) {
        ls_text_add(out, "_files");
    }
    ls_text_add(out, "' \\\n");
}

static void zsh(ls_cmd_list all, ls_text *out)
{
    ls_text_add(out, "#compdef lockstep\n# zsh completion for lockstep, as `lockstep completion zsh` prints it.\n\n_lockstep() {\n"
                     "    local -a commands=(\n");
    for (ls_cmd_list cmd = all; *cmd; cmd++) {
        ls_text_add(out, "        '%s:", (*cmd)->name);
        quoted(out, (*cmd)->summary, "'\\''", ":\\");
        ls_text_add(out, "'\n");
    }
    ls_text_add(out, "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
                     "    shift words\n    (( CURRENT-- ))\n    case $words[1] in\n");
    for (ls_cmd_list cmd = all; *cmd; cmd++) {
        const char *word[MOST_WORDS];
        ls_text_add(out, "    %s)\n        _arguments \\\n", (*cmd)->name);
        for (size_t i = 0; i < count(*cmd); i++) zsh_option(out, *cmd, &(*cmd)->opts[i]);
        if (strcmp((*cmd)->name, "run") == 0) {
            ls_text_add(out, "        '(-)1:program:_command_names -e' '*::argument:_normal' ;;\n");
        } else if (strcmp((*cmd)->name, "train") == 0) {
            ls_text_add(out, "        '1:recipe:{_files; compadd $(lockstep completion recipes 2>/dev/null)}' ;;\n");
        } else if (strcmp((*cmd)->name, "help") == 0) {
            ls_text_add(out, "        '1:topic:($(lockstep completion topics 2>/dev/null))' ;;\n");
        } else if (ls_cli_words(*cmd, word, MOST_WORDS) > 0) {
            ls_text_add(out, "        '1:what:(");
            words(out, *cmd);
            ls_text_add(out, ")' '*:file:_files' ;;\n");
        } else {
            ls_text_add(out, "        '*:file:_files' ;;\n");
        }
    }
    ls_text_add(out, "    esac\n}\n\nif [[ $funcstack[1] == _lockstep ]]; then\n    _lockstep \"$@\"\nelse\n    compdef _lockstep lockstep\nfi\n");
}

/* --- fish ------------------------------------------------------------------------------------ */

static void fish(ls_cmd_list all, ls_text *out)
{
    ls_text_add(out, "# fish completion for lockstep, as `lockstep completion fish` prints it.\n");
    for (ls_cmd_list cmd = all; *cmd; cmd++) {
        ls_text_add(out, "complete -c lockstep -n __fish_use_subcommand -f -a %s -d '", (*cmd)->name);
        quoted(out, (*cmd)->summary, "\\'", "\\");
        ls_text_add(out, "'\n");
    }
    for (ls_cmd_list cmd = all; *cmd; cmd++) {
        const char *word[MOST_WORDS], *name = (*cmd)->name;
        const bool train = strcmp(name, "train") == 0, help = strcmp(name, "help") == 0;
        if (train || help || ls_cli_words(*cmd, word, MOST_WORDS) > 0) {
            ls_text_add(out, "complete -c lockstep -n '__fish_seen_subcommand_from %s' -a '", name);
            if (train || help) ls_text_add(out, "(string split \" \" -- (lockstep completion %s 2>/dev/null))", train ? "recipes" : "topics");
            else words(out, *cmd);
            ls_text_add(out, "'\n");
        }
        for (size_t i = 0; i < count(*cmd); i++) {
            const ls_opt *row = &(*cmd)->opts[i];
            const kind what = kind_of(row);
            ls_text_add(out, "complete -c lockstep -n '__fish_seen_subcommand_from %s' -l %s", name, row->name);
            if (row->short_name) ls_text_add(out, " -s %c", row->short_name);
            ls_text_add(out, "%s", what == ANY_FILE ? " -r -F" : what == SWITCH ? "" : " -x");
            if (what == CHOICE) {
                ls_text_add(out, " -a '");
                choices(out, row->range);
                ls_text_add(out, "'");
            }
            ls_text_add(out, " -d '");
            purpose(out, *cmd, row, "\\'", "\\");
            ls_text_add(out, "'\n");
        }
    }
}

ls_status ls_cli_completion(ls_cmd_list all, const char *shell, ls_text *out)
{
    if (strcmp(shell, "bash") == 0) bash(all, out);
    else if (strcmp(shell, "zsh") == 0) zsh(all, out);
    else if (strcmp(shell, "fish") == 0) fish(all, out);
    else return ls_fail(LS_USAGE, "no completions for '%s': expected bash, zsh or fish", shell);
    return LS_OK;
}
