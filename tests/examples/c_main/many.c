/* The example as it stands, for many plans in one process, which a sanitizer watches. */
#define main gradient_of_one_plan
#include "burgers.c"
#undef main

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IONBF, 0); /* in order with stderr */
    for (int i = 2; i < count; i++) {
        char *given[] = {words[0], words[i], words[1]};
        printf("plan %s\n", words[i]);
        int code = gradient_of_one_plan(3, given);
        printf("returned %d\n", code);
    }
    return 0;
}
