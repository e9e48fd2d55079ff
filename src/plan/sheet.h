/* sheet.h -- data sheets of devices, for those who do not know a cost model (plan/cost.h). */
#ifndef LS_PLAN_SHEET_H
#define LS_PLAN_SHEET_H

/* Bytes per second of the memory of a device with that name ("H100 SXM"); 0: unknown. */
double ls_sheet_memory_rate(const char *name);

#endif
