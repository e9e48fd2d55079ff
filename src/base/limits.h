/* limits.h -- how much of anything from outside is accepted.
 *
 * Every parser takes its bounds from here, checks them before it allocates,
 * and has a test at the bound and one above it. */
#ifndef LS_BASE_LIMITS_H
#define LS_BASE_LIMITS_H

/* configuration files */
#define LS_YAML_MAX_BYTES (1u << 20)
#define LS_YAML_MAX_DEPTH 32    /* mappings inside one another */
#define LS_YAML_MAX_KEYS  4096  /* sections and values together */
#define LS_YAML_MAX_NAME  256   /* bytes of a dotted name */

/* JSON */
#define LS_JSON_MAX_DEPTH  64
#define LS_JSON_MAX_STRING (1u << 20) /* bytes */

/* safetensors files */
#define LS_CKPT_MAX_HEADER  (16u << 20) /* bytes of JSON; the format itself allows 100 MB */
#define LS_CKPT_MAX_TENSORS (1u << 18) /* and as many pairs of metadata */
#define LS_CKPT_MAX_NAME    1024u       /* bytes of a tensor's name */
#define LS_CKPT_MAX_ENTRY   4096u       /* bytes of one tensor's description */

/* manifests of checkpoints */
#define LS_MANIFEST_MAX_BYTES     (64u << 20)
#define LS_MANIFEST_MAX_FILES     65536u
#define LS_MANIFEST_MAX_NAME      128u            /* bytes */
#define LS_MANIFEST_MAX_ENTRY     (8u << 20)      /* bytes of one file's description: 512 GiB of blocks */
#define LS_MANIFEST_MAX_RANKS     65536
#define LS_MANIFEST_MAX_COMPANION ((size_t)1 << 30) /* bytes of a file beside the ranks' */

/* Hugging Face's model folders */
#define LS_HF_MAX_CONFIG     (1u << 20)  /* bytes of config.json */
#define LS_HF_MAX_INDEX      (16u << 20) /* bytes of model.safetensors.index.json */
#define LS_HF_MAX_SHARDS     512         /* all are open at once */
#define LS_HF_MAX_SHARD_NAME 128u        /* bytes */

/* IDX data files */
#define LS_IDX_MAX_DIMS  4
#define LS_IDX_MAX_BYTES ((size_t)1 << 30) /* of one data set's images */

/* tokenizers and tokens */
#define LS_TOKENIZER_MAX_BYTES   ((size_t)32 << 20) /* of a tokenizer.json, encoder.json or vocab.bpe */
#define LS_TOKENIZER_MAX_TOKENS  (1u << 20)
#define LS_TOKENIZER_MAX_TOKEN   1024u              /* bytes of one token */
#define LS_TOKENIZER_MAX_SPECIAL 4096u              /* added tokens */
#define LS_TOKENIZER_MAX_PATTERN 4096u              /* bytes of the pattern that splits text into words */
#define LS_TEXT_MAX_BYTES        ((size_t)1 << 30)  /* of one text file */

/* host lists of a cluster's scheduler */
#define LS_HOST_MAX_NAME     255
#define LS_HOST_MAX_LIST     65536 /* bytes */
#define LS_HOST_MAX_BRACKETS 4     /* in one name */

/* claims of labs */
#define LS_LAB_MAX_CLAIMS 64
#define LS_LAB_MAX_PAIRS  16   /* runs, values, rows or options of one claim */
#define LS_LAB_MAX_EXPR   1000 /* bytes of a comparison */
#define LS_LAB_MAX_OUTPUT (1u << 20) /* bytes that a command prints */
#define LS_LAB_COMMAND_S  60 /* longest that one takes */
#define LS_LAB_MAX_DEPTH  32   /* parentheses inside one another in it */

/* collective schedules in JSON */
#define LS_SCHED_MAX_JSON_BYTES ((size_t)64 << 20)
#define LS_SCHED_MAX_RANKS      256
#define LS_SCHED_MAX_CHUNKS     65536 /* of one buffer */

/* comm.algo and LOCKSTEP_ALGO */
#define LS_ALGO_MAX_TEXT 255

/* requests for figures */
#define LS_FIG_MAX_REQUEST 1024 /* bytes */

/* calibration files */
#define LS_COST_MAX_BYTES 65536
#define LS_PEAK_MAX_BYTES 65536
#define LS_COST_MAX_NS    1e12 /* of any one number in them */

#endif
