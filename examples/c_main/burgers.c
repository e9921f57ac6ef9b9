/* The gradient of a program that keeps its main loop: u_t + u u_x = nu u_xx on a circle, by Heun's
 * method, with its adjoint written by hand. J is half the integral of u^2 at the end; the gradient is
 * its derivative with respect to u at the start and to nu.
 *
 *     burgers STEPS            prints the options with which `ckio plan` plans this program
 *     burgers PLAN DIRECTORY   follows a plan: level 0 in memory, the others as files in DIRECTORY
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CKIO_SCHEDULE_IMPLEMENTATION
#include "ckio_schedule.h"

enum { N = 500 };

static const double H = 6.283185307179586 / N, DT = 1e-3;

typedef struct {
    double u[N];
} State;

typedef struct { /* what the adjoint of a step reads: u before it, and Heun's first guess */
    double u[N], guess[N];
} Tape;

typedef struct { /* dJ/du at a step, and dJ/dnu of the steps after it */
    double u[N], nu;
} Adjoint;

/* to = from + DT * du/dt, of u = from */
static void euler(double nu, const double *from, double *to) {
    for (int i = 0; i < N; i++) {
        double left = from[(i + N - 1) % N], right = from[(i + 1) % N];
        to[i] = from[i] + DT * (nu * (left - 2 * from[i] + right) / (H * H)
                                - from[i] * (right - left) / (2 * H));
    }
}

/* Its adjoint: from dJ/d(to) to dJ/d(from), and dJ/dnu. */
static void euler_adjoint(double nu, const double *from, const double *of_to, double *of_from,
                          double *of_nu) {
    for (int i = 0; i < N; i++) {
        int l = (i + N - 1) % N, r = (i + 1) % N;
        of_from[i] = of_to[i] + DT * (nu * (of_to[l] - 2 * of_to[i] + of_to[r]) / (H * H)
                                      - of_to[i] * (from[r] - from[l]) / (2 * H)
                                      - (of_to[l] * from[l] - of_to[r] * from[r]) / (2 * H));
        *of_nu += DT * of_to[i] * (from[l] - 2 * from[i] + from[r]) / (H * H);
    }
}

static void step(double nu, State *x, Tape *tape) {
    double second[N];
    memcpy(tape->u, x->u, sizeof x->u);
    euler(nu, tape->u, tape->guess);
    euler(nu, tape->guess, second);
    for (int i = 0; i < N; i++)
        x->u[i] = (tape->u[i] + second[i]) / 2;
}

static void step_adjoint(double nu, Adjoint *a, const Tape *tape) {
    double half[N], of_guess[N], of_u[N];
    for (int i = 0; i < N; i++)
        half[i] = a->u[i] / 2;
    euler_adjoint(nu, tape->guess, half, of_guess, &a->nu);
    euler_adjoint(nu, tape->u, of_guess, of_u, &a->nu);
    for (int i = 0; i < N; i++)
        a->u[i] = half[i] + of_u[i];
}

static State start(void) {
    State x;
    for (int i = 0; i < N; i++)
        x.u[i] = sin(i * H) + 0.5 * cos(3 * i * H);
    return x;
}

static double functional(const State *x, Adjoint *a) {
    double sum = 0;
    for (int i = 0; i < N; i++) {
        sum += x->u[i] * x->u[i] * H / 2;
        a->u[i] = x->u[i] * H;
    }
    a->nu = 0;
    return sum;
}

/* J and its gradient, with the tapes of all steps in memory. Returns whether there is memory. */
static int store_all(double nu, long steps, double *J, Adjoint *a) {
    State x = start();
    Tape *tapes = malloc((size_t)steps * sizeof *tapes);
    for (long i = 0; tapes && i < steps; i++)
        step(nu, &x, tapes + i);
    *J = functional(&x, a);
    for (long i = steps - 1; tapes && i >= 0; i--)
        step_adjoint(nu, a, tapes + i);
    free(tapes);
    return tapes != NULL;
}

/* The slots of the plan: pointers to checkpoints on level 0, files on the other levels. */
typedef struct {
    void **memory;
    const char *directory;
} Slots;

static FILE *file_of(const Slots *slots, const ckio_action *a, const char *mode, char *name) {
    snprintf(name, FILENAME_MAX, "%s/level-%d-slot-%d", slots->directory, a->level, a->slot);
    return mode ? fopen(name, mode) : NULL;
}

static int write_slot(const Slots *slots, const ckio_action *a, const void *data, size_t bytes) {
    char name[FILENAME_MAX];
    if (a->level == 0) {
        void *copy = malloc(bytes);
        return copy && (slots->memory[a->slot] = memcpy(copy, data, bytes));
    }
    FILE *file = file_of(slots, a, "wb", name);
    int fine = file && fwrite(data, bytes, 1, file) == 1;
    return file && fclose(file) == 0 && fine;
}

static int read_slot(const Slots *slots, const ckio_action *a, void *data, size_t bytes) {
    char name[FILENAME_MAX];
    if (a->level == 0)
        return memcpy(data, slots->memory[a->slot], bytes) != NULL;
    FILE *file = file_of(slots, a, "rb", name);
    int fine = file && fread(data, bytes, 1, file) == 1;
    return file && fclose(file) == 0 && fine;
}

