/* keeps the harness library non-empty */
typedef int ls_empty_translation_unit;
