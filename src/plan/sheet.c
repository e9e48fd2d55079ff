/* sheet.c -- data sheets of devices, for those who do not know a cost model. */
#include "plan/sheet.h"

#include "plan/cost.h"

double ls_sheet_memory_rate(const char *name)
{
    const ls_device_sheet *d = ls_device_sheet_find(name);
    return d ? d->bytes_per_s : 0;
}