static int discard_slot(const Slots *slots, const ckio_action *a) {
    char name[FILENAME_MAX];
    if (a->level == 0) {
        free(slots->memory[a->slot]);
        slots->memory[a->slot] = NULL;
        return 1;
    }
    file_of(slots, a, NULL, name);
    return remove(name) == 0;
}

/* J and its gradient by a plan; the main loop stays here. Returns whether nothing failed. */
static int follow(double nu, ckio_schedule *plan, const Slots *slots, double *J, Adjoint *adjoint) {
    State x = start();
    Tape unused, *tapes = malloc((size_t)plan->tapes * sizeof *tapes);
    int64_t first = 0; /* the step of tapes[0] */
    int fine = tapes != NULL, seeded = 0;
    ckio_action a;
    plan->next = 0;
    while (fine && ckio_schedule_next(plan, &a)) {
        void *data = a.checkpoint == CKIO_STATE ? (void *)&x : (void *)tapes;
        size_t bytes = a.checkpoint == CKIO_STATE ? sizeof x : sizeof *tapes;
        switch (a.kind) {
        case CKIO_ADVANCE:
        case CKIO_RECORD:
            if (a.kind == CKIO_RECORD)
                first = a.begin;
            for (int64_t i = a.begin; i < a.end; i++)
                step(nu, &x, a.kind == CKIO_RECORD ? tapes + (i - first) : &unused);
            if (a.end == plan->steps && !seeded++) /* the adjoint begins once */
                *J = functional(&x, adjoint);
            break;
        case CKIO_REVERSE:
            for (int64_t i = a.end - 1; i >= a.begin; i--)
                step_adjoint(nu, adjoint, tapes + (i - first));
            break;
        case CKIO_WRITE:
            fine = write_slot(slots, &a, data, bytes);
            break;
        case CKIO_READ:
            fine = read_slot(slots, &a, data, bytes);
            if (a.checkpoint == CKIO_TAPE)
                first = a.begin;
            break;
        case CKIO_DISCARD:
            fine = discard_slot(slots, &a);
            break;
        }
        if (!fine)
            perror("a checkpoint");
    }
    free(tapes);
    return fine;
}

/* The options of `ckio plan`: seconds are measured, bytes are those that `follow` copies. */
static int print_options(double nu, long steps) {
    State x = start();
    Tape tape;
    Adjoint a;
    double seconds[2];
    clock_t begin = clock();
    for (long i = 0; i < steps; i++)
        step(nu, &x, &tape);
    seconds[0] = (double)(clock() - begin) / CLOCKS_PER_SEC / (double)steps;
    functional(&x, &a);
    begin = clock();
    for (long i = 0; i < steps; i++)
        step_adjoint(nu, &a, &tape);
    seconds[1] = (double)(clock() - begin) / CLOCKS_PER_SEC / (double)steps;
    printf("--steps %ld --advance %.2g --record %.2g --reverse %.2g --restart %zu --tape %zu"
           " --adjoint %zu\n", steps, seconds[0], seconds[0], seconds[1], sizeof(State),
           sizeof(Tape), sizeof(Adjoint));
    return isfinite(x.u[0] + a.u[0]) ? 0 : 1;
}

int main(int count, char **words) {
    const double nu = 0.05, eps = 1e-6;
    ckio_schedule plan;
    Adjoint stored, planned, unused;
    double J = 0, same_J = 0, more = 0, less = 0;
    if (count == 2 && atol(words[1]) > 0)
        return print_options(nu, atol(words[1]));
    if (count != 3)
        return fprintf(stderr, "usage: burgers STEPS or burgers PLAN DIRECTORY\n"), 2;
    if (ckio_schedule_open(&plan, words[1]) != CKIO_OK)
        return fprintf(stderr, "%s\n", plan.message), 1;
    int fine = plan.bytes[CKIO_STATE] == sizeof(State) && plan.bytes[CKIO_TAPE] == sizeof(Tape);
    if (!fine)
        fprintf(stderr, "%s: the sizes in this plan are those of another program\n", words[1]);
    size_t slots_in_memory = plan.levels > 0 ? (size_t)plan.level[0].slots : 0;
    Slots slots = {calloc(slots_in_memory + 1, sizeof(void *)), words[2]};
    fine = fine && slots.memory && follow(nu, &plan, &slots, &J, &planned)
        && store_all(nu, plan.steps, &same_J, &stored)
        && store_all(nu + eps, plan.steps, &more, &unused)
        && store_all(nu - eps, plan.steps, &less, &unused);
    if (fine) {
        for (int i = 0; i < plan.levels; i++)
            printf("level %s: %lld slots, %lld bytes\n", plan.level[i].name,
                   (long long)plan.level[i].slots, (long long)plan.level[i].peak);
        printf("J = %.12g, dJ/dnu = %.8g, by a difference %.8g\n", J, planned.nu,
               (more - less) / (2 * eps));
        fine = J == same_J && memcmp(&planned, &stored, sizeof stored) == 0;
        printf("%s the gradient with the tapes of all %lld steps in memory\n",
               fine ? "equal to the last bit to" : "NOT EQUAL to", (long long)plan.steps);
    }
    for (size_t i = 0; slots.memory && i < slots_in_memory; i++)
        free(slots.memory[i]); /* what the plan did not discard */
    free(slots.memory);
    ckio_schedule_close(&plan);
    return fine ? 0 : 1;
}
