/* Prints what the header makes of each plan that is named: the error, or the actions and levels. */
#define CKIO_SCHEDULE_IMPLEMENTATION
#include "ckio_schedule.h"

static void list(const char *path) {
    ckio_schedule plan;
    ckio_action a;
    int round, code = ckio_schedule_open(&plan, path);
    printf("plan %d %lld %lld %s\n", code, (long long)plan.line, (long long)plan.tapes,
           plan.message);
    for (round = 0; code == CKIO_OK && round < 2; round++) /* the same again after next = 0 */
        for (plan.next = 0; ckio_schedule_next(&plan, &a);)
            if (round == 1)
                printf("%d %d %d %d %lld %lld\n", (int)a.kind, (int)a.checkpoint, (int)a.level,
                       (int)a.slot, (long long)a.begin, (long long)a.end);
    for (a.level = 0; code == CKIO_OK && a.level < plan.levels; a.level++)
        printf("level %s %lld %lld\n", plan.level[a.level].name,
               (long long)plan.level[a.level].slots, (long long)plan.level[a.level].peak);
    if (code == CKIO_OK)
        ckio_schedule_close(&plan);
}

int main(int count, char **words) {
    int i;
    for (i = 1; i < count; i++)
        list(words[i]);
    return 0;
}
