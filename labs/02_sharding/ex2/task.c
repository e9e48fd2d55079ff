/* Exercise 2 of lab 02: when are units gathered and released?
 *
 * A rank of FSDP has its shard only, and uses the units 0, 1, .., units - 1 in forward, then units - 1, .., 1, 0 in
 * backward: 2 * units uses. Write the list of what it does in a step: what[i] is GATHER, USE or RELEASE, and unit[i]
 * the unit. Return the length of the list, which has space for 8 * units entries.
 *
 *   - A unit is used only while it is gathered. At the end of the step none is.
 *   - Before each use, the units of the next `ahead` uses are gathered as well, so that no use has to wait for them.
 *   - Never are more than 1 + ahead units gathered at a time.
 *   - A unit is not released if the next use, or one of the `ahead` uses after it, is of this unit.
 *
 * Example: units = 3, ahead = 1: GATHER 0, GATHER 1, USE 0, RELEASE 0, GATHER 2, USE 1, USE 2, USE 2, RELEASE 2 ..
 */
enum { GATHER, USE, RELEASE };

int schedule(int units, int ahead, int *what, int *unit)
{
    (void)units, (void)ahead;
    what[0] = USE, unit[0] = 0; /* your code takes the place of this line and the next */
    return 1;
}
